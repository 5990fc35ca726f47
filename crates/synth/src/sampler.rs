//! From text to mel: predicted durations, then the flow from noise to mel, an ordinary differential equation that is
//! solved in a few steps.

use std::fmt;
use std::str::FromStr;

use tandem_flow::Random;
use tandem_model::burn::tensor::{Tensor, TensorData};
use tandem_model::{Conditioning, Inputs, MIN_FRAMES, PitchInputs, ReferenceInputs, SIGMA_MIN, TextInputs, Voice};

/// How the flow is integrated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Solver {
    /// One evaluation of the decoder a step.
    Euler,
    /// Two evaluations a step: the velocity in the middle of it.
    Midpoint,
}

impl fmt::Display for Solver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Solver::Euler => "euler",
            Solver::Midpoint => "midpoint",
        })
    }
}

impl FromStr for Solver {
    type Err = String;

    fn from_str(text: &str) -> Result<Solver, String> {
        match text {
            "euler" => Ok(Solver::Euler),
            "midpoint" => Ok(Solver::Midpoint),
            _ => Err(format!("no solver `{text}`: euler or midpoint")),
        }
    }
}

/// How a text is synthesized.
#[derive(Clone, Copy, Debug)]
pub struct SynthesisSettings {
    /// Steps of the solver.
    pub steps: usize,
    /// The solver.
    pub solver: Solver,
    /// How much of the mel the flow makes, 0 to 1: it starts at timestep `1 - temperature`, from the mean mel with that much
    /// noise in it, as a point of the path between noise and mel. At 0 there is no flow and the mean mel is what is heard:
    /// clear, but flat; at 1 the flow starts from noise alone, as varied as the corpus.
    pub temperature: f32,
    /// 2 is twice as fast.
    pub speed: f32,
    /// Another seed gives another take.
    pub seed: u64,
}

impl Default for SynthesisSettings {
    fn default() -> Self {
        // Measured on a real speaker after 1,000 steps: WER 17 % at 0, 20 % from t = 0.5, 22 % from noise
        // (benches/results/quality.md).
        SynthesisSettings { steps: 10, solver: Solver::Euler, temperature: 0.0, speed: 1.0, seed: 1 }
    }
}

/// Mels of a batch of texts.
#[derive(Clone, Debug)]
pub struct SampledMel {
    /// Normalized log-mel, `rows * frames * n_mels`.
    pub mel: Vec<f32>,
    /// Frames of each row, padding included.
    pub frames: usize,
    /// Frames of each token, for each row.
    pub durations: Vec<Vec<u32>>,
    /// Pitch of each frame in Hz, `rows * frames`, 0 where there is none.
    pub pitch: Vec<f32>,
}

/// How the rows of a batch differ from each other: each has its own speed and seed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Take {
    /// 2 is twice as fast.
    pub speed: f32,
    /// Another seed gives another take.
    pub seed: u64,
}

/// Synthesizes the mels of texts. With `durations`, each token lasts as long as given; without, as long as predicted.
pub fn sample_mel(
    voice: &Voice,
    text: &TextInputs,
    reference: Option<&ReferenceInputs>,
    durations: Option<Vec<Vec<u32>>>,
    settings: SynthesisSettings,
) -> SampledMel {
    let take = Take { speed: settings.speed, seed: settings.seed };
    sample(voice, text, reference, durations, None, &vec![take; text.lengths.len()], settings)
}

/// The same with a speed and a seed for each row.
pub(crate) fn sample_takes(
    voice: &Voice,
    text: &TextInputs,
    reference: Option<&ReferenceInputs>,
    takes: &[Take],
    settings: SynthesisSettings,
) -> SampledMel {
    sample(voice, text, reference, None, None, takes, settings)
}

/// Synthesizes the texts of clips with the prosody of their recordings: these durations, and the pitch of the clips. What is left
/// of the distance to the recordings is the decoder's.
pub(crate) fn sample_mel_as_recorded(
    voice: &Voice,
    inputs: &Inputs,
    durations: Vec<Vec<u32>>,
    settings: SynthesisSettings,
) -> SampledMel {
    let take = Take { speed: settings.speed, seed: settings.seed };
    let takes = vec![take; inputs.text.lengths.len()];
    sample(voice, &inputs.text, inputs.reference.as_ref(), Some(durations), Some(&inputs.pitch), &takes, settings)
}

