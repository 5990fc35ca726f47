//! How good a model is on clips that it does not learn from.

use std::collections::VecDeque;

use burn::module::Module;
use tandem_model::{Device, Inputs, Losses, Totals, Voice};

use crate::features::Prepared;

/// A copy of the model that does not remember how its results came about.
pub(crate) fn plain(model: &Voice) -> Voice {
    model.valid()
}

/// The terms of the loss over some batches, each clip's frames weighing the same.
/// At most `rows` clips go through the device at once, and `ahead` such parts wait there.
pub fn validation_losses(model: &Voice, batches: &[Prepared], device: &Device, rows: usize, ahead: usize) -> [f64; 3] {
    let frames: Vec<usize> = batches.iter().flat_map(|batch| batch.inputs.mel_lengths.clone()).collect();
    let tokens: Vec<usize> = batches.iter().flat_map(|batch| batch.inputs.id_lengths.clone()).collect();
    let totals = Totals::new(&frames, &tokens);
    let mut sums = [0f64; 3];
    let parts = batches.iter().flat_map(|batch| {
        let all = batch.inputs.rows;
        let rows = rows.clamp(1, all.max(1));
        (0..all).step_by(rows).map(move |first| batch.inputs.rows(first..(first + rows).min(all)))
    });
    let mut uploads = parts.map(|inputs| inputs.upload(device));
    let mut waiting: VecDeque<Inputs> = uploads.by_ref().take(ahead.max(1)).collect();
    while let Some(inputs) = waiting.pop_front() {
        let (losses, _) = model.losses(&inputs, totals, 0.0, false);
        waiting.extend(uploads.next());
        let values = Losses::values(&losses).into_data().try_into_vec::<f32>().expect("losses are single precision");
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += f64::from(value));
    }
    sums
}
