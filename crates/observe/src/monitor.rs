//! One look at a run while it goes on: its last hundred steps, and true totals (SPEC R1, R3).

use serde::{Deserialize, Serialize};
use tandem_flow::{Span, Summary};

use crate::profile::{Profile, last_steps, step_times};
use crate::verdict::{Bottleneck, Finding, Recommendation, Verdict, thresholds};

/// Steps that a look goes back.
pub const WINDOW: usize = 100;
/// The first steps of a start are not like the others: kernels are compiled, memory is found.
const FIRST: usize = 3;
/// Steps without which nothing is said.
const ENOUGH: usize = 10;

/// How full a queue is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueFill {
    /// The queue.
    pub name: String,
    /// Batches in it.
    pub items: usize,
    /// Batches that there may be.
    pub capacity: usize,
}

/// What is used of a memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// `host`, `data`, `model`.
    pub name: String,
    /// The device.
    pub device: String,
    /// What is used.
    pub used_bytes: u64,
    /// What there may be, if that is known.
    pub limit_bytes: Option<u64>,
}

/// One look at a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Steps done, from the very start.
    pub step: u64,
    /// Steps there will be.
    pub steps: u64,
    /// Epoch, counted from 0.
    pub epoch: u64,
    /// Seconds since this start of the run.
    pub seconds: f64,
    /// Seconds until the end.
    pub eta_s: f64,
    /// Mean loss since the last look.
    pub loss: f64,
    /// Its terms.
    pub terms: Vec<(String, f64)>,
    /// Learning rate.
    pub rate: f64,
    /// Norm of the last gradient.
    pub norm: f64,
    /// The last validation.
    pub validation: Option<f64>,
    /// Steps per second.
    pub steps_per_s: f64,
    /// Clips per second.
    pub clips_per_s: f64,
    /// Seconds of audio per second.
    pub audio_per_s: f64,
    /// Clips trained on since this start.
    pub total_clips: u64,
    /// Seconds of audio trained on, from the very start.
    pub total_audio_s: f64,
    /// Seconds of training, from the very start.
    pub total_s: f64,
    /// What the stages did.
    pub profile: Profile,
    /// Milliseconds of a step, with its wait.
    pub step_ms: Summary,
    /// The last of them, oldest first.
    pub recent_ms: Vec<f64>,
    /// What limits the run.
    pub verdict: Verdict,
    /// What infinitely fast data would give at most: 0.44 is 44 % more steps.
    pub headroom: f64,
    /// The queues, from source to sink.
    pub queues: Vec<QueueFill>,
    /// Memory of the host and of the lanes.
    pub memory: Vec<MemoryUse>,
    /// Load of the processor by this program, in percent of one core, where it is known.
    pub cpu_percent: Option<f64>,
    /// The data lane's device.
    pub data_device: String,
    /// The model lane's device.
    pub model_device: String,
    /// The devices are simulated.
    pub simulated: bool,
}

/// The profile and the step times of the last steps, or none when there are too few; `done` steps were done since the
/// start.
pub fn look(spans: &[Span], done: usize) -> Option<(Profile, Vec<f64>)> {
    let most = WINDOW.min(done.saturating_sub(FIRST));
    if most < ENOUGH {
        return None;
    }
    let last = last_steps(spans, most);
    Some((Profile::new(&last, 0)?, step_times(&last, 0)))
}

/// Something to tell about a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// What limits the run is another thing than before, or nothing any more.
    Limit {
        /// What sets the pace.
        bottleneck: Bottleneck,
        /// Share of the time that the model waited.
        starved: f64,
        /// What infinitely fast data would give.
        headroom: f64,
        /// What to change first.
        change: Option<Recommendation>,
    },
    /// SPEC T7.
    Variation {
        /// Standard deviation over mean.
        variation: f64,
        /// The stage that varies with the steps.
        stage: Option<String>,
    },
}

/// Decides what is worth telling: changes, and none of them at every look.
#[derive(Clone, Debug, Default)]
pub struct Notices {
    told: Option<Bottleneck>,
    /// What the last look said; a limit is told when two looks agree.
    seen: Option<Bottleneck>,
    varied: bool,
    /// The step at which variation was told last.
    told_variation: Option<u64>,
}

