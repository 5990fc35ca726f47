//! What is worth reporting about a run while it trains: changes, and none of them with every snapshot.

use tandem_flow::Stage;

use crate::snapshot::WINDOW;
use crate::stage_profile::Profile;
use crate::verdict::{Bottleneck, Finding, Recommendation, Verdict};

/// Something worth reporting about a run.
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
        stage: Option<Stage>,
    },
}

/// Decides what is worth reporting.
#[derive(Clone, Debug, Default)]
pub struct Notices {
    reported: Option<Bottleneck>,
    /// What the last snapshot said; a limit is reported when two snapshots agree.
    seen: Option<Bottleneck>,
    varied: bool,
    /// The step at which variation was reported last.
    reported_variation: Option<u64>,
}

impl Notices {
    /// What to report after this snapshot.
    pub fn update(&mut self, step: u64, profile: &Profile, verdict: &Verdict, headroom: f64) -> Vec<Notice> {
        let mut notices = Vec::new();
        let now = verdict.bottleneck;
        // A healthy run need not say so, unless it was not before.
        let reported = self.reported.unwrap_or(Bottleneck::Train);
        if self.seen.replace(now) == Some(now) && now != reported {
            self.reported = Some(now);
            notices.push(Notice::Limit {
                bottleneck: now,
                starved: profile.starved,
                headroom,
                change: verdict.recommendations.first().cloned(),
            });
        }
        let varies = verdict.findings.contains(&Finding::Variation);
        let long_ago = self.reported_variation.is_none_or(|reported| step >= reported + WINDOW as u64);
        if varies && !self.varied && long_ago {
            self.reported_variation = Some(step);
            notices.push(Notice::Variation { variation: profile.variation, stage: profile.varies_with });
        }
        // Reported, or over: something is reported again only after it was over.
        if !varies || long_ago {
            self.varied = varies;
        }
        notices
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage_profile::{GAPS, StageProfile};
    use crate::verdict::thresholds;

    fn seen(starved: f64, variation: f64) -> Profile {
        let stage =
            |name: &str| StageProfile { name: name.to_owned(), mean_ms: 1.0, std_ms: 0.0, jitter_ms: 0.0, share: 0.2 };
        Profile {
            steps: 100,
            warm_up: 0,
            period_ms: 5.0,
            steps_per_s: 200.0,
            stages: Stage::TIMED.map(Stage::name).into_iter().chain([GAPS]).map(stage).collect(),
            data_busy: 0.5,
            model_busy: 1.0 - starved,
            starved,
            variation,
            varies_with: Some(Stage::Train),
        }
    }

    fn says(bottleneck: Bottleneck, variation: f64) -> Verdict {
        let findings = if variation > thresholds::VARIATION { vec![Finding::Variation] } else { Vec::new() };
        Verdict { healthy: bottleneck == Bottleneck::Train, bottleneck, findings, recommendations: Vec::new() }
    }

    /// How many notices of each kind a series of snapshots gives, ten steps apart.
    fn reported(snapshots: &[(Bottleneck, f64)]) -> (Vec<Bottleneck>, Vec<u64>) {
        let (mut notices, mut limits, mut variations) = (Notices::default(), Vec::new(), Vec::new());
        for (step, &(bottleneck, variation)) in (10..).step_by(10).zip(snapshots) {
            for notice in notices.update(step, &seen(0.3, variation), &says(bottleneck, variation), 0.4) {
                match notice {
                    Notice::Limit { bottleneck, .. } => limits.push(bottleneck),
                    Notice::Variation { .. } => variations.push(step),
                }
            }
        }
        (limits, variations)
    }

    #[test]
    fn a_limit_is_reported_when_it_changes_and_two_snapshots_agree() {
        use Bottleneck::{Load, Train, Transfer};
        let limits = |all: &[Bottleneck]| reported(&all.iter().map(|&one| (one, 0.0)).collect::<Vec<_>>()).0;
        assert_eq!(limits(&[Train, Train, Train]), [], "a healthy run need not say so");
        assert_eq!(limits(&[Load, Load, Load, Load]), [Load]);
        assert_eq!(limits(&[Train, Load, Train, Load, Train]), [], "not at every flicker");
        assert_eq!(limits(&[Load, Load, Train, Train, Transfer, Transfer]), [Load, Train, Transfer]);
    }

    #[test]
    fn variation_is_reported_at_most_once_per_window() {
        let always = vec![(Bottleneck::Train, 0.5); 60];
        assert_eq!(reported(&always).1, [10]);
        let on_and_off: Vec<_> = (0..60).map(|n| (Bottleneck::Train, if n % 2 == 0 { 0.5 } else { 0.1 })).collect();
        let steps = reported(&on_and_off).1;
        assert!(steps.len() > 3 && steps.windows(2).all(|pair| pair[1] - pair[0] >= 100), "{steps:?}");
    }
}
