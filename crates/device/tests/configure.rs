//! SPEC D8: a process is laid out once. Needs a process of its own, and the feature `open`.
#![cfg(feature = "open")]

use tandem_device::{Inventory, Lanes, OpenError, Placement, Request, Selector, Simulation, resolve};

#[test]
fn configuring_twice_gives_the_same_or_an_error() {
    let inventory = Inventory::simulated(Simulation { devices: 4, memory: 1 << 30 });
    let place = |data, model| -> Placement {
        let request =
            Request { data: Some(Selector::Index(data)), model: Some(Selector::Index(model)), ..Request::default() };
        resolve(&request, &inventory.gpus, &inventory.cpu).expect("there are four")
    };
    assert!(Lanes::open(&inventory, place(2, 3)).is_ok());
    assert!(Lanes::open(&inventory, place(2, 3)).is_ok(), "the same again");
    for (data, model) in [(0, 1), (3, 2), (2, 1)] {
        let error = Lanes::open(&inventory, place(data, model)).err();
        assert!(matches!(error, Some(OpenError::AlreadyConfigured)), "{data} {model}: {error:?}");
    }
    assert_eq!(Inventory::opened(), [0usize; 0], "simulated devices are not opened");
}
