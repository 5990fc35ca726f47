//! Whether a device computes what the CPU computes. Drivers exist that give wrong results without an error, crash, or
//! never come back; so a device is tried in a process of its own before a run depends on it.

use std::error::Error;
use std::fmt;
use std::io::{self, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use burn::tensor::module::conv1d;
use burn::tensor::ops::ConvOptions;
use burn::tensor::{Device, FloatDType, Tensor, TensorData};
use burn_signal::rfft;
use tandem_flow::Random;

use crate::wrong_result::WrongResult;

/// How far a result may be from the CPU's, relative to the largest value.
const TOLERANCE: f32 = 1e-3;
/// The same for half precision, from single precision on the same device.
const HALF_TOLERANCE: f32 = 1e-2;

/// Why a device did not pass the self-test in a process of its own.
#[derive(Debug)]
pub enum SelfTestError {
    /// The process could not be started.
    Start(io::Error),
    /// The process could not be waited for.
    Wait(io::Error),
    /// It failed, with these last words.
    Failed(String),
    /// The driver ended it.
    Crashed(ExitStatus),
    /// It had no answer in this time.
    TimedOut(Duration),
}

impl fmt::Display for SelfTestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SelfTestError::Start(error) => write!(f, "the self-test could not be started: {error}"),
            SelfTestError::Wait(error) => write!(f, "the self-test could not be waited for: {error}"),
            SelfTestError::Failed(words) => write!(f, "{words}"),
            SelfTestError::Crashed(status) => write!(f, "the driver crashed ({status})"),
            SelfTestError::TimedOut(patience) => write!(f, "no answer in {} s", patience.as_secs()),
        }
    }
}

impl Error for SelfTestError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            SelfTestError::Start(error) | SelfTestError::Wait(error) => Some(error),
            _ => None,
        }
    }
}

/// What an operation makes of a device's own tensors, brought to the host.
type Operation = fn(&Device) -> Vec<f32>;

/// The operations that a model and its features are made of.
const OPERATIONS: [(&str, Operation); 6] = [
    ("element-wise", |device| read((tensor([64, 65], 1, device).exp() * 0.5 + 1.0).log())),
    ("sum", |device| read(tensor([64, 257], 2, device).sum_dim(1))),
    ("matmul", |device| read(tensor([64, 96], 3, device).matmul(tensor([96, 80], 4, device)))),
    ("convolution", |device| {
        let input = tensor([2 * 8, 50], 5, device).reshape([2, 8, 50]);
        let weight = tensor([16 * 8, 3], 6, device).reshape([16, 8, 3]);
        let options = ConvOptions::new([1], [1], [1], 1);
        read(conv1d(input, weight, None, options).reshape([32, 50]))
    }),
    ("rfft", |device| {
        let (real, imaginary) = rfft(tensor([4, 256], 7, device), 1, None);
        read(Tensor::cat(vec![real, imaginary], 0))
    }),
    ("softmax", |device| read(burn::tensor::activation::softmax(tensor([32, 48], 8, device), 1))),
];

fn tensor(shape: [usize; 2], seed: u64, device: &Device) -> Tensor<2> {
    let mut values = vec![0.0; shape[0] * shape[1]];
    Random::new(seed).fill_normal(&mut values);
    Tensor::from_data(TensorData::new(values, shape), device)
}

fn read(tensor: Tensor<2>) -> Vec<f32> {
    tensor.into_data().try_into_vec::<f32>().expect("single precision")
}

/// Compares a device with the CPU, operation by operation. A driver may crash in it: see [`self_test_apart`].
pub fn self_test(device: &Device) -> Result<(), WrongResult> {
    let cpu = Device::flex();
    for (name, operation) in OPERATIONS {
        check(name, &operation(device), &operation(&cpu), TOLERANCE)?;
    }
    Ok(())
}

fn check(operation: &'static str, got: &[f32], wanted: &[f32], tolerance: f32) -> Result<(), WrongResult> {
    let error = largest_error(got, wanted);
    if error <= tolerance { Ok(()) } else { Err(WrongResult { operation, error }) }
}

/// How far values are from those that are wanted, relative to the largest of these; infinite if one is not a number, or if
/// there are more or fewer.
fn largest_error(got: &[f32], wanted: &[f32]) -> f32 {
    if got.len() != wanted.len() {
        return f32::INFINITY;
    }
    let largest = wanted.iter().fold(1e-6f32, |most, value| most.max(value.abs()));
    let errors = got.iter().zip(wanted).map(|(a, b)| (a - b).abs() / largest);
    // `max` alone prefers any number to one that is none.
    errors.fold(0.0, |most, error| if error.is_nan() { f32::INFINITY } else { most.max(error) })
}

