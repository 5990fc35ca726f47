//! How long synthesis takes, the acoustic part and the vocoder apart, as real-time factors (seconds of work for a second of
//! speech; below 1 is faster than real time).
//!
//! ```text
//! cargo bench -p tandem-cli --bench synthesis -- SIZE SENTENCES     prints a table, then RESULT and a JSON object
//! ```
//! Untrained weights: what is computed does not depend on what was learned. An untrained voice predicts about five frames
//! a token, as a trained one does.

use std::time::Instant;

use serde_json::json;
use tandem_audio::{MelSettings, MelStats, Processing};
use tandem_flow::Random;
use tandem_model::{Device, InputShape, ModelConfig, Size, TextInputs, Voice};
use tandem_synth::{Bundle, SynthesisSettings, Synthesizer, sample_mel};
use tandem_train::memory;

/// Tokens of a sentence: about five seconds.
const TOKENS: usize = 80;
const VOCABULARY: usize = 81;
/// Each is measured so often: the median, and the fastest, which other work on the machine disturbs least.
const ROUNDS: usize = 7;

fn main() {
    memory::keep_freed_blocks();
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [size, sentences] => run(size.parse().expect("a size"), sentences.parse().expect("a number")),
        [] => run(Size::Tiny, 8),
        _ => panic!("SIZE SENTENCES"),
    }
}

fn run(size: Size, sentences: usize) {
    let (mel, device) = (MelSettings::default(), Device::flex());
    let config = ModelConfig::new(size, VOCABULARY, mel.n_mels, false);
    let stats = MelStats { mean: vec![-5.0; mel.n_mels], std: vec![2.0; mel.n_mels] };
    let bundle = Bundle { config: config.clone(), mel: mel.clone(), processing: Processing::default(), stats };
    let synthesizer = Synthesizer::new(Voice::new(&config, 1, &device), bundle, &device);
    let mut random = Random::new(7);
    let texts: Vec<Vec<i32>> =
        (0..sentences).map(|_| (0..TOKENS).map(|_| 1 + random.below(VOCABULARY - 1) as i32).collect()).collect();
    let hop_seconds = mel.hop_length as f64 / f64::from(mel.sample_rate);
    let mut results = Vec::new();
    println!("size {size}, {sentences} sentences of {TOKENS} tokens; real-time factors");
    for (name, temperature) in [("mean decoder alone (the default)", 0.0), ("flow, 10 Euler steps", 0.667)] {
        let settings = SynthesisSettings { temperature, ..SynthesisSettings::default() };
        for batch in [1, sentences] {
            let mut acoustic = Vec::new();
            let mut vocoder = Vec::new();
            // The first round warms up.
            for round in 0..=ROUNDS {
                let (mut seconds, mut mel_time, mut wave_time) = (0.0, 0.0, 0.0);
                for texts in texts.chunks(batch) {
                    let started = Instant::now();
                    let text = upload(texts, &InputShape::new(&config), &device);
                    let sampled = sample_mel(synthesizer.model(), &text, None, None, settings);
                    mel_time += started.elapsed().as_secs_f64();
                    let started = Instant::now();
                    let speech = synthesizer.vocode_batch(sampled).expect("the default settings are valid");
                    wave_time += started.elapsed().as_secs_f64();
                    seconds += speech.iter().map(|speech| speech.frames as f64 * hop_seconds).sum::<f64>();
                }
                if round > 0 {
                    acoustic.push(mel_time / seconds);
                    vocoder.push(wave_time / seconds);
                }
            }
            let [acoustic, vocoder] = [acoustic, vocoder].map(Spread::of);
            println!("  {name:34} batch {batch:3}   acoustic {acoustic}   Griffin-Lim {vocoder}");
            results.push(json!({"what": name, "batch": batch, "acoustic_rtf": acoustic.median,
                "acoustic_rtf_fastest": acoustic.fastest, "griffin_lim_rtf": vocoder.median,
                "griffin_lim_rtf_fastest": vocoder.fastest}));
        }
    }
    println!("RESULT {}", json!({"size": size, "sentences": sentences, "tokens": TOKENS, "results": results}));
}

fn upload(texts: &[Vec<i32>], shape: &InputShape, device: &Device) -> TextInputs {
    TextInputs::new(texts.concat(), vec![TOKENS; texts.len()], texts.len(), TOKENS, shape, device)
}

/// Of some rounds.
struct Spread {
    median: f64,
    fastest: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Spread {
        values.sort_by(f64::total_cmp);
        Spread { median: values[values.len() / 2], fastest: values[0] }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.4} (fastest {:.4})", self.median, self.fastest)
    }
}