impl Notices {
    /// What to tell after this look.
    pub fn hear(&mut self, step: u64, profile: &Profile, verdict: &Verdict, headroom: f64) -> Vec<Notice> {
        let mut notices = Vec::new();
        let now = verdict.bottleneck;
        // A healthy run need not say so, unless it was not before.
        let told = self.told.unwrap_or(Bottleneck::Train);
        if self.seen.replace(now) == Some(now) && now != told {
            self.told = Some(now);
            notices.push(Notice::Limit {
                bottleneck: now,
                starved: profile.starved,
                headroom,
                change: verdict.recommendations.first().cloned(),
            });
        }
        let varies = verdict.findings.contains(&Finding::Variation);
        let long_ago = self.told_variation.is_none_or(|told| step >= told + WINDOW as u64);
        if varies && !self.varied && long_ago {
            self.told_variation = Some(step);
            notices.push(Notice::Variation { variation: profile.variation, stage: profile.varies_with.clone() });
        }
        // Told, or over: something is told again only after it was over.
        if !varies || long_ago {
            self.varied = varies;
        }
        notices
    }
}

/// What infinitely fast data would give at most, by the share of the time that the model waits.
pub fn headroom(profile: &Profile) -> f64 {
    if profile.starved < thresholds::STARVED / 10.0 { 0.0 } else { profile.starved / (1.0 - profile.starved).max(1e-3) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{GAPS, StageProfile};
    use crate::simulate::STAGES;

    fn seen(starved: f64, variation: f64) -> Profile {
        let stage = |name: &str| StageProfile { name: name.to_owned(), mean_ms: 1.0, std_ms: 0.0, share: 0.2 };
        Profile {
            steps: 100,
            warm_up: 0,
            period_ms: 5.0,
            steps_per_s: 200.0,
            stages: STAGES.into_iter().chain([GAPS]).map(stage).collect(),
            data_busy: 0.5,
            model_busy: 1.0 - starved,
            starved,
            variation,
            varies_with: Some("train".to_owned()),
        }
    }

    fn says(bottleneck: Bottleneck, variation: f64) -> Verdict {
        let findings = if variation > thresholds::VARIATION { vec![Finding::Variation] } else { Vec::new() };
        Verdict { healthy: bottleneck == Bottleneck::Train, bottleneck, findings, recommendations: Vec::new() }
    }

    /// How many notices of each kind a run of looks gives, ten steps apart.
    fn told(looks: &[(Bottleneck, f64)]) -> (Vec<Bottleneck>, Vec<u64>) {
        let (mut notices, mut limits, mut variations) = (Notices::default(), Vec::new(), Vec::new());
        for (step, &(bottleneck, variation)) in (10..).step_by(10).zip(looks) {
            for notice in notices.hear(step, &seen(0.3, variation), &says(bottleneck, variation), 0.4) {
                match notice {
                    Notice::Limit { bottleneck, .. } => limits.push(bottleneck),
                    Notice::Variation { .. } => variations.push(step),
                }
            }
        }
        (limits, variations)
    }

    #[test]
    fn a_limit_is_told_when_it_changes_and_two_looks_agree() {
        use Bottleneck::{Load, Train, Transfer};
        let looks = |all: &[Bottleneck]| told(&all.iter().map(|&one| (one, 0.0)).collect::<Vec<_>>()).0;
        assert_eq!(looks(&[Train, Train, Train]), [], "a healthy run need not say so");
        assert_eq!(looks(&[Load, Load, Load, Load]), [Load]);
        assert_eq!(looks(&[Train, Load, Train, Load, Train]), [], "not at every flicker");
        assert_eq!(looks(&[Load, Load, Train, Train, Transfer, Transfer]), [Load, Train, Transfer]);
    }

    #[test]
    fn variation_is_told_at_most_once_per_window() {
        let always = vec![(Bottleneck::Train, 0.5); 60];
        assert_eq!(told(&always).1, [10]);
        let on_and_off: Vec<_> = (0..60).map(|n| (Bottleneck::Train, if n % 2 == 0 { 0.5 } else { 0.1 })).collect();
        let steps = told(&on_and_off).1;
        assert!(steps.len() > 3 && steps.windows(2).all(|pair| pair[1] - pair[0] >= 100), "{steps:?}");
    }
}
