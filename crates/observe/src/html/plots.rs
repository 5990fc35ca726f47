//! The plots of the HTML report as inline SVG. They run from left to right in every language; a side without data gets
//! none, and with two sides both have the same scale.

use tandem_flow::Stage;

use super::{Label, escape, number, sane, stage};
use crate::run_report::{Line, Side};
use crate::stage_profile::GAPS;

/// The rows of a profile in their order, which is also that of their inks.
pub(crate) const ROWS: [&str; 5] =
    [Stage::Load.name(), Stage::Preprocess.name(), Stage::Transfer.name(), Stage::Train.name(), GAPS];
const INKS: usize = 6;
const GREY: usize = 4;

const TOP: f64 = 30.0;
const BOTTOM: f64 = 46.0;
const RIGHT: f64 = 18.0;
/// Up to so many spans of a stage are drawn one by one, with a seam between them.
const ONE_BY_ONE: usize = 200;
/// Up to so many spans at once are drawn below each other.
const MOST_TRACKS: usize = 8;
/// What is thinner or nearer than this melts together, which bounds the size of the file.
const THIN: f64 = 0.5;

/// A plot, and what its caption explains.
pub(crate) struct Plot {
    /// The image.
    pub(crate) svg: String,
    /// Numbers of inks and what is drawn with them.
    pub(crate) legend: Vec<(usize, String)>,
    /// What a reader must know.
    pub(crate) note: Option<String>,
}

/// From values to pixels, and never by a division by nothing.
struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    log: bool,
}

impl Scale {
    fn new((low, high): (f64, f64), from: f64, to: f64) -> Scale {
        let margin = if high - low > 1e-9 * high.abs() { 0.0 } else { 0.1 * high.abs().max(1e-3) };
        Scale { low: low - margin, high: high + margin, from, to, log: false }
    }

    fn at(&self, value: f64) -> f64 {
        let place = |value: f64| if self.log { value.log10() } else { value };
        let share = (place(value) - place(self.low)) / (place(self.high) - place(self.low));
        self.from + (self.to - self.from) * share.clamp(0.0, 1.0)
    }

    /// A handful of round values in reach, with their texts.
    fn ticks(&self) -> Vec<(f64, String)> {
        let text = |value: f64, exponent: i32| (value, format!("{:.*}", (-exponent).max(0) as usize, value));
        if self.log {
            let exponents = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
            let decades = exponents.clone().count();
            let digits: &[f64] = if decades <= 4 { &[1.0, 2.0, 5.0] } else { &[1.0] };
            let all = exponents
                .step_by(decades.div_ceil(8))
                .flat_map(|exponent| digits.iter().map(move |digit| text(digit * 10f64.powi(exponent), exponent)));
            return all.filter(|(value, _)| (self.low..=self.high).contains(value)).collect();
        }
        let rough = (self.high - self.low) / 6.0;
        let exponent = rough.log10().floor() as i32;
        let step =
            [1.0, 2.0, 5.0, 10.0].map(|digit| digit * 10f64.powi(exponent)).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        let first = (self.low / step - 1e-6).ceil();
        let values =
            (0..12).map(|n| (first + f64::from(n)) * step).take_while(|value| *value <= self.high + 1e-6 * step);
        values.map(|value| text(value + 0.0, step.log10().floor() as i32)).collect()
    }
}

/// The least and the greatest of all values that can be drawn.
fn range(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    let sane = values.into_iter().filter(|value| sane(*value));
    sane.fold(None, |range, value| match range {
        None => Some((value, value)),
        Some((low, high)) => Some((value.min(low), value.max(high))),
    })
}

fn svg(width: f64, height: f64, name: &str, body: &str) -> String {
    // The style has a least and a greatest width for each: text of 14 units is then shown at 11 to 15 pixels, and a narrow page
    // scrolls the plot instead. A class, because pages that are served allow no style in attributes.
    format!(
        "<div class=\"scroll\" dir=\"ltr\"><svg class=\"w{width}\" viewBox=\"0 0 {width} {height}\" \
         role=\"img\" aria-label=\"{}\">{body}</svg></div>",
        escape(name)
    )
}

fn text(x: f64, y: f64, anchor: &str, text: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>", escape(text))
}