/// Whether matmuls in half precision are near those in single precision, on a device that says that it has them.
pub fn half_test(device: &Device) -> Result<(), WrongResult> {
    let [a, b] = [(9, [48, 64]), (10, [64, 40])].map(|(seed, shape)| tensor(shape, seed, device));
    let half = a.clone().cast(FloatDType::F16).matmul(b.clone().cast(FloatDType::F16)).cast(FloatDType::F32);
    check("half precision", &read(half), &read(a.matmul(b)), HALF_TOLERANCE)
}

/// Runs `program` with `arguments`, which is to call [`self_test`] and to say why it failed on its standard error. One
/// that crashes or takes longer than `patience` has failed.
pub fn self_test_apart(
    program: &std::path::Path,
    arguments: &[String],
    patience: Duration,
) -> Result<(), SelfTestError> {
    let mut command = Command::new(program);
    // Ctrl-C is for us: a device whose test it ended would look like one that crashes.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(SelfTestError::Start)?;
    // Read while it runs: a driver that writes more than a pipe holds would wait for a reader.
    let reader = child.stderr.take().map(|mut pipe| {
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = pipe.read_to_string(&mut text);
            text
        })
    });
    let started = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => {
                let text = reader.and_then(|reader| reader.join().ok()).unwrap_or_default();
                let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
                return Err(match status.code() {
                    Some(_) => SelfTestError::Failed(last.trim().trim_start_matches("error: ").to_owned()),
                    None => SelfTestError::Crashed(status),
                });
            }
            Ok(None) if started.elapsed() < patience => std::thread::sleep(Duration::from_millis(20)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(SelfTestError::TimedOut(patience));
            }
            Err(error) => return Err(SelfTestError::Wait(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_passes() {
        assert_eq!(self_test(&Device::flex()), Ok(()));
        assert_eq!(half_test(&Device::flex()), Ok(()));
    }

    #[test]
    fn what_is_not_a_number_or_missing_is_wrong() {
        let wanted = [1.0, -4.0, 2.0];
        for (got, error) in [
            (&[1.0, -4.0, 2.0][..], 0.0),
            (&[1.0, -3.0, 2.0], 0.25),
            (&[f32::NAN, -4.0, 2.0], f32::INFINITY),
            (&[1.0, -4.0, f32::NAN], f32::INFINITY),
            (&[f32::NAN; 3], f32::INFINITY),
            (&[1.0, f32::NEG_INFINITY, 2.0], f32::INFINITY),
            (&[1.0, -4.0], f32::INFINITY),
            (&[], f32::INFINITY),
            (&[1.0, -4.0, 2.0, 2.0], f32::INFINITY),
        ] {
            assert_eq!(largest_error(got, &wanted), error, "{got:?}");
            // As both tests ask: of a device, and of its half precision.
            for tolerance in [TOLERANCE, HALF_TOLERANCE] {
                let checked = check("matmul", got, &wanted, tolerance);
                assert_eq!(checked.is_ok(), error == 0.0, "{got:?}");
                assert!(checked.is_ok() || checked == Err(WrongResult { operation: "matmul", error }));
            }
        }
    }

    #[cfg(unix)]
    #[test]
    fn what_fails_crashes_or_hangs_is_named() {
        let within = |patience: Duration, script: &str| {
            self_test_apart("/bin/sh".as_ref(), &["-c".to_owned(), script.to_owned()], patience)
                .map_err(|error| error.to_string())
        };
        // What ends by itself is given all the time that a busy machine may need.
        let shell = |script: &str| within(Duration::from_secs(600), script);
        assert_eq!(shell("exit 0"), Ok(()));
        assert_eq!(shell("echo matmul is wrong >&2; exit 1"), Err("matmul is wrong".to_owned()));
        assert!(shell("kill -SEGV $$").expect_err("crashed").contains("crashed"));
        assert!(shell("yes | head -c 300000 >&2; echo last >&2; exit 3").expect_err("failed").contains("last"));
        assert!(within(Duration::from_millis(300), "sleep 60").expect_err("hung").contains("no answer"));
        let nowhere = self_test_apart("/no/such/program".as_ref(), &[], Duration::from_secs(1));
        assert!(nowhere.expect_err("not there").to_string().contains("could not be started"));
    }
}
