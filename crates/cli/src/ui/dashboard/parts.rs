//! What the dashboard is put together from: rows of text that fit, bars, numbers, the history of a loss.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// One row of the screen.
pub(super) type Row = Line<'static>;

/// A bar with its name and its value; the bars of a panel begin and end in the same columns.
pub(super) struct Meter {
    pub(super) name: String,
    /// A device, or figures.
    pub(super) note: String,
    /// 0..1; nothing to compare with when `None`.
    pub(super) share: Option<f64>,
    pub(super) value: String,
    pub(super) style: Style,
}

/// Rows of bars, `width` wide. Where there is no room, the bar goes first, then the note is cut.
pub(super) fn meters(meters: &[Meter], width: usize) -> Vec<Row> {
    let widest = |of: fn(&Meter) -> &str| meters.iter().map(|meter| columns(of(meter))).max().unwrap_or(0);
    let value = widest(|meter| &meter.value).min(width);
    let name = widest(|meter| &meter.name).min(14).min(width.saturating_sub(value + 1));
    let note = widest(|meter| &meter.note).min(20).min(width.saturating_sub(name + value + 2));
    let note_gap = usize::from(note > 0);
    let bar_width = width.saturating_sub(name + note_gap + note + value + 2);
    let row = |meter: &Meter| {
        let drawn = match meter.share {
            _ if bar_width < 4 => " ".repeat(width.saturating_sub(name + note_gap + note + value)),
            Some(share) => format!(" {} ", bar(share, bar_width)),
            None => " ".repeat(bar_width + 2),
        };
        Line::from(vec![
            Span::raw(pad(&meter.name, name)),
            Span::raw(" ".repeat(note_gap)),
            Span::raw(pad(&meter.note, note)),
            Span::styled(drawn, meter.style),
            Span::raw(" ".repeat(value.saturating_sub(columns(&meter.value)))),
            Span::raw(cut_text(&meter.value, value)),
        ])
    };
    meters.iter().map(row).collect()
}

/// A bar that can be read without color.
pub(super) fn bar(share: f64, width: usize) -> String {
    let full = (share.clamp(0.0, 1.0) * width as f64).round() as usize;
    format!("{}{}", "█".repeat(full), "░".repeat(width - full))
}

/// Columns that a text takes.
pub(super) fn columns(text: &str) -> usize {
    Span::raw(text).width()
}

/// The text, cut or filled up to exactly `width` columns.
pub(super) fn pad(text: &str, width: usize) -> String {
    let text = cut_text(text, width);
    let missing = width - columns(&text);
    text + &" ".repeat(missing)
}

/// The text, with an ellipsis where it is too long.
pub(super) fn cut_text(text: &str, width: usize) -> String {
    cut(Line::from(Span::raw(text.to_owned())), width).spans.iter().map(|span| span.content.as_ref()).collect()
}

/// A row, with an ellipsis where it is too long.
pub(super) fn cut(row: Row, width: usize) -> Row {
    if row.width() <= width {
        return row;
    }
    let mut left = width.saturating_sub(1);
    let mut spans = Vec::new();
    for span in row.spans {
        let mut kept = String::new();
        let mut fits = true;
        for grapheme in span.styled_graphemes(Style::new()) {
            let Some(rest) = left.checked_sub(columns(grapheme.symbol)) else {
                fits = false;
                break;
            };
            left = rest;
            kept += grapheme.symbol;
        }
        spans.push(Span::styled(kept, span.style));
        if !fits {
            break;
        }
    }
    spans.push(Span::raw(if width > 0 { "…" } else { "" }));
    Line::from(spans)
}

/// Draws rows from the top of an area; those below it are skipped.
pub(super) fn put(buffer: &mut Buffer, area: Rect, rows: Vec<Row>) {
    for (y, row) in (area.top()..area.bottom()).zip(rows) {
        buffer.set_line(area.x, y, &cut(row, area.width.into()), area.width);
    }
}

