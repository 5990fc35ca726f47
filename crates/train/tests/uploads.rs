//! What a step uploads to its device. Alone in its process: uploads are counted per process.

mod common;

use common::{config, inputs};
use tandem_flow::Cursor;
use tandem_model::{Device, uploads};
use tandem_train::{Learner, Ready, TrainConfig};

/// Masks, RoPE tables, dropout masks and timestep features come with the batch. The alignment is found in the step: which
/// token each frame belongs to, where in its token each position lies, and the durations that are learned.
#[test]
fn a_step_uploads_only_what_it_finds_itself() {
    let mut learner = Learner::new(&config(true), &TrainConfig::default(), &Device::flex());
    for batch in 0..2 {
        let inputs = inputs(&[(7, 40), (12, 90)], 0, true).upload(&learner.input_shape(), learner.device());
        let before = uploads();
        learner.step(Ready { cursor: Cursor { epoch: 0, batch }, clips: vec![0, 1], seconds: 1.0, inputs });
        assert_eq!(uploads() - before, 3);
    }
}
