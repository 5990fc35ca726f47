//! One clip, from its file or the cache into its place in a batch: decode, trim, resample, features, pitch.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::Ordering;

use tandem_audio::{Decoder, LogMel, PitchTracker, Resampler};

use super::{Counters, Loader};
use crate::batch::{Form, Layout};
use crate::cache::{Cache, CacheMode};
use crate::fault::ClipFault;

thread_local!(static WORKSPACE: RefCell<Option<Workspace>> = const { RefCell::new(None) });

/// What one thread works in. Kept from batch to batch.
pub(super) struct Workspace {
    owner: u64,
    decoder: Decoder,
    log_mel: LogMel,
    tracker: PitchTracker,
    resamplers: Vec<Resampler>,
    samples: Vec<f32>,
    mel: Vec<f32>,
    bytes: Vec<u8>,
    /// Audio files of the batch that came from far away and are not decoded yet.
    pub(super) fetched: HashMap<u32, Result<Vec<u8>, ClipFault>>,
}

impl Loader {
    /// The audio of a clip (and its pitch) into its place in the batch, in the batch's form; returns the ids of its text.
    pub(super) fn load_clip(
        &self,
        clip: u32,
        out: &mut [f32],
        stride: usize,
        mut pitch: Option<&mut [f32]>,
        workspace: &mut Workspace,
    ) -> Result<Vec<u32>, ClipFault> {
        let corpus = &self.shared.corpus;
        let ids = Counters::time(&self.shared.counters.text_ns, || corpus.token_ids(clip))
            .map_err(|error| ClipFault::Audio(error.into()))?;
        let settings = self.shared.template.settings();
        let frames = self.shared.sizes[clip as usize].frames as usize;
        let form = if self.form.layout == Layout::Frames { Form::log_mel(settings) } else { self.form };
        let (bands, columns) = (form.bands, form.columns(frames));
        let Workspace { samples, mel, bytes, .. } = workspace;
        let key = match self.cache.mode() {
            CacheMode::Off => None,
            _ => Some(self.cache.key(corpus.audio_identity(clip)?)),
        };
        if let Some(key) = key {
            let found = Counters::time(&self.shared.counters.cache_ns, || match &self.settings.normalize {
                Some(stats) if !self.settings.as_signal => {
                    self.cache.load_frames(key, (bands, columns), stats, out, bytes, mel)
                }
                _ => self.cache.load(key, bands, columns, out, stride, bytes),
            });
            let pitch_found = pitch
                .as_deref_mut()
                .is_none_or(|pitch| self.cache.find(Cache::pitch_key(key), 1, frames, pitch, frames, bytes));
            if found && pitch_found {
                return Ok(ids);
            }
        }
        self.shared.counters.decoded.fetch_add(1, Ordering::Relaxed);
        let padding = settings.padding_samples();
        samples.clear();
        samples.resize(padding, 0.0);
        let fetched = workspace.fetched.remove(&clip);
        let shape = Counters::time(&self.shared.counters.decode_ns, || {
            corpus.decode_fetched(clip, fetched, &mut workspace.decoder, samples)
        })?;
        if shape.rate != settings.sample_rate {
            Counters::time(&self.shared.counters.resample_ns, || {
                workspace.resample(shape.rate, settings.sample_rate, padding)
            })?;
        }
        let Workspace { samples, mel, log_mel, tracker, .. } = workspace;
        if settings.frames(samples.len() - padding) != frames {
            return Err(ClipFault::Changed);
        }
        if let Some(pitch) = pitch {
            let track = || pitch[..frames].copy_from_slice(&tracker.track(&samples[padding..], frames));
            Counters::time(&self.shared.counters.features_ns, track);
            if let Some(key) = key {
                self.cache.keep(Cache::pitch_key(key), 1, frames, pitch, frames);
            }
        }
        // Normalized frames are made of log-mel that is at hand for the cache.
        let normalize = self.settings.normalize.as_ref().filter(|_| !self.settings.as_signal);
        if normalize.is_some() {
            mel.resize(bands * columns, 0.0);
        }
        Counters::time(&self.shared.counters.features_ns, || match normalize {
            _ if self.settings.as_signal => {
                settings.pad(samples);
                out[..columns].copy_from_slice(&samples[..columns]);
            }
            None => {
                log_mel.compute_into(samples, out, stride);
            }
            Some(stats) => {
                log_mel.compute_into(samples, mel, columns);
                stats.normalize(mel, columns, columns, out);
            }
        });
        if let Some(key) = key {
            let (values, stride) = if normalize.is_some() { (&mel[..], columns) } else { (&*out, stride) };
            Counters::time(&self.shared.counters.cache_ns, || self.cache.store(key, bands, columns, values, stride));
        }
        Ok(ids)
    }

    /// Puts a clip's features into the cache, if they are not there. Returns whether work was done.
    ///
    /// # Errors
    ///
    /// [`ClipFault`] if the clip cannot be used any more.
    ///
    /// # Panics
    ///
    /// If `clip` is not below [`Corpus::len`](crate::Corpus::len).
    pub fn prepare(&self, clip: u32) -> Result<bool, ClipFault> {
        let key = self.cache.key(self.shared.corpus.audio_identity(clip)?);
        if self.cache.has(key) && (!self.settings.pitch || self.cache.has(Cache::pitch_key(key))) {
            return Ok(false);
        }
        let frames = self.shared.sizes[clip as usize].frames as usize;
        let mut out = self.shared.recycler.take(self.form.row_values(frames));
        let mut pitch = self.settings.pitch.then(|| vec![0.0; frames]);
        self.with_workspace(|workspace| {
            self.load_clip(clip, &mut out, self.form.columns(frames), pitch.as_deref_mut(), workspace)
        })?;
        Ok(true)
    }

    /// This thread's workspace, made for this loader when it is first used.
    pub(super) fn with_workspace<R>(&self, work: impl FnOnce(&mut Workspace) -> R) -> R {
        let mel = self.shared.template.settings();
        WORKSPACE.with_borrow_mut(|slot| {
            let mine = slot.take().filter(|workspace| workspace.owner == self.shared.number);
            let workspace = slot.insert(mine.unwrap_or_else(|| Workspace {
                owner: self.shared.number,
                decoder: Decoder::new(),
                log_mel: self.shared.template.another(),
                tracker: PitchTracker::new(mel.sample_rate, mel.hop_length),
                resamplers: Vec::new(),
                samples: Vec::new(),
                mel: Vec::new(),
                bytes: Vec::new(),
                fetched: HashMap::new(),
            }));
            work(workspace)
        })
    }
}

impl Workspace {
    fn resample(&mut self, from: u32, to: u32, start: usize) -> Result<(), ClipFault> {
        let known = self.resamplers.iter().position(|resampler| resampler.rates() == (from, to));
        let at = match known {
            Some(at) => at,
            None => {
                // Each takes a transform's memory; a corpus of many rates makes them again now and then.
                self.resamplers.truncate(3);
                self.resamplers.push(Resampler::new(from, to)?);
                self.resamplers.len() - 1
            }
        };
        self.resamplers[at].resample(&mut self.samples, start);
        Ok(())
    }
}