fn sample(
    voice: &Voice,
    text: &TextInputs,
    reference: Option<&ReferenceInputs>,
    durations: Option<Vec<Vec<u32>>>,
    pitch: Option<&PitchInputs>,
    takes: &[Take],
    settings: SynthesisSettings,
) -> SampledMel {
    let encoded = voice.encode(text, reference);
    let [rows, tokens, _] = encoded.features.dims();
    let durations = durations.unwrap_or_else(|| {
        let predicted = voice.log_durations(&encoded, text).into_data();
        let predicted = predicted.try_into_vec::<f32>().expect("durations are single precision");
        round_durations(&predicted, &text.lengths, tokens, takes)
    });
    let longest = durations.iter().map(|row| row.iter().sum::<u32>() as usize).max().unwrap_or(0);
    let frames = longest.max(1).next_multiple_of(voice.group());
    let on = voice.expand(&encoded, &durations, pitch, frames);
    let n_mels = on.mean.dims()[2];
    let mut x = on.mean.clone();
    let temperature = f64::from(settings.temperature.clamp(0.0, 1.0));
    if temperature > 0.0 {
        let mut noise = vec![0.0; rows * frames * n_mels];
        // By seed alone: what a text sounds like must not depend on its place in a batch.
        for (noise, take) in noise.chunks_mut(frames * n_mels).zip(takes) {
            Random::at(&[take.seed]).fill_normal(noise);
        }
        let noise = Tensor::from_data(TensorData::new(noise, [rows, frames, n_mels]), &x.device());
        x = x.mul_scalar(1.0 - temperature) + noise.mul_scalar(temperature);
        x = integrate(voice, x, 1.0 - temperature, &on, settings);
    }
    let mel = x.into_data().try_into_vec::<f32>().expect("mels are single precision");
    let pitch = on.pitch.hz().into_iter().flat_map(|hz| std::iter::repeat_n(hz, voice.group())).collect();
    SampledMel { mel, frames, durations, pitch }
}

/// Follows the flow from `x` at timestep `start` to 1.
fn integrate(voice: &Voice, mut x: Tensor<3>, start: f64, on: &Conditioning, settings: SynthesisSettings) -> Tensor<3> {
    let steps = settings.steps.max(1);
    let size = (1.0 - start) / steps as f64;
    for step in 0..steps {
        let t = start + step as f64 * size;
        let slope = match settings.solver {
            Solver::Euler => velocity(voice, x.clone(), t, on),
            Solver::Midpoint => {
                let halfway = x.clone() + velocity(voice, x.clone(), t, on).mul_scalar(0.5 * size);
                velocity(voice, halfway, t + 0.5 * size, on)
            }
        };
        x = x + slope.mul_scalar(size);
    }
    x
}

/// The velocity of the flow where the decoder sees `x1` behind `x_t`: `x1 - (1 - sigma_min) x0`, with the `x0` that lies
/// on the same path.
fn velocity(voice: &Voice, x_t: Tensor<3>, t: f64, on: &Conditioning) -> Tensor<3> {
    let x1 = voice.denoise(x_t.clone(), t as f32, on);
    let noise_share = 1.0 - (1.0 - SIGMA_MIN) * t;
    let x0 = (x_t - x1.clone().mul_scalar(t)).div_scalar(noise_share);
    x1 - x0.mul_scalar(1.0 - SIGMA_MIN)
}

/// Rounds so that errors do not add up: each token ends where the true sum of what came before says.
fn round_durations(predicted: &[f32], lengths: &[usize], tokens: usize, takes: &[Take]) -> Vec<Vec<u32>> {
    (predicted.chunks(tokens).zip(lengths).zip(takes))
        .map(|((row, &length), take)| {
            let (mut sum, mut given) = (0.0f64, 0u32);
            row[..length]
                .iter()
                .map(|&value| {
                    sum += f64::from(value.clamp(-5.0, 7.0)).exp() / f64::from(take.speed);
                    let frames = ((sum - f64::from(given)).round() as u32).max(MIN_FRAMES as u32);
                    given += frames;
                    frames
                })
                .collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_keeps_the_sum() {
        let logs: Vec<f32> = (0..40).map(|_| 3.4f32.ln()).collect();
        let at = |speed: f32| [Take { speed, seed: 1 }];
        let rounded = round_durations(&logs, &[40], 40, &at(1.0));
        assert_eq!(rounded[0].iter().sum::<u32>(), 136, "40 times 3.4");
        assert!(rounded[0].iter().all(|&frames| frames == 3 || frames == 4));
        assert_eq!(
            round_durations(&logs, &[20], 40, &at(0.5))[0].iter().sum::<u32>(),
            136,
            "half the tokens at half speed"
        );
        assert!(round_durations(&logs, &[40], 40, &at(10.0))[0].iter().all(|&frames| frames as usize >= MIN_FRAMES));
    }
}
