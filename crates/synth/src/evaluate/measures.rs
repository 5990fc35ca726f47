//! How far speech is from the recording of the same text: mel-cepstral distortion, F0, voicing, long-term spectrum, durations. Each for
//! the voice and for the copy-synthesis of the true mel, which no voice with the same vocoder can be expected to beat.

use rayon::prelude::*;
use serde::Serialize;
use tandem_audio::{
    AudioError, CEPSTRUM_PERIOD, Decoder, MelCepstrum, MelSettings, PitchTracker, Resampler, distortion, mel_cepstra,
    warp_cepstra,
};
use tandem_data::{ClipFault, Corpus};

use super::HeldOutBatch;
use crate::sampler::SynthesisSettings;
use crate::synthesizer::{Speech, SynthesisError, Synthesizer};

/// Frames this much quieter than the loudest (logarithm of the power) say nothing about a speaker: 30 dB.
const AUDIBLE: f64 = 6.9;

/// Why a clip cannot be compared.
#[derive(Debug)]
pub enum MeasureError {
    /// It cannot be synthesized.
    Synthesis(SynthesisError),
    /// The recording of this clip cannot be read any more.
    Recording(String, ClipFault),
}

impl std::fmt::Display for MeasureError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MeasureError::Synthesis(error) => write!(f, "{error}"),
            MeasureError::Recording(id, fault) => write!(f, "{id}: {fault}"),
        }
    }
}

impl std::error::Error for MeasureError {}

impl From<SynthesisError> for MeasureError {
    fn from(error: SynthesisError) -> Self {
        MeasureError::Synthesis(error)
    }
}

/// How far speech is from recordings. What has no value (no frame that is voiced in both, say) is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Distance {
    /// Mel-cepstral distortion in dB, equal to `pymcd`'s with dynamic time warping.
    pub mcd_db: Option<f64>,
    /// Median distance of F0 in cents, over frames that are voiced in both, after time warping.
    pub f0_cents_median: Option<f64>,
    /// Root of the mean square of the same.
    pub f0_cents_rmse: Option<f64>,
    /// F1 of "this frame is voiced", after time warping.
    pub voiced_f1: Option<f64>,
    /// Cosine of the long-term spectra (mean and spread of the mel-cepstra over audible frames): a plain statistic of the speaker and
    /// the channel, no speaker recognition.
    pub spectrum_cosine: Option<f64>,
}

/// How far one clip is from its recording.
#[derive(Clone, Debug, Serialize)]
pub struct ClipMeasures {
    /// Its id.
    pub id: String,
    /// What the voice makes of its text.
    pub synthesis: Distance,
    /// What the vocoder makes of its true mel.
    pub copy_synthesis: Distance,
    /// Mean of |predicted - aligned| of its tokens, in milliseconds.
    pub token_duration_error_ms: f64,
    /// |predicted - true| / true length.
    pub length_error: f64,
}

/// How far a voice is from the recordings of held-out clips.
#[derive(Clone, Debug, Serialize)]
pub struct Measures {
    /// Clips that were compared.
    pub clips: usize,
    /// What the voice makes of the texts; F0 and voicing over the frames of all clips, the others means of clips.
    pub synthesis: Distance,
    /// What the vocoder makes of the true mels.
    pub copy_synthesis: Distance,
    /// Mean of |predicted - aligned| of a token, in milliseconds.
    pub token_duration_error_ms: f64,
    /// Mean of |predicted - true| / true length of a clip.
    pub length_error: f64,
    /// Mean cosine of the long-term spectra of recordings of different speakers; none when there is one speaker.
    pub spectrum_cosine_of_other_speakers: Option<f64>,
    /// Each clip, the one with the highest distortion first.
    pub worst: Vec<ClipMeasures>,
}

/// A held-out clip: recorded, synthesized, and its true mel through the vocoder.
#[derive(Clone, Debug)]
pub struct SpokenClip {
    /// Its number in the corpus.
    pub clip: u32,
    /// Its id.
    pub id: String,
    /// The recording, at the rate of the voice; its true mel and the durations that the aligner finds.
    pub recording: Speech,
    /// What the voice makes of its text.
    pub synthesis: Speech,
    /// What the vocoder makes of its true mel.
    pub copy_synthesis: Speech,
    compared: [Comparison; 2],
    spectrum: Vec<f64>,
    speaker: u16,
    measures: ClipMeasures,
}

impl SpokenClip {
    /// How far it is from its recording.
    pub fn measures(&self) -> &ClipMeasures {
        &self.measures
    }