fn rule(class: &str, from: (f64, f64), to: (f64, f64)) -> String {
    format!("<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>", from.0, from.1, to.0, to.1)
}

fn bar(ink: usize, x: f64, y: f64, width: f64, height: f64) -> String {
    format!("<rect class=\"i{ink}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>")
}

/// Upright lines at round values, their texts, and the name of the axis below.
fn axis_x(scale: &Scale, top: f64, bottom: f64, name: &str) -> String {
    let tick = |(value, label): (f64, String)| {
        let x = scale.at(value);
        rule("grid", (x, top), (x, bottom)) + &text(x, bottom + 18.0, "middle", &label)
    };
    let ticks: String = scale.ticks().into_iter().map(tick).collect();
    ticks + &text(scale.from, bottom + 37.0, "start", name)
}

/// Level lines at round values, their texts, and the name of the axis above.
fn axis_y(scale: &Scale, left: f64, right: f64, name: &str) -> String {
    let tick = |(value, label): (f64, String)| {
        let y = scale.at(value);
        rule("grid", (left, y), (right, y)) + &text(left - 8.0, y + 4.5, "end", &label)
    };
    let ticks: String = scale.ticks().into_iter().map(tick).collect();
    ticks + &text(left, TOP - 14.0, "start", name)
}

/// Who worked when: a row for each stage, the same scale for all sides, each from its own start.
pub(crate) fn lanes(sides: &[Side], label: Label) -> Vec<Option<Plot>> {
    const WIDTH: f64 = 1040.0;
    const LEFT: f64 = 104.0;
    const ROW: f64 = 34.0;
    let rows = Stage::TIMED;
    let known = |side: &Side| -> Vec<(usize, f64, f64)> {
        let all = side.lanes.iter().filter(|s| sane(s.start_ms) && sane(s.end_ms) && s.end_ms >= s.start_ms);
        all.filter_map(|s| Some((rows.iter().position(|row| *row == s.stage)?, s.start_ms, s.end_ms))).collect()
    };
    let sides: Vec<_> = sides.iter().map(known).collect();
    let reach = |side: &Vec<(usize, f64, f64)>| range(side.iter().flat_map(|(_, start, end)| [*start, *end]));
    let longest = sides.iter().filter_map(reach).map(|(low, high)| high - low).fold(0.0, f64::max);
    let time = Scale::new((0.0, longest), LEFT, WIDTH - RIGHT);
    let bottom = 8.0 + ROW * rows.len() as f64;
    let draw = |side: &Vec<(usize, f64, f64)>| {
        let (zero, _) = reach(side)?;
        let mut body = axis_x(&time, 8.0, bottom, &label("html-axis-ms", &[]));
        for (ink, name) in rows.iter().enumerate() {
            let y = 8.0 + ROW * ink as f64 + 5.0;
            let of_row = side.iter().filter(|(row, ..)| *row == ink);
            let boxes = of_row.map(|(_, start, end)| (time.at(start - zero), time.at(end - zero))).collect();
            let (boxes, tracks) = tracks(boxes);
            let height = (ROW - 10.0) / tracks as f64;
            let seam = if tracks > 1 { 1.0 } else { 0.0 };
            let one = |(track, x, width): &(usize, f64, f64)| {
                format!("M{x:.1} {:.1}h{width:.1}v{:.1}h-{width:.1}z", y + height * *track as f64, height - seam)
            };
            let path: String = boxes.iter().map(one).collect();
            body += &text(LEFT - 10.0, y + ROW / 2.0, "end", &stage(name.name(), label));
            body += &format!("<path class=\"i{ink} lane\" d=\"{path}\"/>");
        }
        let svg = svg(WIDTH, bottom + BOTTOM, &label("html-plot-lanes", &[]), &body);
        Some(Plot { svg, legend: Vec::new(), note: None })
    };
    sides.iter().map(draw).collect()
}

