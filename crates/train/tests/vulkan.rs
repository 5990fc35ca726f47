//! The GPU code on real Vulkan devices, played by the CPU: what is learned is the same as on the CPU.

mod common;

use common::{config, inputs, software_gpus};
use tandem_flow::Cursor;
use tandem_model::{Device, InputShape, Voice};
use tandem_synth::{SynthesisSettings, sample_mel};
use tandem_train::{Learner, Ready, StepRecord, TrainConfig};

fn ready(learner: &Learner, batch: u64) -> Ready {
    let inputs = inputs(&[(7, 40), (12, 60)], 0, true).upload(&learner.input_shape(), learner.device());
    Ready { cursor: Cursor { epoch: 0, batch }, clips: vec![0, 1], seconds: 1.0, inputs }
}

fn steps(device: &Device, count: u64) -> (Vec<f64>, Learner) {
    let mut learner = Learner::new(&config(true), &TrainConfig::default(), device);
    assert_eq!(learner.misplaced(), [""; 0], "SPEC D4, after building");
    let records: Vec<StepRecord> = (0..count).map(|batch| learner.step(ready(&learner, batch))).collect();
    assert_eq!(learner.misplaced(), [""; 0], "SPEC D4, with the optimizer state");
    (StepRecord::read(&records).iter().map(|values| values.loss).collect(), learner)
}

#[test]
fn a_software_gpu_learns_what_the_cpu_learns() {
    let (wanted, on_cpu) = steps(&Device::flex(), 3);
    let batch = inputs(&[(7, 40), (12, 60)], 0, true);
    let (_, wanted_grads) = on_cpu.gradients(&batch.clone().upload(&on_cpu.input_shape(), on_cpu.device()), 1);
    let wanted_grads = wanted_grads.export(on_cpu.model());
    for (name, device) in software_gpus() {
        let (losses, learner) = steps(&device, 3);
        let elsewhere = learner.not_on(&Device::flex());
        assert!(elsewhere.len() > 100 && elsewhere.contains(&"the optimizer state".to_owned()), "{elsewhere:?}");
        for (gpu, cpu) in losses.iter().zip(&wanted) {
            assert!((gpu - cpu).abs() < 1e-4 * cpu.abs(), "{name}: {gpu} {cpu}");
        }
        let (_, grads) = learner.gradients(&batch.clone().upload(&learner.input_shape(), learner.device()), 1);
        assert!(grads.devices().all(|at| at == device), "SPEC D4: gradients are where the model is");
        for (parameter, grad) in grads.export(learner.model()) {
            let wanted = &wanted_grads[&parameter];
            let norm = wanted.values.iter().map(|x| x * x).sum::<f32>().sqrt().max(1e-6);
            let off = grad.values.iter().zip(&wanted.values).map(|(a, b)| (a - b) * (a - b)).sum::<f32>().sqrt();
            assert!(off < 1e-2 * norm.max(1e-3), "{name}: gradient of {parameter}: off by {off} of {norm}");
        }
    }
}

/// SPEC D4, D5: what is not on the model's device is refused, not copied on the way.
#[test]
fn a_batch_on_another_device_is_refused() {
    for (_, device) in software_gpus().into_iter().take(1) {
        let mut learner = Learner::new(&config(true), &TrainConfig::default(), &Device::flex());
        let mut foreign = ready(&learner, 0);
        let mel = &mut foreign.inputs.mel.values;
        *mel = mel.clone().inner().to_device(&device).autodiff();
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| learner.step(foreign)));
        let panic = caught.expect_err("refused");
        let text =
            panic.downcast_ref::<&str>().map(|text| (*text).to_owned()).or(panic.downcast_ref::<String>().cloned());
        assert!(text.is_some_and(|text| text.contains("not on the model's device")));
    }
}

/// SPEC V8.
#[test]
fn a_software_gpu_synthesizes_what_the_cpu_synthesizes() {
    let voice = |device: &Device| Voice::new(&config(true), 3, device);
    let host = inputs(&[(40, 300), (25, 160)], 0, true);
    let settings = SynthesisSettings { temperature: 0.7, ..SynthesisSettings::default() };
    let sample = |device: &Device| {
        let inputs = host.clone().upload(&InputShape::new(&config(true)), device);
        sample_mel(&voice(device), &inputs.text, inputs.reference.as_ref(), None, settings)
    };
    let wanted = sample(&Device::flex());
    for (name, device) in software_gpus() {
        let found = sample(&device);
        assert_eq!(found.durations, wanted.durations, "{name}");
        let off = found.mel.iter().zip(&wanted.mel).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        println!("{name}: {off} off");
        assert!(found.mel.len() == wanted.mel.len() && off < 1e-3, "{name}: {off}");
    }
}