    /// The same without the waveforms, for [`Measures::of`].
    pub fn into_figures(self) -> ClipFigures {
        let SpokenClip { compared, spectrum, speaker, measures, recording, .. } = self;
        ClipFigures { compared, spectrum, speaker, measures, tokens: recording.durations.len() }
    }
}

/// What [`Measures::of`] needs to know of a clip.
#[derive(Clone, Debug)]
pub struct ClipFigures {
    compared: [Comparison; 2],
    spectrum: Vec<f64>,
    speaker: u16,
    measures: ClipMeasures,
    tokens: usize,
}

/// Synthesizes the clips of a batch and compares them with their recordings; `on_clip` is called for each.
pub fn speak_batch(
    synthesizer: &Synthesizer,
    corpus: &Corpus,
    batch: &HeldOutBatch,
    settings: SynthesisSettings,
    on_clip: &(dyn Fn() + Sync),
) -> Result<Vec<SpokenClip>, MeasureError> {
    let inputs = batch.inputs.clone().upload(&synthesizer.input_shape(), synthesizer.device());
    let aligned = synthesizer.model().alignment(&inputs);
    let spoken = synthesizer.synthesize_clips(&inputs, None, settings)?;
    let rows: Vec<usize> = (0..batch.clips.len()).collect();
    let of_row = |&row: &usize| {
        let clip = batch.clips[row];
        let host = &batch.inputs;
        let (frames, size) = (host.mel_lengths[row], host.frames * host.n_mels);
        let mel = synthesizer.bundle().stats.restore(&host.mel[row * size..(row + 1) * size], frames);
        let pitch = host.pitch[row * host.frames..][..frames].to_vec();
        let copy = synthesizer.resynthesize(mel.clone(), frames, aligned[row].clone(), pitch.clone())?;
        let (id, _) = corpus.name(clip);
        let settings = &synthesizer.bundle().mel;
        let samples =
            read_recording(corpus, clip, settings).map_err(|fault| MeasureError::Recording(id.clone(), fault))?;
        let sample_rate = settings.sample_rate;
        let recording = Speech { samples, sample_rate, mel, frames, durations: aligned[row].clone(), pitch };
        let speaker = corpus.entry(clip).speaker;
        let spoken = compare(clip, id, recording, spoken[row].clone(), copy, speaker, settings)?;
        on_clip();
        Ok(spoken)
    };
    rows.par_iter().map(of_row).collect()
}

impl Measures {
    /// Of all clips together.
    pub fn of(clips: Vec<ClipFigures>) -> Measures {
        let together = |side: usize| Comparison::together(clips.iter().map(|clip| &clip.compared[side]));
        let tokens: usize = clips.iter().map(|clip| clip.tokens).sum();
        let weighted = clips.iter().map(|clip| clip.measures.token_duration_error_ms * clip.tokens as f64).sum::<f64>();
        let lengths = mean(clips.iter().map(|clip| clip.measures.length_error)).unwrap_or(0.0);
        let pairs = (clips.iter().enumerate())
            .flat_map(|(n, a)| clips[..n].iter().map(move |b| (a, b)))
            .filter(|(a, b)| a.speaker != b.speaker)
            .filter_map(|(a, b)| cosine(&a.spectrum, &b.spectrum));
        let (synthesis, copy_synthesis, spectrum_cosine_of_other_speakers) = (together(0), together(1), mean(pairs));
        let mut worst: Vec<ClipMeasures> = clips.into_iter().map(|clip| clip.measures).collect();
        let distortion = |clip: &ClipMeasures| clip.synthesis.mcd_db.unwrap_or(0.0);
        worst.sort_by(|a, b| distortion(b).total_cmp(&distortion(a)));
        Measures {
            clips: worst.len(),
            synthesis,
            copy_synthesis,
            token_duration_error_ms: weighted / tokens.max(1) as f64,
            length_error: lengths,
            spectrum_cosine_of_other_speakers,
            worst,
        }
    }
}

/// The samples of a clip, at the rate of the features.
///
/// # Errors
///
/// [`ClipFault`] if it cannot be read any more.
pub fn read_recording(corpus: &Corpus, clip: u32, settings: &MelSettings) -> Result<Vec<f32>, ClipFault> {
    let mut samples = Vec::new();
    let shape = corpus.decode(clip, &mut Decoder::new(), &mut samples)?;
    if shape.rate != settings.sample_rate {
        Resampler::new(shape.rate, settings.sample_rate)?.resample(&mut samples, 0);
    }
    Ok(samples)
}

