//! A batch of its clips: fetched together if they lie elsewhere, one after the other into their rows, with noise and references.

use std::collections::HashMap;

use tandem_flow::Random;

use super::clip::Workspace;
use super::{Counters, Loader};
use crate::batch::{Batch, Buffer, Reference};
use crate::fault::ClipFault;
use crate::plan::PlannedBatch;

impl Loader {
    /// Makes one batch, which must be of this loader's own plan. Bad clips are skipped; all of them may be.
    pub fn load(&self, planned: &PlannedBatch) -> Batch {
        self.with_workspace(|workspace| self.load_with(planned, workspace))
    }

    fn load_with(&self, planned: &PlannedBatch, workspace: &mut Workspace) -> Batch {
        let n_mels = self.shared.template.settings().n_mels;
        let own = self.settings.shard.rows(planned.rows);
        let filled = planned.clips.len();
        let clips = &planned.clips[own.start.min(filled)..own.end.min(filled)];
        let (rows, frames, tokens) = (own.len().max(1), self.frames(planned), planned.tokens);
        let row_values = self.form.row_values(frames);
        let mut batch = Batch {
            cursor: planned.cursor,
            clips: Vec::with_capacity(rows),
            speakers: Vec::with_capacity(rows),
            rows,
            tokens,
            frames,
            n_mels,
            ids: vec![0; rows * tokens],
            id_lengths: vec![0; rows],
            form: self.form,
            audio: self.shared.recycler.take(rows * row_values),
            pitch: self.settings.pitch.then(|| vec![0.0; rows * frames]),
            durations: Vec::new(),
            noise: None,
            mel_lengths: vec![0; rows],
            seconds: 0.0,
            reference: None,
            faults: Vec::new(),
        };
        workspace.fetched = self.fetch(clips);
        for &clip in clips.iter().filter(|&&clip| !self.shared.ledger.contains(clip)) {
            let row = batch.clips.len();
            let out = &mut batch.audio[row * row_values..(row + 1) * row_values];
            let pitch = batch.pitch.as_mut().map(|pitch| &mut pitch[row * frames..(row + 1) * frames]);
            match self.load_clip(clip, out, self.form.columns(frames), pitch, workspace) {
                Ok(ids) => {
                    for (to, id) in batch.ids[row * tokens..(row + 1) * tokens].iter_mut().zip(&ids) {
                        *to = *id as i32;
                    }
                    let (entry, length) =
                        (self.shared.corpus.entry(clip), self.shared.sizes[clip as usize].frames as usize);
                    let columns = self.form.columns(length);
                    out.chunks_exact_mut(self.form.columns(frames)).for_each(|line| line[columns..].fill(0.0));
                    (batch.id_lengths[row], batch.mel_lengths[row]) = (ids.len(), length);
                    batch.seconds += entry.seconds();
                    batch.clips.push(clip);
                    batch.speakers.push(entry.speaker);
                }
                Err(fault) => batch.faults.push((clip, self.report(clip, &fault))),
            }
        }
        let filled = batch.clips.len();
        if !self.settings.durations.is_empty() {
            let of = |clip: &u32| self.settings.durations.of(*clip).map(<[u32]>::to_vec);
            // A row without a clip has no token that could be aligned.
            let empty = std::iter::repeat_n(Some(Vec::new()), rows - filled);
            batch.durations = batch.clips.iter().map(of).chain(empty).collect();
        }
        batch.audio[filled * row_values..].fill(0.0);
        batch.noise = self.settings.noise.then(|| self.noise(&batch, self.noise_values(planned)));
        batch.reference =
            (self.settings.reference_frames).map(|frames| self.references(&batch, planned, frames, workspace));
        batch
    }