/// Areas one under the other, as high as they need to be, with blank rows between them if there is room for all.
pub(super) fn stack(area: Rect, needs: &[usize]) -> Vec<Rect> {
    let all: usize = needs.iter().sum::<usize>() + needs.len().saturating_sub(1);
    let gap = u16::from(all <= area.height.into());
    let mut y = area.y;
    let mut next = |need: &usize| {
        let height = (*need).min(area.bottom().saturating_sub(y).into()) as u16;
        let rect = Rect { y, height, ..area };
        y = (y + height + gap).min(area.bottom());
        rect
    };
    needs.iter().map(&mut next).collect()
}

/// A number for people; what is not finite is said.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        _ if value.is_nan() => "NaN".to_owned(),
        _ if value.is_infinite() => if value > 0.0 { "∞" } else { "-∞" }.to_owned(),
        size if size >= 1e6 => format!("{value:.2e}"),
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 0.001 || size == 0.0 => format!("{value:.3}"),
        _ => format!("{value:.1e}"),
    }
}

/// A share in percent.
pub(super) fn percent(share: f64) -> String {
    if share.is_finite() { format!("{:.0} %", (100.0 * share).clamp(-9999.0, 9999.0)) } else { "? %".to_owned() }
}

/// `1 h 02 m`, as far as it goes; `?` when it is not known or longer than anybody waits.
pub(super) fn duration(seconds: f64) -> String {
    if !(0.0..3.2e8).contains(&seconds) {
        return "?".to_owned();
    }
    let all = seconds.round() as u64;
    match (all / 3600, all / 60 % 60, all % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} m {seconds:02} s"),
        (hours, minutes, _) => format!("{hours} h {minutes:02} m"),
    }
}

/// `1.5/8.0 GB`, or without a limit `1.5 GB`.
pub(super) fn memory(used: u64, limit: Option<u64>) -> String {
    const MB: f64 = (1 << 20) as f64;
    let (unit, name) =
        if used.max(limit.unwrap_or(0)) as f64 >= 1000.0 * MB { (1024.0 * MB, "GB") } else { (MB, "MB") };
    let digits = if name == "GB" { 1 } else { 0 };
    let show = |bytes: u64| format!("{:.digits$}", bytes as f64 / unit);
    limit.map_or_else(|| format!("{} {name}", show(used)), |limit| format!("{}/{} {name}", show(used), show(limit)))
}

/// Values over steps: at most `History::MOST` points, each the mean of as many values as it takes.
#[derive(Default)]
pub(super) struct History {
    points: Vec<(f64, f64)>,
    /// Doubled each time the points are too many.
    stride: u32,
    /// Step, sum and count of the values that are no point yet.
    open: (f64, f64, u32),
}

impl History {
    const MOST: usize = 512;

    /// A step that is not after the last one, or a value that cannot be drawn, is skipped.
    pub(super) fn push(&mut self, step: f64, value: f64) {
        let last = if self.open.2 > 0 { Some(self.open.0) } else { self.points.last().map(|point| point.0) };
        // Far beyond any loss; sums of larger values would not be finite.
        if value.is_nan() || value.abs() > 1e100 || last.is_some_and(|last| step <= last) {
            return;
        }
        self.stride = self.stride.max(1);
        self.open = (step, self.open.1 + value, self.open.2 + 1);
        if self.open.2 < self.stride {
            return;
        }
        self.points.push((step, self.open.1 / f64::from(self.open.2)));
        self.open = (step, 0.0, 0);
        if self.points.len() > Self::MOST {
            let whole = self.points.len() / 2 * 2;
            let rest = self.points.split_off(whole);
            self.points = self.points.chunks(2).map(|pair| (pair[1].0, (pair[0].1 + pair[1].1) / 2.0)).collect();
            self.points.extend(rest);
            self.stride *= 2;
        }
    }

    /// With the values that are no point yet as the last one.
    pub(super) fn points(&self) -> Vec<(f64, f64)> {
        let open = (self.open.2 > 0).then(|| (self.open.0, self.open.1 / f64::from(self.open.2)));
        self.points.iter().copied().chain(open).collect()
    }
}
