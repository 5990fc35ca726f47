//! The GPU code on real Vulkan devices, played by the CPU: what is learned is the same as on the CPU.

mod common;

use common::{config, inputs, software_gpus};
use tandem_audio::MelSettings;
use tandem_flow::{Cursor, Random};
use tandem_model::kernels::Stft;
use tandem_model::weights::{self, Tensors};
use tandem_model::{Device, HostVocoderInputs, InputShape, NeuralVocoder, Size, VocoderConfig, Voice};
use tandem_synth::{SynthesisSettings, sample_mel};
use tandem_train::task::Vocoder;
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
        assert_same_gradients(&name, &grads.export(learner.model()), &wanted_grads);
    }
}

fn assert_same_gradients(device: &str, found: &Tensors, wanted: &Tensors) {
    assert_eq!(found.len(), wanted.len());
    for (parameter, grad) in found {
        let wanted = &wanted[parameter];
        let norm = wanted.values.iter().map(|x| x * x).sum::<f32>().sqrt().max(1e-6);
        let off = grad.values.iter().zip(&wanted.values).map(|(a, b)| (a - b) * (a - b)).sum::<f32>().sqrt();
        assert!(off < 1e-2 * norm.max(1e-3), "{device}: gradient of {parameter}: off by {off} of {norm}");
    }
}

/// A hop that does not divide the frame, and a window that is shorter than it.
const STFT: Stft = Stft { n_fft: 256, hop: 60, win_length: 200 };

/// A vocoder whose last layer is not zero: otherwise no gradient reaches the others.
fn vocoder_learner(device: &Device) -> Learner<Vocoder> {
    let config = VocoderConfig::new(Size::Smoke, 20, STFT);
    let mel = MelSettings {
        n_fft: STFT.n_fft,
        hop_length: STFT.hop,
        win_length: STFT.win_length,
        n_mels: 20,
        ..MelSettings::default()
    };
    let mut tensors = weights::export(&NeuralVocoder::new(&config, 1, &Device::flex()));
    let output = tensors.get_mut("output.weight").expect("a layer");
    Random::new(3).fill_normal(&mut output.values);
    output.values.iter_mut().for_each(|value| *value *= 0.03);
    let task = Vocoder::of(config, &mel).expect("valid");
    let mut learner = Learner::with_task(task, &TrainConfig::default(), device);
    learner.warm_start(&tensors).expect("its own names");
    learner
}

/// Two segments, the second one shorter; long enough for the longest transform of the loss.
fn segments() -> HostVocoderInputs {
    let (frames, bins) = (48, STFT.bins());
    let mut random = Random::new(9);
    let mut padded = |width: usize| {
        let mut values = vec![0.0; 2 * frames * width];
        random.fill_normal(&mut values[..(frames + 30) * width]);
        values
    };
    let (features, harmonic, noise) = (padded(22), padded(2 * bins), padded(2 * bins));
    let mut waveform = vec![0.0; 2 * STFT.samples(frames)];
    random.fill_normal(&mut waveform);
    HostVocoderInputs { rows: 2, frames, lengths: vec![frames, 30], features, harmonic, noise, waveform }
}

/// The transforms as matrix products on the device, beside the operations of the CPU: waveform, losses and gradients.
#[test]
fn a_software_gpu_transforms_as_the_cpu_does() {
    let run = |device: &Device| {
        let mut learner = vocoder_learner(device);
        let inputs = || segments().upload(learner.device());
        let waveform =
            learner.model().synthesize(&inputs()).into_data().try_into_vec::<f32>().expect("single precision");
        let (_, grads) = learner.gradients(&inputs(), 1);
        let grads = grads.export(learner.model());
        let records: Vec<StepRecord> = (0..2)
            .map(|batch| {
                let inputs = segments().upload(learner.device());
                learner.step(Ready { cursor: Cursor { epoch: 0, batch }, clips: vec![0, 1], seconds: 1.0, inputs })
            })
            .collect();
        let losses: Vec<Vec<f64>> = StepRecord::read(&records).into_iter().map(|values| values.terms).collect();
        (waveform, grads, losses)
    };
    let (waveform, grads, losses) = run(&Device::flex());
    let loudest = waveform.iter().map(|x| x.abs()).max_by(f32::total_cmp).expect("values");
    assert!(losses[0].iter().all(|term| *term > 0.0) && loudest > 0.1 && loudest.is_finite(), "{losses:?} {loudest}");
    for (name, device) in software_gpus() {
        let (found_waveform, found_grads, found_losses) = run(&device);
        let off =
            found_waveform.iter().zip(&waveform).map(|(a, b)| (a - b).abs()).max_by(f32::total_cmp).expect("values");
        println!("{name}: waveform {off} off of {loudest}");
        assert!(found_waveform.len() == waveform.len() && off < 1e-4 * loudest, "{name}: {off} of {loudest}");
        assert_same_gradients(&name, &found_grads, &grads);
        for (gpu, cpu) in found_losses.iter().flatten().zip(losses.iter().flatten()) {
            assert!((gpu - cpu).abs() < 1e-4 * cpu.abs(), "{name}: {gpu} {cpu}");
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
        let off = found.mel.iter().zip(&wanted.mel).map(|(a, b)| (a - b).abs()).max_by(f32::total_cmp).expect("values");
        println!("{name}: {off} off");
        assert!(found.mel.len() == wanted.mel.len() && off < 1e-3, "{name}: {off}");
    }
}
