//! The smallest voice on the CPU: its parameters, the shapes of a batch, its losses, and what it says untrained.
//!
//!     cargo run --release -p tandem-model --no-default-features --example shapes

use std::collections::BTreeMap;

use tandem_flow::Random;
use tandem_model::{Device, HostInputs, InputShape, Losses, ModelConfig, Size, Totals, Voice, weights};

fn main() {
    let (vocabulary, n_mels) = (40, 80);
    let config = ModelConfig::new(Size::Smoke, vocabulary, n_mels, false);
    let shape = InputShape::new(&config);
    let device = Device::flex();
    let voice = Voice::new(&config, 1, &device);
    let mut parts: BTreeMap<String, usize> = BTreeMap::new();
    for parameter in weights::parameters(&voice) {
        let part = parameter.name.split('.').next().unwrap_or_default().to_owned();
        *parts.entry(part).or_default() += parameter.count;
    }
    println!("{} parameters: {parts:?}", parts.values().sum::<usize>());

    // Two clips of noise, the second shorter than the first: what is beyond its length stays 0.
    let (id_lengths, mel_lengths) = (vec![12, 9], vec![96, 70]);
    let (rows, tokens, frames) = (2, 12, 96);
    let totals = Totals::new(&mel_lengths, &id_lengths);
    let mut random = Random::new(1);
    let (mut ids, mut mel) = (vec![0; rows * tokens], vec![0.0; rows * frames * n_mels]);
    for row in 0..rows {
        ids[row * tokens..][..id_lengths[row]].fill_with(|| 1 + random.below(vocabulary - 1) as i32);
        random.fill_normal(&mut mel[row * frames * n_mels..][..mel_lengths[row] * n_mels]);
    }
    let (pitch, noise) = (vec![120.0; rows * frames], mel.clone());
    let (timesteps, seeds, reference) = (vec![0.3, 0.7], vec![1, 2], None);
    let inputs = HostInputs {
        rows,
        tokens,
        frames,
        n_mels,
        ids,
        id_lengths,
        mel,
        mel_lengths,
        pitch,
        durations: Vec::new(),
        noise,
        timesteps,
        seeds,
        reference,
    };
    println!("a batch of {} bytes on the device", inputs.device_bytes(&shape));
    let inputs = inputs.upload(&shape, &device);
    let noise = &inputs.flow.as_ref().expect("a model with a flow-matching decoder").noise;
    println!("text {:?}, mel {:?}, noise {:?}", inputs.text.ids.dims(), inputs.mel.values.dims(), noise.dims());

    let (losses, durations) = voice.losses(&inputs, totals, 1.0, false);
    let values = losses.values().into_data().try_into_vec::<f32>().expect("losses are single precision");
    for (name, value) in Losses::NAMES.iter().zip(values) {
        println!("loss {name}: {value:.3}");
    }
    println!("frames of each token: {durations:?}");
    let encoded = voice.encode(&inputs.text, None);
    let on = voice.expand(&encoded, &durations, Some(&inputs.pitch), frames);
    let x1 = voice.denoise(noise.clone(), 0.0, &on);
    println!("denoises {:?} to {:?}", noise.dims(), x1.dims());
}
