//! Clips that turn out to be bad: named, counted in the order of the batches, and too many of them end a run.

use tandem_flow::Fault;

use super::Loader;
use crate::batch::Batch;
use crate::fault::{ClipFault, FaultReport, FoundFault, UNREACHABLE};

impl Loader {
    pub(super) fn report(&self, clip: u32, fault: &ClipFault) -> FaultReport {
        let (id, path) = self.shared.corpus.name(clip);
        FaultReport { id, path, kind: fault.kind().into(), reason: fault.to_string(), limit: false }
    }

    /// Notes the bad clips of a batch; an error when there are too many, or when nothing is left of the batch.
    pub(super) fn count(&self, mut batch: Batch, lost: &mut Lost) -> Result<Batch, Fault> {
        for (clip, report) in batch.faults.drain(..) {
            let (id, path) = (report.id.clone(), report.path.clone());
            // Nothing is wrong with the clip: to go on without it would train something else.
            if report.kind == UNREACHABLE {
                return Err(Fault::new(report.reason).sample(id).fatal());
            }
            if !self.shared.ledger.note(clip, report) {
                continue;
            }
            let fault = self.too_many().sample(id);
            return Err(match path {
                Some(path) => fault.path(path),
                None => fault,
            });
        }
        // Other processes may have clips of it: they decide together whether there is a step.
        if !batch.clips.is_empty() || self.settings.shard.world > 1 {
            lost.in_a_row = 0;
            return Ok(batch);
        }
        lost.in_a_row += 1;
        // However few clips there are: to look for one good clip in epoch after epoch would never end.
        if lost.in_a_row >= *lost.batches.get_or_insert_with(|| self.plan(0).len()) {
            return Err(self.too_many());
        }
        Err(Fault::new("none of its clips can be used"))
    }

    /// Notes bad clips that other processes of the run found.
    ///
    /// # Errors
    ///
    /// A fatal fault if there are too many now: those of all processes count together.
    pub fn hear(&self, found: &[FoundFault]) -> Result<(), Fault> {
        let mut exceeded = false;
        for FoundFault { clip, kind, reason } in
            found.iter().filter(|fault| (fault.clip as usize) < self.shared.corpus.len())
        {
            let (id, path) = self.shared.corpus.name(*clip);
            let report = FaultReport { id, path, kind: kind.clone().into(), reason: reason.clone(), limit: false };
            exceeded |= self.shared.ledger.note_told(*clip, report);
        }
        if exceeded { Err(self.too_many()) } else { Ok(()) }
    }

    /// More clips are bad than is tolerated.
    pub fn too_many(&self) -> Fault {
        let reports = self.shared.ledger.reports();
        let bad = self.shared.corpus.faults() + reports.len();
        let mut text = format!("{bad} of {} clips cannot be used, more than is tolerated", self.shared.corpus.rows());
        for report in reports.iter().take(10) {
            text += &format!("\n  {}: {}", report.id, report.reason);
        }
        Fault::new(text).fatal()
    }
}

/// Batches of which nothing was left.
#[derive(Debug, Default)]
pub(super) struct Lost {
    in_a_row: usize,
    /// Batches of an epoch, once that matters.
    batches: Option<usize>,
}
