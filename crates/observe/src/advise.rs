//! One device or two: a pure function of what was measured (SPEC M14).

use std::fmt;

use serde::Serialize;
use tandem_device::topology::Link;

/// Waiting less than this share of a step is not worth a second device.
const STARVED: f64 = 0.05;
/// A gain below this is within what a measurement varies by.
const WORTH: f64 = 1.05;
/// Steps shorter than this, on batches smaller than the next figure, are lost in the cost of handing over.
const SMALL_STEP_MS: f64 = 10.0;
const SMALL_BATCH_BYTES: u64 = 4 << 20;

/// What the pipeline was seen to take, in milliseconds a batch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Paces {
    /// Reading, decoding and text (and features, where the workers compute them), with all workers at work.
    pub load_ms: f64,
    /// On the data lane's device.
    pub preprocess_ms: f64,
    /// Copying to the model's device.
    pub transfer_ms: f64,
    /// The step itself.
    pub step_ms: f64,
}

impl Paces {
    /// Everything before the step, one after the other.
    pub fn preparation_ms(&self) -> f64 {
        self.load_ms + self.preprocess_ms + self.transfer_ms
    }

    /// From one step to the next, when all stages work beside each other.
    pub fn period_ms(&self) -> f64 {
        self.load_ms.max(self.preprocess_ms).max(self.transfer_ms).max(self.step_ms)
    }

    /// The share of its time that the model waits.
    pub fn starved(&self) -> f64 {
        let period = self.period_ms();
        if period > 0.0 { 1.0 - self.step_ms / period } else { 0.0 }
    }

    /// What working beside each other gives over one after the other: `(a + b) / max(a, b)`, at most 2 for two stages.
    pub fn overlap_gain(&self) -> f64 {
        let (a, b) = (self.load_ms.max(self.preprocess_ms).max(self.transfer_ms), self.step_ms);
        if a.max(b) > 0.0 { (a + b) / a.max(b) } else { 1.0 }
    }
}

/// What is known about the machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Situation {
    /// GPUs that could be used.
    pub gpus: usize,
    /// One device: the host prepares.
    pub single: Paces,
    /// Two devices: another GPU computes the features. None where there is no second one.
    pub dual: Option<Paces>,
    /// Between the two.
    pub link: Option<Link>,
    /// Bytes of a batch.
    pub batch_bytes: u64,
    /// Whether the model and one batch fit the model's device.
    pub fits: bool,
}

/// Which rule decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// There are not two GPUs.
    NoSecondDevice,
    /// The model does not fit one GPU; a data lane does not help with that.
    DoesNotFit,
    /// The two hang on different CPUs.
    FarApart,
    /// The model does not wait for data.
    DataIsFast,
    /// Steps and batches are small: handing over costs as much as it gives.
    Small,
    /// The model waits, and a second device would not make it wait less.
    NoGain,
    /// The model waits for data, and a second device prepares it faster.
    Starved,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rule::NoSecondDevice => "there are not two GPUs",
            Rule::DoesNotFit => "the model does not fit one GPU, and a data lane does not change that",
            Rule::FarApart => "the two GPUs hang on different CPUs (NODE or SYS)",
            Rule::DataIsFast => "the data is fast enough already: the model does not wait for it",
            Rule::Small => "steps and batches are small: handing them over costs what it gives",
            Rule::NoGain => "the model waits, but a second device would not make it wait less",
            Rule::Starved => "the model waits for data, and a second device prepares it faster",
        })
    }
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// Two devices.
    pub dual: bool,
    /// Why.
    pub rule: Rule,
    /// What overlap gives on one device, over one after the other.
    pub overlap_gain: f64,
    /// What the second device gives over the first alone; below 1 it costs. None where there is none.
    pub dual_gain: Option<f64>,
}

