//! FastDTW with a radius of one (Salvador and Chan 2007): the warping of the two clips at half the rate says where to look.

/// Pairs of frames that belong together, from the first of both to the last of both; none if one side is empty. Equal to
/// `fastdtw(a, b, dist=euclidean)` (PyPI).
pub(super) fn warp(a: &[Vec<f64>], b: &[Vec<f64>]) -> Vec<(usize, usize)> {
    if a.is_empty() || b.is_empty() {
        return Vec::new();
    }
    if a.len() < 3 || b.len() < 3 {
        return search(a, b, &vec![(0, b.len()); a.len()]);
    }
    let path = warp(&halve(a), &halve(b));
    // For each frame of `a` at half the rate, and one before and after, what was found and one around it.
    let mut around = vec![(usize::MAX, 0); a.len() / 2 + 2];
    for (i, j) in path {
        for columns in &mut around[i.saturating_sub(1)..=i + 1] {
            *columns = (columns.0.min(j.saturating_sub(1)), columns.1.max(j + 2));
        }
    }
    let window: Vec<(usize, usize)> =
        (0..a.len()).map(|row| (2 * around[row / 2].0, (2 * around[row / 2].1).min(b.len()))).collect();
    search(a, b, &window)
}

/// Euclidean.
pub(super) fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt()
}

/// Means of pairs; a last one without partner is left aside.
fn halve(frames: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mean = |pair: &[Vec<f64>]| pair[0].iter().zip(&pair[1]).map(|(a, b)| (a + b) / 2.0).collect();
    frames.chunks_exact(2).map(mean).collect()
}

/// The cheapest path through the cells from `window[i].0` to before `window[i].1` of each row `i`.
fn search(a: &[Vec<f64>], b: &[Vec<f64>], window: &[(usize, usize)]) -> Vec<(usize, usize)> {
    /// Where the path comes from: the row above, the column before, or both.
    #[derive(Clone, Copy)]
    enum From {
        Row,
        Column,
        Both,
    }
    let mut ways: Vec<Vec<From>> = Vec::with_capacity(a.len());
    let mut above: Vec<f64> = Vec::new();
    for (i, &(first, end)) in window.iter().enumerate() {
        let over = |j: Option<usize>| {
            let at = j.zip(i.checked_sub(1)).and_then(|(j, row)| j.checked_sub(window[row].0));
            at.and_then(|at| above.get(at)).copied().unwrap_or(f64::INFINITY)
        };
        let (mut costs, mut from) = (Vec::with_capacity(end - first), Vec::with_capacity(end - first));
        for (j, frame) in (first..end).zip(&b[first..end]) {
            let before = costs.last().copied().unwrap_or(f64::INFINITY);
            let both = if i == 0 && j == 0 { 0.0 } else { over(j.checked_sub(1)) };
            // Of equal costs the first in this order.
            let (mut best, mut way) = (over(Some(j)), From::Row);
            for (cost, other) in [(before, From::Column), (both, From::Both)] {
                if cost < best {
                    (best, way) = (cost, other);
                }
            }
            costs.push(best + distance(&a[i], frame));
            from.push(way);
        }
        ways.push(from);
        above = costs;
    }
    let (mut i, mut j) = (a.len() - 1, b.len() - 1);
    let mut path = vec![(i, j)];
    while (i, j) != (0, 0) {
        match ways[i][j - window[i].0] {
            From::Row => i -= 1,
            From::Column => j -= 1,
            From::Both => (i, j) = (i - 1, j - 1),
        }
        path.push((i, j));
    }
    path.reverse();
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_goes_from_the_first_to_the_last_without_gaps() {
        let frames = |values: &[f64]| values.iter().map(|&x| vec![x]).collect::<Vec<_>>();
        // fastdtw([1, 2, 3, 4, 5], [2, 3, 4])
        let path = warp(&frames(&[1.0, 2.0, 3.0, 4.0, 5.0]), &frames(&[2.0, 3.0, 4.0]));
        assert_eq!(path, [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2)]);
        for (long, short) in [(1, 1), (1, 9), (40, 3), (101, 37), (64, 200)] {
            let wave = |n: usize| (0..n).map(|k| vec![(k as f64 / n as f64 * 7.0).sin()]).collect::<Vec<_>>();
            let path = warp(&wave(long), &wave(short));
            assert_eq!((path[0], path[path.len() - 1]), ((0, 0), (long - 1, short - 1)));
            let steps = path.windows(2).all(|pair| {
                let step = (pair[1].0 - pair[0].0, pair[1].1 - pair[0].1);
                [(0, 1), (1, 0), (1, 1)].contains(&step)
            });
            assert!(steps, "{path:?}");
        }
    }
}