/// Boxes (from, to) as (track, from, width), and the number of tracks: a few boxes get a seam between them and, where
/// they overlap, tracks of their own; many are melted together.
fn tracks(mut boxes: Vec<(f64, f64)>) -> (Vec<(usize, f64, f64)>, usize) {
    boxes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut ends: Vec<f64> = Vec::new();
    let mut placed = Vec::new();
    for &(from, to) in &boxes {
        let track = ends.iter().position(|end| *end <= from + THIN).unwrap_or(ends.len());
        ends.resize(ends.len().max(track + 1), to);
        ends[track] = to;
        let width = to - from;
        placed.push((track, from, if width > 3.0 { width - 0.8 } else { width.max(THIN) }));
    }
    if boxes.len() <= ONE_BY_ONE && ends.len() <= MOST_TRACKS {
        return (placed, ends.len().max(1));
    }
    let mut melted: Vec<(f64, f64)> = Vec::new();
    for (from, to) in boxes {
        match melted.last_mut() {
            Some(last) if from < last.1 + THIN => last.1 = last.1.max(to),
            _ => melted.push((from, to.max(from + THIN))),
        }
    }
    (melted.into_iter().map(|(from, to)| (0, from, to - from)).collect(), 1)
}

/// How long steps took, in shares of all steps, with marks for the middle and the slow ones. One scale for all sides.
pub(crate) fn steps(sides: &[Side], label: Label) -> Vec<Option<Plot>> {
    const WIDTH: f64 = 640.0;
    const LEFT: f64 = 56.0;
    const BASE: f64 = 240.0;
    const ROOM: f64 = 115.0;
    let sorted = |side: &Side| {
        let mut times: Vec<f64> = side.step_ms.iter().copied().filter(|ms| sane(*ms)).collect();
        times.sort_by(f64::total_cmp);
        times
    };
    let sides: Vec<Vec<f64>> = sides.iter().map(sorted).collect();
    let at = |times: &Vec<f64>, share: f64| times[(share * (times.len() - 1) as f64).round() as usize];
    let used = || sides.iter().filter(|times| !times.is_empty());
    // One long stall must not squeeze all other steps into one bar.
    let reach = range(
        used().flat_map(|times| [at(times, 0.0), at(times, 1.0).min(1.5 * at(times, 0.99) - 0.5 * at(times, 0.5))]),
    );
    let x = Scale::new(reach.unwrap_or_default(), LEFT, WIDTH - RIGHT);
    let most = used().map(Vec::len).max().unwrap_or_default();
    let bins = (2.0 * (most as f64).sqrt()).clamp(8.0, 40.0) as usize;
    let count = |times: &Vec<f64>| {
        let mut shares = vec![0.0; bins];
        for ms in times {
            let bin = (*ms - x.low) / (x.high - x.low) * bins as f64;
            shares[(bin as usize).min(bins - 1)] += 100.0 / times.len() as f64;
        }
        shares
    };
    let tallest = used().flat_map(count).fold(0.0, f64::max);
    let y = Scale::new((0.0, 1.05 * tallest), BASE, TOP + 26.0);
    let draw = |times: &Vec<f64>| {
        if times.is_empty() {
            return None;
        }
        let mut body = axis_y(&y, LEFT, WIDTH - RIGHT, &label("html-axis-steps", &[]));
        body += &axis_x(&x, BASE, BASE, &label("html-axis-ms", &[]));
        let width = (x.to - x.from) / bins as f64;
        for (bin, share) in count(times).into_iter().enumerate().filter(|(_, share)| *share > 0.0) {
            body += &bar(3, x.from + width * bin as f64 + 0.5, y.at(share), width - 1.0, BASE - y.at(share));
        }
        // The middle to the left of its line, the slow ones to the right, if the edge is not too near; texts last.
        let mut texts = String::new();
        for (name, share, height, left_from) in
            [("p50", 0.5, TOP + 18.0, LEFT + ROOM), ("p95", 0.95, TOP, WIDTH - RIGHT - ROOM)]
        {
            let (ms, place) = (at(times, share), x.at(at(times, share)));
            let (anchor, shift) = if place > left_from { ("end", -5.0) } else { ("start", 5.0) };
            body += &rule("mark", (place, height - 10.0), (place, BASE));
            texts += &text(place + shift, height, anchor, &format!("{name} {} ms", number(ms, 1)));
        }
        body += &texts;
        let beyond = times.iter().filter(|ms| **ms > x.high).count();
        let note = (beyond > 0).then(|| label("html-plot-beyond", &[("count", &beyond)]));
        let svg = svg(WIDTH, BASE + BOTTOM, &label("html-plot-steps", &[]), &body);
        Some(Plot { svg, legend: Vec::new(), note })
    };
    sides.iter().map(draw).collect()
}

