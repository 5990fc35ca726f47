//! What a step computes: independent of padding, of how a batch is split and of how results are kept.

mod common;

use common::{N_MELS, config, inputs};
use tandem_flow::Cursor;
use tandem_model::weights::{self, HostTensor, Tensors};
use tandem_model::{Device, HostInputs, InputShape, Totals, Voice};
use tandem_train::{Learner, LearningRate, Ready, Schedule, StepRecord, TrainConfig};

fn losses(voice: &Voice, inputs: &HostInputs, totals: Totals) -> Vec<f32> {
    let shape = InputShape::new(&config(inputs.reference.is_some()));
    let (losses, _) = voice.losses(&inputs.clone().upload(&shape, &Device::flex()), totals, 0.0, true);
    losses.values().into_data().try_into_vec().expect("single precision")
}

fn assert_close(a: &[f32], b: &[f32], tolerance: f32, what: &str) {
    for (a, b) in a.iter().zip(b) {
        assert!((a - b).abs() <= tolerance * b.abs().max(1e-3), "{what}: {a} {b}");
    }
}

#[test]
fn padding_and_company_change_nothing() {
    // The earlier system's attention looked at padding.
    for reference in [false, true] {
        let voice = Voice::new(&config(reference), 1, &Device::flex());
        let alone = inputs(&[(7, 40)], 0, reference);
        let totals = Totals::new(&alone.mel_lengths, &alone.id_lengths);
        let wanted = losses(&voice, &alone, totals);
        assert_close(&losses(&voice, &inputs(&[(7, 40)], 13, reference), totals), &wanted, 1e-4, "padded");
        let both = losses(&voice, &inputs(&[(7, 40), (12, 90)], 0, reference), totals);
        let other = losses(&voice, &inputs(&[(12, 90)], 0, reference), totals);
        let sum: Vec<f32> = wanted.iter().zip(&other).map(|(a, b)| a + b).collect();
        assert_close(&both, &sum, 1e-4, "in company");
    }
}

#[test]
fn what_is_beyond_a_rows_end_has_no_gradient_and_is_not_seen() {
    let voice = Voice::new(&config(true), 1, &Device::flex());
    let clean = inputs(&[(7, 40), (12, 90)], 0, true);
    let totals = Totals::new(&clean.mel_lengths, &clean.id_lengths);
    let mut dirty = clean.clone();
    // Garbage beyond the end of row 0: mel, noise, text and reference.
    dirty.mel[40 * N_MELS..90 * N_MELS].fill(77.0);
    dirty.noise[40 * N_MELS..90 * N_MELS].fill(-55.0);
    dirty.ids[7..12].fill(3);
    if let Some(reference) = &mut dirty.reference {
        reference.mel[28 * N_MELS..30 * N_MELS].fill(33.0);
    }
    assert_close(&losses(&voice, &dirty, totals), &losses(&voice, &clean, totals), 1e-5, "garbage");
}

#[test]
fn a_batch_in_micro_batches_has_the_gradient_of_the_whole() {
    let learner = Learner::new(&config(true), &TrainConfig::default(), &Device::flex());
    let batch = inputs(&[(7, 40), (12, 90), (5, 33), (9, 64), (3, 20)], 0, true);
    let (wanted_values, wanted) = learner.gradients(&batch.clone().upload(&learner.input_shape(), learner.device()), 1);
    let wanted_values: Vec<f32> = wanted_values.into_data().try_into_vec().expect("single precision");
    let wanted = wanted.export(learner.model());
    for parts in [2, 3, 5] {
        let (values, grads) = learner.gradients(&batch.clone().upload(&learner.input_shape(), learner.device()), parts);
        let values: Vec<f32> = values.into_data().try_into_vec().expect("single precision");
        assert_close(&values, &wanted_values, 1e-5, "losses");
        let worst = largest_difference(&grads.export(learner.model()), &wanted);
        assert!(worst < 1e-5, "{parts} parts: {worst}");
    }
}