    /// The audio files of a batch that are neither here nor in the cache, waited for together.
    fn fetch(&self, clips: &[u32]) -> HashMap<u32, Result<Vec<u8>, ClipFault>> {
        let corpus = &self.shared.corpus;
        if !corpus.is_remote() {
            return HashMap::new();
        }
        let is_cached = |clip: u32| {
            let key = corpus.audio_identity(clip).map(|identity| self.cache.key(identity));
            key.is_ok_and(|key| self.cache.has(key))
        };
        let needed = |clip: &u32| !self.shared.ledger.contains(*clip) && !is_cached(*clip);
        let needed: Vec<u32> = clips.iter().copied().filter(needed).collect();
        Counters::time(&self.shared.counters.decode_ns, || corpus.fetch(&needed))
    }

    /// As much noise for each row as its clip has frames: the same whatever it is padded to.
    fn noise(&self, batch: &Batch, row_values: usize) -> Buffer {
        let mut noise = self.shared.recycler.take(batch.rows * row_values);
        for (row, out) in noise.chunks_exact_mut(row_values.max(1)).enumerate() {
            let own = batch.mel_lengths[row] * batch.n_mels;
            if let Some(&clip) = batch.clips.get(row) {
                let place = [self.settings.plan.seed, batch.cursor.epoch, u64::from(clip), 2];
                Random::at(&place).fill_normal(&mut out[..own]);
            }
            out[own..].fill(0.0);
        }
        noise
    }

    /// For each clip a crop of another clip of the same speaker: one of the whole batch as it was planned if there is one (unless it is
    /// in another process' rows it is at hand), otherwise any other; a speaker's only clip, or one whose choice turns out to be bad, is
    /// its own reference. So the choice depends neither on ranks nor on what is known to be bad.
    fn references(&self, batch: &Batch, planned: &PlannedBatch, frames: usize, workspace: &mut Workspace) -> Reference {
        let form = self.form;
        let row_values = form.row_values(frames);
        let mut audio = self.shared.recycler.take(batch.rows * row_values);
        audio.fill(0.0);
        let mut reference = Reference { frames, audio, lengths: vec![0; batch.rows] };
        let seed = self.settings.plan.seed;
        for (row, (&clip, &speaker)) in batch.clips.iter().zip(&batch.speakers).enumerate() {
            let mut random = Random::at(&[seed, batch.cursor.epoch, u64::from(clip), 1]);
            let is_mate = |mate: &u32| *mate != clip && self.shared.corpus.entry(*mate).speaker == speaker;
            let mates: Vec<u32> = planned.clips.iter().copied().filter(is_mate).collect();
            let out = &mut reference.audio[row * row_values..(row + 1) * row_values];
            let others = self.by_speaker.get(&speaker).map_or(&[][..], Vec::as_slice);
            let from_batch = |row: usize| {
                let size = form.row_values(batch.frames);
                (&batch.audio[row * size..(row + 1) * size], form.columns(batch.frames), batch.mel_lengths[row])
            };
            let other = match mates.is_empty() {
                false => Some(mates[random.below(mates.len())]),
                true if others.len() > 1 => {
                    let at = random.below(others.len() - 1);
                    Some(if others[at] == clip { others[others.len() - 1] } else { others[at] })
                }
                true => None,
            };
            let at_hand = other.and_then(|other| batch.clips.iter().position(|&clip| clip == other));
            let mut loaded = None;
            if let (Some(other), None) = (other, at_hand) {
                let length = self.shared.sizes[other as usize].frames as usize;
                let mut audio = self.shared.recycler.take(form.row_values(length));
                let read = self.load_clip(other, &mut audio, form.columns(length), None, workspace);
                loaded = read.ok().map(|_| (audio, length));
            }
            let (audio, stride, length) = match &loaded {
                Some((audio, length)) => (&audio[..], form.columns(*length), *length),
                None => from_batch(at_hand.unwrap_or(row)),
            };
            let kept = length.min(frames);
            let start = random.below(length - kept + 1);
            let (from, size) = (start * form.step, form.columns(kept));
            for (to, line) in out.chunks_exact_mut(form.columns(frames)).zip(audio.chunks_exact(stride)) {
                to[..size].copy_from_slice(&line[from..from + size]);
            }
            reference.lengths[row] = kept;
        }
        reference
    }
}
