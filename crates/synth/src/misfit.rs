//! Clips whose text does not fit their audio, as a trained voice hears it.

use serde::Serialize;

use crate::evaluate::HeldOutBatch;
use crate::synthesizer::Synthesizer;

/// Robust standard deviations above the median from which a clip is odd. Measured on 1,061 clips of a real speaker with a voice of
/// 1,000 steps: the one clip whose recording is of another sentence is at 7.0, all others are below 4.3. Of 120 clips that were given
/// the text of another clip all are found, of as many whose second half is another text 77, of those with a dozen other phonemes 53 (with
/// 5.0). On the demo's corpus, whose texts are all right, the oddest clip is at 5.2, and clips with each other's texts are at 29 and 33.
const ODD: f64 = 6.0;
/// With fewer clips nobody knows what is usual.
const FEWEST: usize = 8;

/// How badly the audio of a clip fits its text.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Misfit {
    /// Its number in the corpus.
    pub clip: u32,
    /// Mean squared distance of its frames from what the aligner expects of its tokens, in a ratio to that from the nearest
    /// symbol of all. Without the ratio the loudest, noisiest or hoarsest session of a corpus is what is found (12 clips of that
    /// speaker, each with its right text, and the wrong one not among them).
    pub value: f64,
    /// How far that is above the corpus' median, in robust standard deviations.
    pub deviations: f64,
}

/// How badly the clips of a batch fit their texts. `deviations` are not known yet: see [`odd_misfits`].
pub fn misfits(synthesizer: &Synthesizer, batch: &HeldOutBatch) -> Vec<Misfit> {
    let inputs = batch.inputs.clone().upload(&synthesizer.input_shape(), synthesizer.device());
    let values = synthesizer.model().misfits(&inputs);
    batch.clips.iter().zip(values).map(|(&clip, value)| Misfit { clip, value, deviations: 0.0 }).collect()
}

/// Those that fit much worse than the corpus' median, the worst first. Few wrong texts do not move a median.
pub fn odd_misfits(mut all: Vec<Misfit>) -> Vec<Misfit> {
    if all.len() < FEWEST {
        return Vec::new();
    }
    let middle = median(all.iter().map(|misfit| misfit.value).collect());
    // What fits badly is to be found: the spread is that of the better half, which wrong texts are not in.
    let spread = median(all.iter().map(|misfit| middle - misfit.value).filter(|&off| off >= 0.0).collect());
    // A corpus that is very even has no odd clips: at least a twentieth of the median.
    let unit = (1.4826 * spread).max(0.05 * middle).max(f64::MIN_POSITIVE);
    all.iter_mut().for_each(|misfit| misfit.deviations = (misfit.value - middle) / unit);
    all.retain(|misfit| misfit.deviations > ODD || misfit.value.is_nan());
    all.sort_by(|a, b| b.value.total_cmp(&a.value));
    all
}

/// What is said about such a clip.
pub fn misfit_reason(misfit: &Misfit) -> String {
    let text = format!(
        "its audio is {:.1} deviations further from its text than usual: does the text belong to it?",
        misfit.deviations
    );
    text
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(values: impl IntoIterator<Item = f64>) -> Vec<Misfit> {
        values.into_iter().zip(0..).map(|(value, clip)| Misfit { clip, value, deviations: 0.0 }).collect()
    }

    #[test]
    fn only_what_is_far_above_the_others_is_odd_and_the_worst_comes_first() {
        let usual = |n: u32| 0.5 + 0.01 * f64::from(n % 7);
        let mut values = all((0..100).map(usual));
        assert_eq!(odd_misfits(values.clone()), []);
        values[40].value = 1.3;
        values[70].value = 0.9;
        // Better than all others is not odd.
        values[5].value = 0.1;
        let found = odd_misfits(values);
        assert_eq!(found.iter().map(|misfit| misfit.clip).collect::<Vec<_>>(), [40, 70]);
        assert!(found[0].deviations > found[1].deviations && found[1].deviations > ODD);
        assert_eq!(odd_misfits(all([0.5, 0.5, 9.0])), [], "three clips say nothing");
    }
}
