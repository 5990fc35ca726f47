//! What the server did, for Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Upper bounds of the times to the first byte, in seconds.
const BOUNDS: [f64; 10] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

#[derive(Debug, Default)]
struct Totals {
    /// Responses by path and status.
    responses: BTreeMap<(&'static str, u16), u64>,
    /// How many requests had their first byte within each bound, and later.
    first_byte: [u64; BOUNDS.len() + 1],
    first_byte_s: f64,
    batches: u64,
    failed_batches: u64,
    sentences: u64,
    abandoned: u64,
    audio_s: f64,
    busy_s: f64,
    reloads: u64,
    failed_reloads: u64,
    refused_connections: u64,
}

/// What is there now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gauges {
    /// Requests for speech that are admitted.
    pub(crate) requests: usize,
    /// Sentences that wait.
    pub(crate) pending: usize,
    /// Recordings that are being uploaded.
    pub(crate) uploads: usize,
    /// Connections.
    pub(crate) connections: usize,
}

/// Totals since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    totals: Mutex<Totals>,
}

impl Counters {
    fn lock(&self) -> MutexGuard<'_, Totals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn response(&self, path: &'static str, status: u16) {
        *self.lock().responses.entry((path, status)).or_default() += 1;
    }

    pub(crate) fn first_byte(&self, seconds: f64) {
        let mut totals = self.lock();
        let at = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        totals.first_byte[at] += 1;
        totals.first_byte_s += seconds;
    }

    pub(crate) fn batch(&self, sentences: usize, audio_s: f64, busy_s: f64) {
        let mut totals = self.lock();
        totals.batches += 1;
        totals.sentences += sentences as u64;
        totals.audio_s += audio_s;
        totals.busy_s += busy_s;
    }

    pub(crate) fn failed_batch(&self) {
        self.lock().failed_batches += 1;
    }

    pub(crate) fn abandoned_sentences(&self, sentences: usize) {
        self.lock().abandoned += sentences as u64;
    }

    pub(crate) fn reload(&self, worked: bool) {
        let mut totals = self.lock();
        if worked { totals.reloads += 1 } else { totals.failed_reloads += 1 }
    }

    pub(crate) fn refused_connection(&self) {
        self.lock().refused_connections += 1;
    }

    /// How long so many sentences will take, as far as is known.
    pub(crate) fn seconds_for(&self, sentences: usize) -> f64 {
        let totals = self.lock();
        if totals.sentences == 0 { 1.0 } else { sentences as f64 * totals.busy_s / totals.sentences as f64 }
    }

    /// In Prometheus' words.
    pub(crate) fn exposition(&self, now: Gauges) -> String {
        let totals = self.lock();
        let mut text = String::new();
        let mut metric = |name: &str, kind: &str, help: &str, values: &[(String, f64)]| {
            let _ = writeln!(text, "# HELP tandem_serve_{name} {help}\n# TYPE tandem_serve_{name} {kind}");
            for (labels, value) in values {
                let _ = writeln!(text, "tandem_serve_{name}{labels} {value}");
            }
        };
        let one = |value: f64| vec![(String::new(), value)];
        let responses: Vec<(String, f64)> = (totals.responses.iter())
            .map(|((path, status), count)| (format!("{{path=\"{path}\",status=\"{status}\"}}"), *count as f64))
            .collect();
        metric("responses_total", "counter", "Responses by path and status.", &responses);
        metric("requests", "gauge", "Requests for speech that are admitted.", &one(now.requests as f64));
        metric("pending_sentences", "gauge", "Sentences that wait.", &one(now.pending as f64));
        metric("uploads", "gauge", "Recordings that are being uploaded.", &one(now.uploads as f64));
        metric("connections", "gauge", "Open connections.", &one(now.connections as f64));
        metric(
            "refused_connections_total",
            "counter",
            "Connections refused because there were too many.",
            &one(totals.refused_connections as f64),
        );
        metric("batches_total", "counter", "Batches synthesized.", &one(totals.batches as f64));
        metric("failed_batches_total", "counter", "Batches that failed.", &one(totals.failed_batches as f64));
        metric("sentences_total", "counter", "Sentences synthesized.", &one(totals.sentences as f64));
        metric(
            "abandoned_sentences_total",
            "counter",
            "Sentences not synthesized because the client left.",
            &one(totals.abandoned as f64),
        );
        metric("audio_seconds_total", "counter", "Seconds of audio synthesized.", &one(totals.audio_s));
        metric("busy_seconds_total", "counter", "Seconds that synthesis took.", &one(totals.busy_s));
        metric("reloads_total", "counter", "Checkpoints loaded by --follow.", &one(totals.reloads as f64));
        metric(
            "failed_reloads_total",
            "counter",
            "Checkpoints that --follow could not load.",
            &one(totals.failed_reloads as f64),
        );
        let _ = writeln!(
            text,
            "# HELP tandem_serve_first_byte_seconds Time from request to first audio.\n# TYPE tandem_serve_first_byte_seconds histogram"
        );
        let mut sum = 0;
        for (bound, count) in BOUNDS.iter().map(f64::to_string).chain(["+Inf".to_owned()]).zip(totals.first_byte) {
            sum += count;
            let _ = writeln!(text, "tandem_serve_first_byte_seconds_bucket{{le=\"{bound}\"}} {sum}");
        }
        let _ = writeln!(
            text,
            "tandem_serve_first_byte_seconds_sum {}\ntandem_serve_first_byte_seconds_count {sum}",
            totals.first_byte_s
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_add_up() {
        let counters = Counters::default();
        for seconds in [0.001, 0.03, 0.04, 99.0] {
            counters.first_byte(seconds);
        }
        counters.response("/v1/audio/speech", 200);
        counters.batch(4, 8.0, 2.0);
        let text = counters.exposition(Gauges { requests: 1, pending: 2, ..Gauges::default() });
        for line in [
            "tandem_serve_first_byte_seconds_bucket{le=\"0.01\"} 1",
            "tandem_serve_first_byte_seconds_bucket{le=\"0.05\"} 3",
            "tandem_serve_first_byte_seconds_bucket{le=\"+Inf\"} 4",
            "tandem_serve_first_byte_seconds_count 4",
            "tandem_serve_responses_total{path=\"/v1/audio/speech\",status=\"200\"} 1",
            "tandem_serve_sentences_total 4",
            "tandem_serve_pending_sentences 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!((counters.seconds_for(8) - 4.0).abs() < 1e-9);
    }
}
