//! Ranks that train on simulated devices: a step takes a fixed time, and gradients as large as those of a model are really added up
//! over MPI. What a step really takes is printed as one JSON object by rank 0; `tandem simulate --world` predicts it.
//!
//! ```text
//! mpirun -n 4 simulated_ranks --step-ms 50 --steps 40 --size tiny
//! ```
//! Without a launcher it is one rank. `--parameters N` takes a model of so many parameters instead.
//!
//! A step is a sleep, in the middle of which gradients become available, each at the moment at which it did in a real step: rank 0 does a forward and
//! a backward pass of the real model on the CPU first, on a batch of noise, and what share of that step had passed when each gradient was complete is what is played
//! back. (A GPU may take other shares for the same operations; their order is that of the real model.) With `--parameters` there is no real model:
//! gradients come evenly over the last two thirds, the last matrix first. With `--at-once` all of them come at the end, as if nothing overlapped.

use std::time::{Duration, Instant};

use burn::tensor::{Tensor, TensorData};
use serde_json::json;
use tandem_flow::{Cursor, Random};
use tandem_model::{Device, HostInputs, ModelConfig, Size, weights};
use tandem_train::reduce::{Agreed, Launched, Reduce, SingleProcess, Vote, mpi::Session};
use tandem_train::{Grads, Learner, TrainConfig, memory};

const VOCABULARY: usize = 81;
const N_MELS: usize = 80;
/// Parameters of a made-up model lie in so many matrices.
const MATRICES: usize = 40;
/// Loss terms.
const TERMS: usize = 4;
/// Gradients that are due within this time come together.
const COARSE: Duration = Duration::from_micros(200);
/// Steps that do not count.
const WARM_UP: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // As the program does: fresh pages for every step would cost more than the sums.
    memory::keep_freed_blocks();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| arguments.iter().position(|word| word == name).and_then(|at| arguments.get(at + 1));
    let number = |name: &str, otherwise: f64| value(name).map_or(Ok(otherwise), |text| text.parse());
    let (step_ms, steps) = (number("--step-ms", 1.0)?, number("--steps", 3.0)? as usize);
    let at_once = arguments.iter().any(|word| word == "--at-once");
    let session = Launched::from_env(|name| std::env::var(name).ok()).map(Session::start).transpose()?;
    let size = value("--size").map_or(Ok(Size::Smoke), |size| size.parse())?;
    let shapes = match value("--parameters") {
        Some(count) => vec![Some([count.parse::<usize>()? / MATRICES, 1]); MATRICES],
        None => shapes_of(size),
    };
    let mut reduce: Box<dyn Reduce> = match &session {
        Some(session) => Box::new(session.clone()),
        None => Box::new(SingleProcess),
    };
    let own = match (reduce.rank(), value("--parameters")) {
        (0, None) => times_of(size),
        (0, Some(_)) => (0..MATRICES).rev().map(|n| (n, 1.0 - 2.0 / 3.0 * n as f64 / MATRICES as f64)).collect(),
        _ => Vec::new(),
    };
    let shared = reduce.gather(&serde_json::to_vec(&own)?)?;
    let mut times: Vec<(usize, f64)> = serde_json::from_slice(&shared[0])?;
    let order: Vec<usize> = times.iter().map(|(index, _)| *index).collect();
    let first = times.first().map_or(1.0, |(_, share)| *share);
    if at_once {
        times.clear();
    }
    let step = Duration::from_secs_f64(step_ms / 1e3);
    let device = Device::flex();
    let (mut periods, mut votes, mut sums) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..WARM_UP + steps {
        // What a backward pass leaves, made outside of what is measured.
        let mut gradients = gradients(&shapes, reduce.rank() as f32 + 1.0).into_inner();
        let cursor = Cursor { epoch: 0, batch: number as u64 };
        // All are here before the clock starts: what is made above is no part of a step.
        reduce.gather(&[0])?;
        let began = Instant::now();
        let vote = Vote { step: number as u64, cursor, clips: 1, micro_batches: 1, ..Vote::default() };
        Agreed::of(&reduce.agree(&vote)?)?;
        let voted = Instant::now();
        let mut summing = reduce.begin(TERMS, shapes.clone(), &order, &device);
        for &(index, share) in &times {
            sleep_until(voted + step.mul_f64(share), COARSE);
            if let Some(gradient) = gradients[index].take() {
                summing.add(index, gradient);
            }
        }
        sleep_until(voted + step, Duration::ZERO);
        let trained = Instant::now();
        let summed = summing.finish(Tensor::zeros([TERMS], &device), Grads::of(gradients))?;
        let ended = Instant::now();
        check(summed.grads, reduce.world());
        if number >= WARM_UP {
            periods.push(1e3 * (ended - began).as_secs_f64());
            votes.push(1e3 * (voted - began).as_secs_f64());
            sums.push(1e3 * (ended - trained).as_secs_f64());
        }
    }
    // Of the slowest rank, as for the plain call that it is compared with.
    let all = reduce.gather(&serde_json::to_vec(&median(&sums))?)?;
    let sum_ms = all.iter().filter_map(|own| serde_json::from_slice(own).ok()).fold(0.0, f64::max);
    if reduce.rank() == 0 {
        let bytes: usize = shapes.iter().flatten().map(|[rows, columns]| 4 * rows * columns).sum();
        let library = session.as_ref().map(|session| session.version().to_owned());
        let report = json!({"world": reduce.world(), "library": library, "gradient_bytes": bytes, "step_ms": step_ms,
            "steps": steps, "period_ms": median(&periods), "vote_ms": median(&votes), "sum_ms": sum_ms,
            "copy_ms": copy_ms(&shapes), "overlaps": !at_once, "huge_mb": memory::huge_bytes().map(|bytes| bytes as f64 / 1e6), "backward": 1.0 - first, "exposed": 1.0 - step_ms / median(&periods)});
        println!("{report}");
    }
    if let Some(session) = &session {
        session.leave()?;
    }
    Ok(())
}