/// Relative to the norm of each gradient; those that are 0 but for rounding are skipped.
fn largest_difference(a: &Tensors, b: &Tensors) -> f64 {
    let norm = |tensor: &HostTensor| tensor.values.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
    assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>());
    let all: f64 = b.values().map(norm).max_by(f64::total_cmp).expect("gradients");
    (a.iter())
        .map(|(name, a)| {
            let b = &b[name];
            let difference: f64 = a.values.iter().zip(&b.values).map(|(a, b)| f64::from(a - b).powi(2)).sum();
            difference.sqrt() / norm(b).max(1e-4 * all)
        })
        .max_by(f64::total_cmp)
        .expect("gradients")
}

#[test]
fn gradient_checkpointing_gives_equal_gradients() {
    let settings = TrainConfig::default();
    let mut kept = settings.clone();
    kept.model.gradient_checkpointing = true;
    let batch = inputs(&[(7, 40), (12, 90)], 0, true);
    let grads = |settings: &TrainConfig| {
        let learner = Learner::new(&config(true), settings, &Device::flex());
        learner.gradients(&batch.clone().upload(&learner.input_shape(), learner.device()), 1).1.export(learner.model())
    };
    assert_eq!(grads(&settings), grads(&kept), "to the bit");
}

#[test]
fn every_part_of_the_model_has_a_gradient() {
    for reference in [false, true] {
        let learner = Learner::new(&config(reference), &TrainConfig::default(), &Device::flex());
        let (_, grads) = learner
            .gradients(&inputs(&[(7, 40), (12, 90)], 0, reference).upload(&learner.input_shape(), learner.device()), 1);
        let grads = grads.export(learner.model());
        for info in weights::parameters(learner.model()) {
            let grad = grads.get(&info.name).unwrap_or_else(|| panic!("{} has no gradient", info.name));
            assert_eq!(grad.shape, info.shape);
            assert!(grad.values.iter().all(|x| x.is_finite()), "{} has a gradient that is no number", info.name);
            let largest = grad.values.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            // A softmax does not feel what is added to all keys.
            assert!(largest > 0.0 || info.name.ends_with("key.bias"), "{} is not learned", info.name);
        }
    }
}

#[test]
fn a_dry_run_changes_nothing() {
    let settings = TrainConfig::default();
    let rows = inputs(&[(7, 40), (12, 90)], 0, true);
    let run = |dry_runs: usize| {
        let mut learner = Learner::new(&config(true), &settings, &Device::flex());
        let batch = rows.clone().upload(&learner.input_shape(), learner.device());
        let mut records = Vec::new();
        for _ in 0..3 {
            for _ in 0..dry_runs {
                learner.allocate();
                assert!(learner.dry_run(&batch, 2));
            }
            let ready = Ready { cursor: Cursor::START, clips: vec![0], seconds: 1.0, inputs: batch.clone() };
            records.push(learner.step(ready));
        }
        let values: Vec<f64> = StepRecord::read(&records).into_iter().map(|values| values.loss).collect();
        (values, weights::export(learner.model()), learner.optimizer_state())
    };
    assert_eq!(run(0), run(2), "to the bit");
}

#[test]
fn steps_lower_the_loss_and_repeat_to_the_bit() {
    let mut settings = TrainConfig::default();
    settings.model.prior_steps = 5;
    settings.optimizer.lr = LearningRate { peak: 2e-3, warmup: 3, schedule: Schedule::Constant };
    let run = || {
        let mut learner = Learner::new(&config(true), &settings, &Device::flex());
        let batch = inputs(&[(7, 40), (12, 90), (5, 33), (9, 64)], 0, true);
        let records: Vec<StepRecord> = (0..25)
            .map(|_| {
                let (cursor, inputs) = (Cursor::START, batch.clone());
                let inputs = inputs.upload(&learner.input_shape(), learner.device());
                learner.step(Ready { cursor, clips: vec![0], seconds: 1.0, inputs })
            })
            .collect();
        StepRecord::read(&records).into_iter().map(|values| values.loss).collect::<Vec<f64>>()
    };
    let first = run();
    assert_eq!(first, run());
    assert!(first[24] < 0.7 * first[0], "{first:?}");
}