/// How full the queues were: in shares of their limits if all have one, else in batches.
pub(crate) fn queues(sides: &[Side], label: Label) -> Vec<Option<Plot>> {
    let lines: Vec<&[Line]> = sides.iter().map(|side| &*side.queues).collect();
    let limited =
        lines.iter().flat_map(|lines| *lines).all(|line| line.limit.is_some_and(|most| sane(most) && most > 0.0));
    if !limited {
        return curves(&lines, "html-plot-queues", ["html-axis-seconds", "html-axis-batches"], true, label);
    }
    let share = |line: &Line| {
        let most = line.limit.unwrap_or(1.0);
        let points = line.points.iter().map(|(x, y)| (*x, 100.0 * y / most)).collect();
        Line { name: format!("{} (0 – {most})", line.name), limit: Some(100.0), points }
    };
    let shares: Vec<Vec<Line>> = lines.iter().map(|lines| lines.iter().map(share).collect()).collect();
    let shares: Vec<&[Line]> = shares.iter().map(Vec::as_slice).collect();
    curves(&shares, "html-plot-queues", ["html-axis-seconds", "html-axis-full"], true, label)
}

/// Memory over time, with its limits.
pub(crate) fn memory(sides: &[Side], label: Label) -> Vec<Option<Plot>> {
    let lines: Vec<&[Line]> = sides.iter().map(|side| &*side.memory).collect();
    curves(&lines, "html-plot-memory", ["html-axis-seconds", "html-axis-megabytes"], true, label)
}

/// Losses over steps.
pub(crate) fn losses(sides: &[Side], label: Label) -> Vec<Option<Plot>> {
    let lines: Vec<&[Line]> = sides.iter().map(|side| &*side.losses).collect();
    curves(&lines, "html-plot-losses", ["html-axis-step", "html-axis-loss"], false, label)
}

/// Losses of one run over steps.
pub(crate) fn loss_lines(lines: &[Line], label: Label) -> Option<Plot> {
    curves(&[lines], "html-plot-losses", ["html-axis-step", "html-axis-loss"], false, label).pop().flatten()
}

/// Learning rate over steps.
pub(crate) fn rates(sides: &[Side], label: Label) -> Vec<Option<Plot>> {
    let lines: Vec<&[Line]> = sides.iter().map(|side| &*side.rates).collect();
    curves(&lines, "html-plot-rates", ["html-axis-step", "html-axis-rate"], true, label)
}

/// The losses of all sides in one plot, if there are several.
pub(crate) fn overlay(sides: &[Side], label: Label) -> Option<Plot> {
    if sides.len() < 2 {
        return None;
    }
    let of_side = |side: &Side| -> Vec<Line> {
        let named = |line: &Line| Line { name: format!("{}: {}", side.name, line.name), ..line.clone() };
        side.losses.iter().map(named).collect()
    };
    let lines: Vec<Line> = sides.iter().flat_map(of_side).collect();
    curves(&[&lines], "html-plot-overlay", ["html-axis-step", "html-axis-loss"], false, label).pop().flatten()
}

