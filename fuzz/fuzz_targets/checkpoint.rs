//! Any bytes as `state.json` and as a safetensors file of a checkpoint: refused, or something that is written and read again as
//! it was, and that takes no more memory than its bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some(state) = tandem_fuzz::state(bytes) {
        assert_eq!(state.format, tandem_fuzz::FORMAT);
        assert_eq!(state.stats.mean.len(), state.mel.n_mels);
        let again = serde_json::to_vec(&state).expect("plain data");
        assert_eq!(tandem_fuzz::state(&again).as_ref(), Some(&state), "what was accepted is accepted again");
    }
    if let Some(tensors) = tandem_fuzz::tensors(bytes) {
        let values: usize = tensors.values().map(|tensor| tensor.values.len()).sum();
        assert!(4 * values <= bytes.len());
        for tensor in tensors.values() {
            assert_eq!(tensor.shape.iter().product::<usize>(), tensor.values.len());
        }
        let again = tandem_fuzz::tensors(&tandem_fuzz::to_bytes(&tensors)).expect("just written");
        let bits = |tensors: &tandem_fuzz::Tensors| -> Vec<u32> {
            tensors.values().flat_map(|tensor| tensor.values.iter().map(|value| value.to_bits())).collect()
        };
        assert!(again.keys().eq(tensors.keys()) && bits(&again) == bits(&tensors));
    }
});