fn compare(
    clip: u32,
    id: String,
    recording: Speech,
    synthesis: Speech,
    copy_synthesis: Speech,
    speaker: u16,
    settings: &MelSettings,
) -> Result<SpokenClip, MeasureError> {
    let failed = |error: AudioError| MeasureError::Recording(id.clone(), ClipFault::Audio(error));
    let truth = Analysis::new(&recording, settings).map_err(failed)?;
    let side = |speech: &Speech| Analysis::new(speech, settings).map(|other| Comparison::new(&truth, &other));
    let compared = [side(&synthesis).map_err(failed)?, side(&copy_synthesis).map_err(failed)?];
    let hop_ms = 1000.0 * settings.hop_length as f64 / f64::from(settings.sample_rate);
    let off = |(a, b): (&u32, &u32)| f64::from(a.abs_diff(*b)) * hop_ms;
    let predicted: u32 = synthesis.durations.iter().sum();
    let measures = ClipMeasures {
        id: id.clone(),
        synthesis: Comparison::together([&compared[0]].into_iter()),
        copy_synthesis: Comparison::together([&compared[1]].into_iter()),
        token_duration_error_ms: mean(synthesis.durations.iter().zip(&recording.durations).map(off)).unwrap_or(0.0),
        length_error: (f64::from(predicted) - recording.frames as f64).abs() / recording.frames.max(1) as f64,
    };
    Ok(SpokenClip {
        clip,
        id,
        recording,
        synthesis,
        copy_synthesis,
        compared,
        spectrum: truth.spectrum,
        speaker,
        measures,
    })
}

/// What is compared of a waveform.
struct Analysis {
    cepstra: Vec<MelCepstrum>,
    pitch: Vec<f32>,
    /// Frames of the pitch for each mel-cepstrum.
    pitch_step: f64,
    /// Means and standard deviations of the mel-cepstra, loudness aside, over audible frames.
    spectrum: Vec<f64>,
}

impl Analysis {
    fn new(speech: &Speech, settings: &MelSettings) -> Result<Analysis, AudioError> {
        let cepstra = mel_cepstra(&speech.samples, speech.sample_rate)?;
        let mut tracker = PitchTracker::new(speech.sample_rate, settings.hop_length);
        let pitch = tracker.track(&speech.samples, settings.frames(speech.samples.len()));
        let pitch_step = CEPSTRUM_PERIOD * f64::from(speech.sample_rate) / settings.hop_length as f64;
        let spectrum = long_term_spectrum(&cepstra);
        Ok(Analysis { cepstra, pitch, pitch_step, spectrum })
    }

    /// The pitch at a mel-cepstrum, 0 where unvoiced.
    fn pitch_at(&self, frame: usize) -> f32 {
        let at = (frame as f64 * self.pitch_step).round() as usize;
        self.pitch.get(at.min(self.pitch.len().saturating_sub(1))).copied().unwrap_or(0.0)
    }
}

fn long_term_spectrum(cepstra: &[MelCepstrum]) -> Vec<f64> {
    let loudest = cepstra.iter().map(|frame| frame[0]).fold(f64::NEG_INFINITY, f64::max);
    let audible: Vec<&[f64]> =
        cepstra.iter().filter(|frame| frame[0] > loudest - AUDIBLE).map(|frame| &frame[1..]).collect();
    let bands = audible.first().map_or(0, |frame| frame.len());
    let of_band = |band: usize| audible.iter().map(move |frame| frame[band]);
    let means: Vec<f64> = (0..bands).filter_map(|band| mean(of_band(band))).collect();
    let spread = |band: usize| mean(of_band(band).map(|x| (x - means[band]) * (x - means[band]))).map(f64::sqrt);
    let spreads: Vec<f64> = (0..bands).filter_map(spread).collect();
    means.into_iter().chain(spreads).collect()
}

/// One waveform beside its recording, as counts that can be added up.
#[derive(Clone, Debug, Default)]
struct Comparison {
    mcd_db: Option<f64>,
    /// Of frames that are voiced in both.
    cents: Vec<f32>,
    /// Frames that are voiced in the recording, in the other, and in both.
    voiced: [usize; 3],
    cosine: Option<f64>,
}

impl Comparison {
    fn new(truth: &Analysis, other: &Analysis) -> Comparison {
        let path = warp_cepstra(&truth.cepstra, &other.cepstra);
        let mut comparison = Comparison {
            mcd_db: distortion(&truth.cepstra, &other.cepstra, &path),
            cosine: cosine(&truth.spectrum, &other.spectrum),
            ..Comparison::default()
        };
        for (i, j) in path {
            let (a, b) = (truth.pitch_at(i), other.pitch_at(j));
            let both = a > 0.0 && b > 0.0;
            for (count, is) in comparison.voiced.iter_mut().zip([a > 0.0, b > 0.0, both]) {
                *count += usize::from(is);
            }
            if both {
                comparison.cents.push(1200.0 * (b / a).log2());
            }
        }
        comparison
    }

