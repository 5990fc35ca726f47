//! Which clips to look at first: those that may have been cut badly.

use super::SegmentedClip;

/// Robust standard deviations from the median from which a speech rate is odd.
const ODD_RATE: f64 = 3.0;
/// Clips from which there is a median.
const ENOUGH: usize = 5;
/// Decibels above a pause from which an edge is in a word: a breath is less.
const LOUD_DB: f64 = 3.0;
/// A clip that is so short is looked at, in seconds.
const SHORT_S: f64 = 1.5;

/// What is odd about a clip.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Oddity {
    /// Its first sound is cut off, by so many decibels above a pause.
    LoudStart(f64),
    /// Its last sound is cut off.
    LoudEnd(f64),
    /// More text a second than usual: times as much.
    Fast(f64),
    /// Less text a second than usual.
    Slow(f64),
    /// It is short.
    Short,
}

/// The clips by their numbers, the oddest first, the shorter of two that are equally odd.
pub fn odd_clips(clips: &[SegmentedClip]) -> Vec<(usize, Vec<Oddity>)> {
    let rates: Vec<f64> =
        clips.iter().filter(|clip| !clip.cut.text.is_empty()).map(|clip| clip.cut.speech_rate()).collect();
    let usual = usual(&rates);
    let mut odd: Vec<(f64, f64, usize, Vec<Oddity>)> = Vec::with_capacity(clips.len());
    for (number, clip) in clips.iter().enumerate() {
        let (mut oddities, mut score) = (Vec::new(), 0.0);
        let (start_db, end_db) = clip.cut.edge_db;
        for (db, oddity) in [(start_db, Oddity::LoudStart(start_db)), (end_db, Oddity::LoudEnd(end_db))] {
            if db > LOUD_DB {
                oddities.push(oddity);
                score += db / 10.0;
            }
        }
        if let Some((median, deviation)) = usual.filter(|_| !clip.cut.text.is_empty()) {
            let rate = clip.cut.speech_rate();
            let off = (rate - median).abs() / deviation;
            if off > ODD_RATE {
                let times = rate / median;
                oddities.push(if times > 1.0 { Oddity::Fast(times) } else { Oddity::Slow(times) });
                score += off / ODD_RATE;
            }
        }
        if clip.cut.seconds() < SHORT_S {
            oddities.push(Oddity::Short);
            score += 0.2;
        }
        odd.push((score, clip.cut.seconds(), number, oddities));
    }
    odd.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)));
    odd.into_iter().map(|(_, _, number, oddities)| (number, oddities)).collect()
}

/// The median and a deviation from it that few odd values do not move; at least a tenth of the median.
fn usual(values: &[f64]) -> Option<(f64, f64)> {
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    let middle = median(values.to_vec()).filter(|&middle| values.len() >= ENOUGH && middle > 0.0)?;
    let deviation = median(values.iter().map(|value| (value - middle).abs()).collect())?;
    Some((middle, (1.4826 * deviation).max(0.1 * middle)))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::segment::Cut;

    #[test]
    fn the_oddest_come_first() {
        let clip = |seconds: f64, letters: usize, edge_db: (f64, f64)| {
            let cut = Cut {
                start: 0.0,
                end: seconds,
                speech_start: 0.1,
                speech_end: seconds - 0.1,
                text: "x".repeat(letters),
                speaker: None,
                captions: None,
                edge_db,
            };
            SegmentedClip { id: String::new(), recording: PathBuf::new(), cut, strip: String::new() }
        };
        let mut clips: Vec<SegmentedClip> = (0..20).map(|n| clip(4.0 + 0.1 * f64::from(n), 60, (0.0, 0.0))).collect();
        clips.push(clip(4.0, 60, (0.0, 20.0)));
        clips.push(clip(4.0, 9, (0.0, 0.0)));
        clips.push(clip(1.2, 16, (0.0, 1.0)));
        let odd = odd_clips(&clips);
        assert_eq!(odd.len(), clips.len());
        let first: Vec<usize> = odd.iter().take(4).map(|(number, _)| *number).collect();
        assert_eq!(first, [20, 21, 22, 0], "{odd:?}");
        assert!(matches!(odd[0].1[..], [Oddity::LoudEnd(_)]) && matches!(odd[1].1[..], [Oddity::Slow(_)]), "{odd:?}");
        assert_eq!(odd[3].1, []);
    }
}
