//! Waveforms of sentences one after the other, with a pause and without a click, sentence by sentence: nothing of what
//! went before is kept.

/// Milliseconds over which the ends of a sentence fade: a jump to silence is heard as a click.
const FADE_MS: f64 = 5.0;

/// Joins the waveforms of sentences.
#[derive(Clone, Debug)]
pub struct Joiner {
    pause_samples: usize,
    fade_samples: usize,
    /// Samples so far.
    written: u64,
}

/// What a sentence adds to the whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Joined {
    /// The pause before the sentence, unless it is the first, and its waveform.
    pub samples: Vec<f32>,
    /// Sample of the whole at which the sentence starts.
    pub start: u64,
    /// Sample of the whole at which it ends.
    pub end: u64,
}

impl Joiner {
    /// With so many seconds of silence between two sentences.
    pub fn new(pause: f64, sample_rate: u32) -> Joiner {
        let samples = |seconds: f64| (seconds.max(0.0) * f64::from(sample_rate)).round() as usize;
        Joiner { pause_samples: samples(pause), fade_samples: samples(FADE_MS / 1000.0), written: 0 }
    }

    /// The next sentence.
    pub fn join(&mut self, sentence: &[f32]) -> Joined {
        let pause = if self.written == 0 { 0 } else { self.pause_samples };
        let mut samples = vec![0.0; pause + sentence.len()];
        let faded = &mut samples[pause..];
        faded.copy_from_slice(sentence);
        let (count, fade) = (sentence.len(), self.fade_samples.min(sentence.len() / 2));
        for n in 0..fade {
            // From silence and back to it: the outermost samples are nearly 0.
            let gain = (n as f32 + 0.5) / fade as f32;
            faded[n] *= gain;
            faded[count - 1 - n] *= gain;
        }
        let start = self.written + pause as u64;
        self.written = start + count as u64;
        Joined { samples, start, end: self.written }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joins_do_not_click_whatever_the_pause() {
        for pause in [0.0, 0.1] {
            let mut joiner = Joiner::new(pause, 22_050);
            let mut whole = Vec::new();
            for sign in [1.0, -1.0, 1.0] {
                let joined = joiner.join(&vec![0.9 * sign; 2205]);
                whole.extend(joined.samples);
                assert_eq!((joined.end - joined.start, joined.end), (2205, whole.len() as u64));
            }
            assert_eq!(whole.len(), 3 * 2205 + 2 * (pause * 22_050.0) as usize);
            let steepest =
                whole.windows(2).map(|pair| (pair[1] - pair[0]).abs()).max_by(f32::total_cmp).expect("values");
            assert!(steepest < 0.02, "{steepest}");
        }
    }

    #[test]
    fn the_shortest_sentence_is_no_trouble() {
        let mut joiner = Joiner::new(0.5, 10);
        assert!(joiner.join(&[]).samples.is_empty());
        assert_eq!(joiner.join(&[1.0]), Joined { samples: vec![1.0], start: 0, end: 1 });
        assert_eq!(joiner.join(&[0.5]), Joined { samples: vec![0.0, 0.0, 0.0, 0.0, 0.0, 0.5], start: 6, end: 7 });
    }
}