    fn together<'a>(all: impl Iterator<Item = &'a Comparison> + Clone) -> Distance {
        let mut cents: Vec<f64> = all.clone().flat_map(|one| one.cents.iter().map(|&c| f64::from(c.abs()))).collect();
        let [truth, other, both] =
            all.clone().fold([0; 3], |sum: [usize; 3], one| std::array::from_fn(|n| sum[n] + one.voiced[n]));
        Distance {
            mcd_db: mean(all.clone().filter_map(|one| one.mcd_db)),
            f0_cents_rmse: mean(cents.iter().map(|c| c * c)).map(f64::sqrt),
            f0_cents_median: super::median(&mut cents),
            voiced_f1: (truth + other > 0).then(|| 2.0 * both as f64 / (truth + other) as f64),
            spectrum_cosine: mean(all.filter_map(|one| one.cosine)),
        }
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0usize), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / count as f64)
}

fn cosine(a: &[f64], b: &[f64]) -> Option<f64> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let size = (dot(a, a) * dot(b, b)).sqrt();
    (size > 0.0 && a.len() == b.len()).then(|| dot(a, b) / size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_audio::formant::{FormantVoice, speak};

    fn speech(pitch: f64, scale: f64, speed: f64) -> Speech {
        let voice = FormantVoice { pitch, formant_scale: scale, breath: 0.1, speed };
        // Always the same lengths, so that only what is asked for differs.
        let (samples, timing) = speak("a lemon on a narrow road. a small animal", &voice, 22_050, || 0.5);
        let frames = samples.len() / 256 + 1;
        let durations = timing.iter().map(|sound| ((sound.end - sound.start) / 256) as u32).collect();
        Speech {
            samples,
            sample_rate: 22_050,
            mel: vec![0.0; 80 * frames],
            frames,
            durations,
            pitch: vec![0.0; frames],
        }
    }

    fn clip(recording: Speech, synthesis: Speech, copy: Speech) -> SpokenClip {
        compare(0, "x".to_owned(), recording, synthesis, copy, 0, &MelSettings::default()).expect("can be read")
    }

    #[test]
    fn each_measure_sees_what_it_is_for_and_nothing_else() {
        let truth = || speech(120.0, 1.0, 1.0);
        // A third higher in pitch; as slow again; another vocal tract.
        let higher = clip(truth(), speech(150.0, 1.0, 1.0), truth());
        let slower = clip(truth(), speech(120.0, 1.0, 0.5), truth());
        let other = clip(truth(), speech(120.0, 1.35, 1.0), truth());
        let copy = &higher.measures.copy_synthesis;
        assert_eq!((copy.mcd_db, copy.f0_cents_rmse, copy.voiced_f1), (Some(0.0), Some(0.0), Some(1.0)));
        assert!(copy.spectrum_cosine.expect("frames") > 0.999_999);
        let cents = higher.measures.synthesis.f0_cents_median.expect("voiced");
        assert!((cents - 386.0).abs() < 15.0, "{cents}");
        assert_eq!(higher.measures.token_duration_error_ms, 0.0);
        assert!((slower.measures.length_error - 1.0).abs() < 0.1);
        assert!(slower.measures.token_duration_error_ms > 30.0);
        assert!(slower.measures.synthesis.f0_cents_median.expect("voiced") < 60.0);
        let mcd = |clip: &SpokenClip| clip.measures.synthesis.mcd_db.expect("frames");
        assert!(mcd(&other) > mcd(&slower), "{} and {}", mcd(&other), mcd(&slower));
        let cosine = |clip: &SpokenClip| clip.measures.synthesis.spectrum_cosine.expect("frames");
        assert!(cosine(&other) < cosine(&slower) && cosine(&other) < cosine(&higher));
    }

    #[test]
    fn noise_has_no_pitch_and_is_voiced_nowhere() {
        let mut state = 1u32;
        let mut noise = speech(120.0, 1.0, 1.0);
        noise.samples.iter_mut().for_each(|sample| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *sample = (state >> 8) as f32 / (1 << 24) as f32 - 0.5;
        });
        let clip = clip(speech(120.0, 1.0, 1.0), noise, speech(120.0, 1.0, 1.0));
        assert!(clip.measures.synthesis.voiced_f1.expect("voiced") < 0.1);
        let all = Measures::of(vec![clip.into_figures()]);
        assert_eq!((all.clips, all.copy_synthesis.mcd_db), (1, Some(0.0)));
        assert_eq!(all.spectrum_cosine_of_other_speakers, None);
        assert!(all.synthesis.mcd_db.expect("frames") > 5.0);
    }
}