/// Sleeps, unless it is soon.
fn sleep_until(moment: Instant, soon: Duration) {
    let left = moment.saturating_duration_since(Instant::now());
    if left > soon {
        std::thread::sleep(left);
    }
}

/// When gradients of a real step are complete, in shares of it; the later ones last.
fn times_of(size: Size) -> Vec<(usize, f64)> {
    let config = ModelConfig::new(size, VOCABULARY, N_MELS, false).without_flow();
    let learner = Learner::new(&config, &TrainConfig::default(), &Device::flex());
    let inputs = noise(&config).upload(&learner.input_shape(), learner.device());
    // The first one warms up.
    learner.gradient_times(&inputs);
    let mut times = learner.gradient_times(&inputs);
    times.sort_by(|a, b| a.1.total_cmp(&b.1));
    times
}

/// Clips of four seconds.
fn noise(config: &ModelConfig) -> HostInputs {
    let (rows, tokens, frames) = (4, 60, 344);
    let mut random = Random::at(&[1]);
    let mut inputs = HostInputs {
        rows,
        tokens,
        frames,
        n_mels: N_MELS,
        ids: (0..rows * tokens).map(|_| 1 + random.below(config.vocabulary - 1) as i32).collect(),
        id_lengths: vec![tokens; rows],
        mel: vec![0.0; rows * frames * N_MELS],
        mel_lengths: vec![frames; rows],
        pitch: vec![150.0; rows * frames],
        noise: vec![0.0; rows * frames * N_MELS],
        timesteps: vec![0.5; rows],
        seeds: (0..rows as u64).collect(),
        ..HostInputs::default()
    };
    random.fill_normal(&mut inputs.mel);
    inputs
}

/// The parameters of a model of this size.
fn shapes_of(size: Size) -> Vec<Option<[usize; 2]>> {
    let config = ModelConfig::new(size, VOCABULARY, N_MELS, false).without_flow();
    let learner = Learner::new(&config, &TrainConfig::default(), &Device::flex());
    weights::parameters(learner.model()).iter().map(|parameter| Some([parameter.count, 1])).collect()
}

fn gradients(shapes: &[Option<[usize; 2]>], value: f32) -> Grads {
    let gradient = |[rows, columns]: [usize; 2]| {
        let values = vec![value; rows * columns];
        Tensor::<2>::from_data(TensorData::new(values, [rows, columns]), &Device::flex())
    };
    Grads::of(shapes.iter().map(|shape| shape.map(gradient)).collect())
}

/// Milliseconds of copying all gradients out of tensors and back, as it is done on both sides of a sum.
fn copy_ms(shapes: &[Option<[usize; 2]>]) -> f64 {
    let device = Device::flex();
    let times = (0..9).map(|round| {
        let matrices = gradients(shapes, round as f32).into_inner();
        let began = Instant::now();
        let vectors =
            matrices.iter().flatten().map(|matrix| matrix.clone().reshape([matrix.dims()[0] * matrix.dims()[1]]));
        let values: Vec<f32> =
            Tensor::<1>::cat(vectors.collect(), 0).into_data().try_into_vec().expect("single precision");
        let mut at = 0;
        let back: Vec<Tensor<2>> = (shapes.iter().flatten())
            .map(|[rows, columns]| {
                let own = at..at + rows * columns;
                at = own.end;
                Tensor::from_data(TensorData::new(values[own].to_vec(), [*rows, *columns]), &device)
            })
            .collect();
        std::hint::black_box(back);
        1e3 * began.elapsed().as_secs_f64()
    });
    median(&times.collect::<Vec<f64>>())
}

/// 1 + 2 + … of all ranks.
fn check(grads: Grads, world: usize) {
    let expected = (world * (world + 1) / 2) as f32;
    for gradient in grads.into_inner() {
        let values = gradient.expect("a gradient").into_data().try_into_vec::<f32>().expect("single precision");
        assert!(values.iter().all(|value| *value == expected), "{} instead of {expected}", values[0]);
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
