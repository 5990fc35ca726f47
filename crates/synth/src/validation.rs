//! The loss on clips that are not trained on.

use std::collections::VecDeque;

use tandem_data::Shard;
use tandem_model::{Device, HostInputs, InputShape, Inputs, LossTerms, Losses, Totals, Voice};

/// The terms of the loss over some batches, each clip's frames weighing the same. At most `rows` clips go through the
/// device at once, and `prefetch` such micro-batches wait there. Of several ranks each has its share of them, and their sums are added.
pub fn validation_losses(
    model: &Voice,
    shape: &InputShape,
    batches: &[&HostInputs],
    device: &Device,
    rows: usize,
    prefetch: usize,
    shard: Shard,
) -> LossTerms {
    let frames: Vec<usize> = batches.iter().flat_map(|inputs| inputs.mel_lengths.clone()).collect();
    let tokens: Vec<usize> = batches.iter().flat_map(|inputs| inputs.id_lengths.clone()).collect();
    let totals = Totals::new(&frames, &tokens);
    let mut sums = LossTerms::default();
    let micro_batches = batches.iter().flat_map(|inputs| {
        let all = inputs.rows;
        let rows = rows.clamp(1, all.max(1));
        (0..all).step_by(rows).map(move |first| inputs.rows(first..(first + rows).min(all)))
    });
    let mut uploads =
        micro_batches.skip(shard.rank).step_by(shard.world.max(1)).map(|inputs| inputs.upload(shape, device));
    let mut waiting: VecDeque<Inputs> = uploads.by_ref().take(prefetch.max(1)).collect();
    while let Some(inputs) = waiting.pop_front() {
        let (losses, _) = model.losses(&inputs, totals, 0.0, false);
        waiting.extend(uploads.next());
        let values = Losses::values(&losses).into_data().try_into_vec::<f32>().expect("losses are single precision");
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += f64::from(value));
    }
    sums
}
