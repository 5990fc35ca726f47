//! The learning rate of each step: a pure function.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tandem_model::Size;

use crate::task::TrainedPart;

/// How the learning rate changes, after it has risen for [`LearningRate::warmup`] steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Schedule {
    /// It does not.
    Constant,
    /// Falls with the root of the step.
    Noam,
    /// Falls like a cosine to a tenth, then restarts, each time `growth` times as long.
    Cosine {
        /// Steps of the first fall.
        period: u64,
        /// How much longer each fall is than the one before.
        growth: u64,
    },
    /// Halves every so many steps.
    Exponential {
        /// Steps until it is half.
        half_life: u64,
    },
}

impl Schedule {
    /// The words that stand for one, and what they mean.
    pub const WORDS: &'static [(&'static str, &'static str)] = &[
        ("constant", "Stays"),
        ("noam", "Falls as one over the square root of the step"),
        ("cosine", "Falls like a cosine and restarts"),
        ("exponential", "Halves again and again"),
    ];
}

/// Steps of the first fall of `cosine`, and how much longer each fall is than the one before.
const COSINE: (u64, u64) = (4000, 2);
/// Steps until the learning rate of `exponential` is half.
const HALF_LIFE: u64 = 20_000;

/// `constant`, `noam`, `cosine`, `cosine:PERIOD:GROWTH`, `exponential`, `exponential:HALF_LIFE`.
impl FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Schedule, String> {
        let wrong =
            || "constant, noam, cosine (or cosine:PERIOD:GROWTH), exponential (or exponential:HALF_LIFE)".to_owned();
        let parts: Vec<&str> = text.split(':').collect();
        let number = |text: &str| text.parse::<u64>().ok().filter(|number| *number > 0).ok_or_else(wrong);
        match parts[..] {
            ["constant"] => Ok(Schedule::Constant),
            ["noam"] => Ok(Schedule::Noam),
            ["cosine"] => Ok(Schedule::Cosine { period: COSINE.0, growth: COSINE.1 }),
            ["cosine", period, growth] => Ok(Schedule::Cosine { period: number(period)?, growth: number(growth)? }),
            ["exponential"] => Ok(Schedule::Exponential { half_life: HALF_LIFE }),
            ["exponential", half_life] => Ok(Schedule::Exponential { half_life: number(half_life)? }),
            _ => Err(wrong()),
        }
    }
}

/// As it is read; numbers that the word alone stands for are not shown.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Schedule::Constant => f.write_str("constant"),
            Schedule::Noam => f.write_str("noam"),
            Schedule::Cosine { period, growth } if (period, growth) == COSINE => f.write_str("cosine"),
            Schedule::Cosine { period, growth } => write!(f, "cosine:{period}:{growth}"),
            Schedule::Exponential { half_life: HALF_LIFE } => f.write_str("exponential"),
            Schedule::Exponential { half_life } => write!(f, "exponential:{half_life}"),
        }
    }
}

/// A learning rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearningRate {
    /// The highest.
    pub peak: f64,
    /// Steps over which it rises.
    pub warmup: u64,
    /// What then happens.
    pub schedule: Schedule,
}

const FLOOR: f64 = 0.1;

impl LearningRate {
    /// The rate of a step, counted from 1.
    pub fn at(&self, step: u64) -> f64 {
        let warmup = self.warmup.max(1);
        if step < warmup {
            return self.peak * step as f64 / warmup as f64;
        }
        let after = step - warmup;
        self.peak
            * match self.schedule {
                Schedule::Constant => 1.0,
                Schedule::Noam => (warmup as f64 / step as f64).sqrt(),
                Schedule::Cosine { period, growth } => {
                    let (mut period, mut into) = (period.max(1), after);
                    while into >= period {
                        into -= period;
                        period = period.saturating_mul(growth.max(1));
                    }
                    let share = into as f64 / period as f64;
                    FLOOR + (1.0 - FLOOR) * 0.5 * (1.0 + (std::f64::consts::PI * share).cos())
                }
                Schedule::Exponential { half_life } => 0.5f64.powf(after as f64 / half_life.max(1) as f64),
            }
    }
}

/// SPEC F13: presets of learning rate, schedule and clip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptimizationLevel {
    /// A rate that falls to the end of the run; slowly if it has none.
    Basic,
    /// Falls like a cosine, with restarts that grow longer.
    Enhanced,
    /// Short restarts of a high rate, to get away from where training is stuck.
    PlateauBreaker,
}

impl OptimizationLevel {
    /// What it stands for with a model of this size: learning rate and the norm that gradients are clipped to.
    ///
    /// A run of so many `steps` begins with a high rate that has fallen to a tenth at its end: words were clearer so than with one that falls with
    /// the root of the step (WER 9.6 and 11.9 %, `benches/results/quality.md`). Without an end it is half as high and falls slowly. The peak
    /// falls with the width of the model; smoke and tiny were tried, small for 200 steps (twice the rate is 1 % better there, half of it 4 % worse), the larger
    /// ones follow the same rule and were not.
    pub fn values(self, part: TrainedPart, size: Size, steps: Option<u64>) -> (LearningRate, f64) {
        let peak = match (part, size) {
            (TrainedPart::Vocoder, _) => 1e-3,
            (_, Size::Smoke | Size::Tiny) => 2e-3,
            (_, Size::Small) => 1.2e-3,
            (_, Size::Normal) => 9e-4,
            (_, Size::Big) => 6e-4,
        };
        match self {
            OptimizationLevel::Basic => {
                let warmup = 100;
                let lr = match steps {
                    // A step more than there are: on the last one it would restart.
                    Some(steps) => {
                        let period = (steps + 1).saturating_sub(warmup).max(1);
                        LearningRate { peak, warmup, schedule: Schedule::Cosine { period, growth: 1 } }
                    }
                    None => LearningRate {
                        peak: 0.5 * peak,
                        warmup,
                        schedule: Schedule::Exponential { half_life: HALF_LIFE },
                    },
                };
                (lr, 1.0)
            }
            OptimizationLevel::Enhanced => {
                let schedule = Schedule::Cosine { period: COSINE.0, growth: COSINE.1 };
                (LearningRate { peak: 0.5 * peak, warmup: 200, schedule }, 0.5)
            }
            OptimizationLevel::PlateauBreaker => {
                let schedule = Schedule::Cosine { period: 500, growth: 1 };
                (LearningRate { peak, warmup: 50, schedule }, 0.25)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(schedule: Schedule) -> impl Fn(u64) -> f64 {
        let rate = LearningRate { peak: 1.0, warmup: 100, schedule };
        move |step| rate.at(step)
    }

    #[test]
    fn each_schedule_rises_and_then_does_what_it_says() {
        for schedule in [
            Schedule::Constant,
            Schedule::Noam,
            Schedule::Cosine { period: 100, growth: 2 },
            Schedule::Exponential { half_life: 100 },
        ] {
            let at = rate(schedule);
            assert_eq!(at(1), 0.01);
            assert_eq!(at(50), 0.5);
            assert_eq!(at(100), 1.0);
        }
        assert_eq!(rate(Schedule::Constant)(10_000), 1.0);
        assert_eq!(rate(Schedule::Noam)(400), 0.5);
        assert_eq!(rate(Schedule::Exponential { half_life: 100 })(300), 0.25);
        let cosine = rate(Schedule::Cosine { period: 100, growth: 2 });
        assert!((cosine(150) - 0.55).abs() < 1e-9);
        assert!(cosine(199) < 0.101);
        assert_eq!(cosine(200), 1.0, "restarts");
        assert!((cosine(300) - 0.55).abs() < 1e-9, "twice as long");
    }
}
