//! [`SourceStream`]: the source of frames that arrive one after the other, for a waveform that is made in pieces.

use super::excitation::Excitation;
use super::{Prior, SourceFilter};

/// Frames that wait for their neighbors, and the excitation of them.
pub struct SourceStream {
    excitation: Excitation,
    /// The first of the frames that are kept.
    first: usize,
    /// Their log-mel, frame by frame.
    mel: Vec<Vec<f32>>,
    /// Their pitch in Hz.
    pitch: Vec<f32>,
    /// Their excitation: pulses and noise, from the first sample of the first frame on.
    pulses: Vec<f32>,
    noise: Vec<f32>,
}

/// `[n_mels][frames]` as frames.
pub(super) fn by_frame(log_mel: &[f32], frames: usize) -> impl Iterator<Item = Vec<f32>> {
    let bands = log_mel.len() / frames.max(1);
    (0..frames).map(move |frame| (0..bands).map(|band| log_mel[band * frames + frame]).collect())
}

/// Frames as `[n_mels][frames]`.
pub(super) fn by_band(frames: &[Vec<f32>], n_mels: usize) -> Vec<f32> {
    (0..n_mels).flat_map(|band| frames.iter().map(move |bands| bands[band])).collect()
}

impl std::fmt::Debug for SourceStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SourceStream").field("first", &self.first).field("frames", &self.mel.len()).finish()
    }
}

impl SourceStream {
    pub(super) fn new(excitation: Excitation) -> SourceStream {
        let (mel, pitch, pulses, noise) = Default::default();
        SourceStream { excitation, first: 0, mel, pitch, pulses, noise }
    }

    /// Adds frames, `[n_mels][frames]`, with their pitch.
    ///
    /// # Panics
    ///
    /// If there are fewer values than that.
    pub fn push(&mut self, log_mel: &[f32], pitch: &[f32]) {
        self.mel.extend(by_frame(log_mel, pitch.len()));
        self.pitch.extend_from_slice(pitch);
    }

    /// Frames that there were so far.
    pub fn frames(&self) -> usize {
        self.first + self.mel.len()
    }

    /// The first frame that is kept.
    pub fn first(&self) -> usize {
        self.first
    }

    /// Forgets the frames before this one, whose source was made.
    pub fn forget(&mut self, source: &SourceFilter, before: usize) {
        let hop = source.mel().hop_length;
        let count = before.saturating_sub(self.first).min(self.mel.len()).min(self.pulses.len() / hop);
        self.first += count;
        self.mel.drain(..count);
        self.pitch.drain(..count);
        self.pulses.drain(..count * hop);
        self.noise.drain(..count * hop);
    }

    /// Frames whose source can be made: of the last ones that there are, the samples reach into frames that are still to come.
    pub fn ready(&self, source: &SourceFilter) -> usize {
        let settings = source.mel();
        self.frames().saturating_sub(settings.n_fft.div_ceil(settings.hop_length) + 1)
    }

    /// The frames from the first that is kept up to `end`: log-mel, `[n_mels][frames]`, pitch and source. At most [`SourceStream::ready`]
    /// frames, or all when no more will come.
    pub fn prior(&mut self, source: &SourceFilter, end: usize) -> (Vec<f32>, Vec<f32>, Prior) {
        let (settings, first) = (source.mel(), self.first);
        let (frames, last) = (end - first, self.pitch.len().saturating_sub(1));
        let pitch = |frame: usize| self.pitch.get((frame - first).min(last)).copied().unwrap_or(0.0);
        self.excitation.extend(settings.signal_samples(end), pitch, &mut self.pulses, &mut self.noise);
        let mel = by_band(&self.mel[..frames], settings.n_mels);
        let pitch = self.pitch[..frames].to_vec();
        let prior = source.filter(&mel, &pitch, &self.pulses, &self.noise);
        (mel, pitch, prior)
    }
}