/// Lines of each side on one scale for all, from zero or, when values span more than a decade, logarithmic.
fn curves(sides: &[&[Line]], name: &str, axes: [&str; 2], from_zero: bool, label: Label) -> Vec<Option<Plot>> {
    const WIDTH: f64 = 640.0;
    const LEFT: f64 = 68.0;
    const BASE: f64 = 240.0;
    let drawn = |&(x, y): &(f64, f64)| sane(x) && sane(y);
    let points = || sides.iter().flat_map(|lines| *lines).flat_map(|line| &line.points).filter(|point| drawn(point));
    let limits = sides.iter().flat_map(|lines| *lines).filter_map(|line| line.limit);
    let zero = from_zero.then_some(0.0);
    let (Some(reach_x), Some(reach_y)) =
        (range(points().map(|(x, _)| *x)), range(points().map(|(_, y)| *y).chain(limits).chain(zero)))
    else {
        return sides.iter().map(|_| None).collect();
    };
    let x = Scale::new(reach_x, LEFT, WIDTH - RIGHT);
    let mut y = Scale::new(reach_y, BASE, TOP);
    y.log = y.low > 0.0 && y.high > 10.0 * y.low;
    let draw = |lines: &&[Line]| {
        let mut body = axis_y(&y, LEFT, WIDTH - RIGHT, &label(axes[1], &[]));
        body += &axis_x(&x, BASE, BASE, &label(axes[0], &[]));
        let mut legend = Vec::new();
        let mut note = None;
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.points.iter().any(drawn)) {
            let ink = at % INKS;
            // What is not a number leaves a hole.
            let pieces = line.points.split(|point| !drawn(point)).filter(|piece| !piece.is_empty());
            let path: String =
                pieces.map(|piece| trace(piece.iter().map(|point| (x.at(point.0), y.at(point.1))))).collect();
            body += &format!("<path class=\"i{ink} line\" d=\"{path}\"/>");
            if let Some(limit) = line.limit.filter(|limit| sane(*limit)) {
                body += &rule(&format!("i{ink} limit"), (LEFT, y.at(limit)), (WIDTH - RIGHT, y.at(limit)));
                note = Some(label("html-plot-limit", &[]));
            }
            legend.push((ink, line.name.clone()));
        }
        let svg = svg(WIDTH, BASE + BOTTOM, &label(name, &[]), &body);
        (!legend.is_empty()).then_some(Plot { svg, legend, note })
    };
    sides.iter().map(draw).collect()
}

/// A path through these points; of those in one column of pixels, the highest and the lowest.
fn trace(points: impl Iterator<Item = (f64, f64)>) -> String {
    let points: Vec<(f64, f64)> = points.collect();
    let column = |column: &[(f64, f64)]| {
        let by_height = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let extent = [column.iter().max_by(by_height), column.iter().min_by(by_height)];
        if column.len() > 2 { extent.into_iter().flatten().copied().collect() } else { column.to_vec() }
    };
    let kept = points.chunk_by(|a, b| a.0.floor() == b.0.floor()).flat_map(column);
    let path: Vec<String> = kept.map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    // The stroke of no length shows a single point as a dot.
    format!("M{}h0", path.join("L"))
}

/// The two sides next to each other: the stages' means, and steps per second on a scale of their own.
pub(crate) fn compare(sides: &[Side], label: Label) -> Option<Plot> {
    const WIDTH: f64 = 640.0;
    const LEFT: f64 = 150.0;
    const ROW: f64 = 42.0;
    let [before, after] = sides else { return None };
    let pair = |of: &dyn Fn(&Side) -> Option<f64>| [before, after].map(|side| of(side).filter(|value| sane(*value)));
    let mean = |name: &str| {
        let of = |side: &Side| side.profile.row(name).map(|row| row.mean_ms);
        (stage(name, label), pair(&of))
    };
    let means: Vec<(String, [Option<f64>; 2])> = ROWS.iter().map(|name| mean(name)).collect();
    let rates = [(label("metric-recent_steps_per_second", &[]), pair(&|side| Some(side.profile.steps_per_s)))];
    let (mut body, mut y) = (String::new(), TOP - 8.0);
    for (group, unit, decimals) in [(&means[..], label("html-axis-ms", &[]), 1), (&rates[..], String::new(), 2)] {
        let (_, most) = range(group.iter().flat_map(|(_, pair)| pair.iter().flatten().copied()).chain([0.0]))?;
        let scale = Scale::new((0.0, most), LEFT, WIDTH - 90.0);
        body += &text(LEFT, y - 6.0, "start", &unit);
        for (name, pair) in group {
            body += &text(LEFT - 10.0, y + 22.0, "end", name);
            for (at, value) in pair.iter().enumerate() {
                let (top, end) = (y + 2.0 + 17.0 * at as f64, scale.at(value.unwrap_or(0.0)));
                body += &bar([GREY, 0][at], LEFT, top, (end - LEFT).max(THIN), 15.0);
                body += &text(end + 6.0, top + 12.5, "start", &number(value.unwrap_or(f64::NAN), decimals));
            }
            y += ROW;
        }
        y += 14.0;
    }
    let legend = vec![(GREY, before.name.clone()), (0, after.name.clone())];
    let name = label("html-plot-compare", &[]);
    Some(Plot { svg: svg(WIDTH, y, &name, &body), legend, note: None })
}