/// One device or two, and why. The rules are tried from top to bottom; the first that holds decides.
pub fn advise(situation: &Situation) -> Advice {
    let Situation { gpus, single, dual, link, batch_bytes, fits } = *situation;
    let dual_gain = dual.map(|dual| single.period_ms() / dual.period_ms().max(f64::MIN_POSITIVE));
    let rule = match (dual, dual_gain) {
        (Some(_), Some(gain)) if gpus >= 2 => {
            if !fits {
                Rule::DoesNotFit
            } else if link.is_some_and(Link::is_far) {
                Rule::FarApart
            } else if single.starved() < STARVED {
                Rule::DataIsFast
            } else if single.step_ms < SMALL_STEP_MS && batch_bytes < SMALL_BATCH_BYTES {
                Rule::Small
            } else if gain < WORTH {
                Rule::NoGain
            } else {
                Rule::Starved
            }
        }
        _ => Rule::NoSecondDevice,
    };
    Advice { dual: rule == Rule::Starved, rule, overlap_gain: single.overlap_gain(), dual_gain }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paces(load_ms: f64, preprocess_ms: f64, transfer_ms: f64, step_ms: f64) -> Paces {
        Paces { load_ms, preprocess_ms, transfer_ms, step_ms }
    }

    fn starved() -> Situation {
        Situation {
            gpus: 2,
            single: paces(200.0, 5.0, 5.0, 100.0),
            dual: Some(paces(60.0, 40.0, 8.0, 100.0)),
            link: Some(Link::Pix),
            batch_bytes: 50 << 20,
            fits: true,
        }
    }

    #[test]
    fn each_rule_decides_where_it_should() {
        let base = starved();
        let cases = [
            (base, Rule::Starved),
            (Situation { gpus: 1, dual: None, ..base }, Rule::NoSecondDevice),
            (Situation { gpus: 0, dual: None, ..base }, Rule::NoSecondDevice),
            (Situation { fits: false, ..base }, Rule::DoesNotFit),
            (Situation { link: Some(Link::Sys), ..base }, Rule::FarApart),
            (Situation { link: Some(Link::Node), ..base }, Rule::FarApart),
            (Situation { link: Some(Link::Phb), ..base }, Rule::Starved),
            (Situation { link: None, ..base }, Rule::Starved),
            (Situation { single: paces(104.0, 5.0, 5.0, 100.0), ..base }, Rule::DataIsFast),
            (Situation { single: paces(120.0, 5.0, 5.0, 100.0), ..base }, Rule::Starved),
            (Situation { dual: Some(paces(195.0, 40.0, 8.0, 100.0)), ..base }, Rule::NoGain),
            (Situation { dual: Some(paces(185.0, 40.0, 8.0, 100.0)), ..base }, Rule::Starved),
            (
                Situation {
                    single: paces(8.0, 0.5, 0.5, 4.0),
                    dual: Some(paces(2.0, 1.0, 1.0, 4.0)),
                    batch_bytes: 1 << 20,
                    ..base
                },
                Rule::Small,
            ),
            (
                Situation { single: paces(8.0, 0.5, 0.5, 4.0), dual: Some(paces(2.0, 1.0, 1.0, 4.0)), ..base },
                Rule::Starved,
            ),
        ];
        for (situation, rule) in cases {
            let advice = advise(&situation);
            assert_eq!((advice.rule, advice.dual), (rule, rule == Rule::Starved), "{situation:?}");
        }
    }

    #[test]
    fn the_gain_of_overlap_is_at_most_two_for_two_stages() {
        for (a, b) in [(50.0, 50.0), (10.0, 90.0), (90.0, 10.0), (0.0, 5.0), (0.0, 0.0), (1e-9, 1e9)] {
            let gain = paces(a, 0.0, 0.0, b).overlap_gain();
            assert!((1.0..=2.0).contains(&gain), "{a} {b}: {gain}");
        }
        assert_eq!(paces(50.0, 0.0, 0.0, 50.0).overlap_gain(), 2.0);
        let advice = advise(&starved());
        assert_eq!((advice.overlap_gain, advice.dual_gain), (1.5, Some(2.0)));
        let costs = Situation { dual: Some(paces(60.0, 400.0, 8.0, 100.0)), ..starved() };
        assert_eq!(advise(&costs).dual_gain, Some(0.5), "what costs is said");
    }
}
