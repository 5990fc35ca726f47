//! A run on one screen, for `tandem train --tui`: drawn from the last snapshot of it, in whatever size there is.

mod parts;
mod terminal;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Instant;

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Borders, Chart, Dataset, GraphType, Widget};
use tandem_observe::{Bottleneck, Metric, STAGE_TEXTS, Sample, Snapshot, Surface, Unit, shown_on};

use self::parts::{History, Meter, Row};
pub(crate) use self::terminal::{LiveDashboard, has_terminal, restore};

/// The texts of its own.
#[rustfmt::skip]
const LABELS: &[&str] = &[
    "tui-preparing", "tui-simulated", "tui-step", "tui-loss", "tui-training", "tui-validation", "tui-lanes", "tui-data",
    "tui-model", "tui-host", "tui-starved", "tui-queues", "tui-queue", "tui-memory", "tui-timing", "tui-details",
    "tui-limited", "tui-healthy", "tui-headroom", "tui-try", "tui-messages", "tui-no-loss", "tui-keys", "tui-stopping",
];

/// Every text that is needed, so that a caller whose catalog cannot go to another thread can take them all first.
pub(crate) fn labels() -> Vec<String> {
    let metrics =
        [Surface::Dashboard, Surface::Details].into_iter().flat_map(shown_on).filter(|metric| !names_itself(metric));
    let metrics = metrics.map(|metric| format!("metric-{}", metric.name));
    let stages = STAGE_TEXTS.iter().map(|stage| format!("stage-{stage}"));
    LABELS.iter().map(|id| (*id).to_owned()).chain(stages).chain(metrics).collect()
}

/// The terms of a loss are called what the model calls them.
fn names_itself(metric: &Metric) -> bool {
    metric.name == "loss_term"
}

/// Message lines that are kept.
const MESSAGES: usize = 200;

/// What is known of a run, and how to draw it.
pub(crate) struct Dashboard {
    title: String,
    color: bool,
    started: Instant,
    snapshot: Option<Snapshot>,
    losses: History,
    validations: History,
    messages: VecDeque<String>,
    /// It was asked to stop; the next time is at once.
    stopping: bool,
}

impl Dashboard {
    /// For the run in the directory `title`. Without `color` (NO_COLOR) everything can still be distinguished.
    pub(crate) fn new(title: &str, color: bool) -> Dashboard {
        Dashboard {
            title: title.to_owned(),
            color,
            started: Instant::now(),
            snapshot: None,
            losses: History::default(),
            validations: History::default(),
            messages: VecDeque::new(),
            stopping: false,
        }
    }

    /// Takes in a snapshot of the run.
    pub(crate) fn update(&mut self, snapshot: Snapshot) {
        let step = snapshot.progress.step as f64;
        self.losses.push(step, snapshot.progress.loss);
        let before = self.snapshot.as_ref().and_then(|snapshot| snapshot.validation);
        if let Some(loss) = snapshot.validation.filter(|loss| before != Some(*loss)) {
            self.validations.push(step, loss);
        }
        self.snapshot = Some(snapshot);
    }

    /// Takes in what the plain screen would print.
    pub(crate) fn message(&mut self, text: &str) {
        self.messages.extend(text.lines().map(str::to_owned));
        let surplus = self.messages.len().saturating_sub(MESSAGES);
        self.messages.drain(..surplus);
    }

    /// Draws all of it; the texts come from `label`, by the ids of [`LABELS`].
    pub(crate) fn draw(&self, frame: &mut Frame, label: &dyn Fn(&str) -> String) {
        let area = frame.area();
        let buffer = frame.buffer_mut();
        let tiny = area.width < 30 || area.height < 8;
        match &self.snapshot {
            None => View { board: self, label }.preparing(buffer, area, tiny),
            Some(run) => {
                let view = RunView { view: View { board: self, label }, run };
                match (area.width, area.height) {
                    _ if tiny => view.tiny(buffer, area),
                    (72.., 20..) => view.columns(buffer, area),
                    _ => view.narrow(buffer, area),
                }
            }
        }
    }
}

/// What can be drawn before the first step.
struct View<'a> {
    board: &'a Dashboard,
    label: &'a dyn Fn(&str) -> String,
}

impl View<'_> {
    fn label(&self, id: &str) -> String {
        (self.label)(id)
    }

    fn tint(&self, color: Color) -> Style {
        if self.board.color { Style::new().fg(color) } else { Style::new() }
    }

    /// The folder; at the right, never cut, what must be known and the time since the start.
    fn header(&self, width: usize, simulated: bool) -> Row {
        let time = parts::duration(self.board.started.elapsed().as_secs_f64());
        let right = if simulated { format!("{}  {time}", self.label("tui-simulated")) } else { time };
        let left = parts::pad(&self.board.title, width.saturating_sub(parts::columns(&right) + 1));
        Line::from(vec![Span::styled(left, Modifier::BOLD), Span::raw(" "), Span::styled(right, Modifier::BOLD)])
    }

    fn footer(&self) -> Row {
        let id = if self.board.stopping { "tui-stopping" } else { "tui-keys" };
        Line::from(vec![Span::styled("q / Ctrl-C", Modifier::BOLD), Span::raw(": "), Span::raw(self.label(id))])
    }

    /// The newest messages that fit, the last one at the bottom.
    fn messages(&self, height: u16) -> Vec<Row> {
        let first = self.board.messages.len().saturating_sub(height.into());
        let shown = |line: &String| {
            let plain = |c: &char| !c.is_control() && !('\u{2066}'..='\u{2069}').contains(c);
            Line::from(line.replace('\t', " ").chars().filter(plain).collect::<String>())
        };
        self.board.messages.iter().skip(first).map(shown).collect()
    }

    fn preparing(&self, buffer: &mut Buffer, area: Rect, tiny: bool) {
        let word = Line::from(self.label("tui-preparing"));
        if tiny {
            return parts::put(buffer, area, vec![word]);
        }
        let [head, log, foot] =
            Layout::vertical([Constraint::Length(3), Constraint::Min(0), Constraint::Length(1)]).areas(area);
        parts::put(buffer, head, vec![self.header(area.width.into(), false), word]);
        self.panel(buffer, log, self.label("tui-messages"), |inner| self.messages(inner.height));
        parts::put(buffer, foot, vec![self.footer()]);
    }

    /// A title with a line, and rows under it.
    fn panel(&self, buffer: &mut Buffer, area: Rect, title: String, rows: impl FnOnce(Rect) -> Vec<Row>) {
        if area.height < 2 {
            return;
        }
        let title = parts::cut_text(&title, area.width.saturating_sub(3).into());
        let block = Block::new().borders(Borders::TOP).title(Span::styled(format!(" {title} "), Modifier::BOLD));
        let inner = block.inner(area);
        block.render(area, buffer);
        parts::put(buffer, inner, rows(inner));
    }
}

/// A run that has done steps.
struct RunView<'a> {
    view: View<'a>,
    run: &'a Snapshot,
}

impl RunView<'_> {
    fn label(&self, id: &str) -> String {
        self.view.label(id)
    }

    /// Words of the program, in the language of the user; other names stay as they are.
    fn word(&self, name: &str) -> String {
        let own = format!("tui-{name}");
        if STAGE_TEXTS.contains(&name) {
            self.label(&format!("stage-{name}"))
        } else if LABELS.contains(&own.as_str()) {
            self.label(&own)
        } else {
            name.to_owned()
        }
    }

    /// Green is well, yellow holds the run up.
    fn health(&self, well: bool) -> Style {
        self.view.tint(if well { Color::Green } else { Color::Yellow })
    }

    fn meter(&self, name: String, note: String, share: f64, value: String) -> Meter {
        Meter { name, note, share: Some(share), value, style: Style::new() }
    }

    fn progress(&self) -> Meter {
        let run = &self.run.progress;
        let share = if run.steps > 0 { run.step as f64 / run.steps as f64 } else { 0.0 };
        let steps = format!("{}/{}", run.step, run.steps);
        self.meter(self.label("tui-step"), steps, share, format!("{:.1} %", 100.0 * share.min(99.0)))
    }

    /// As many figures as fit, the most wanted first.
    fn figures(&self, width: usize) -> Row {
        let run = self.run;
        let loss =
            if run.progress.loss.is_finite() { Style::new().add_modifier(Modifier::BOLD) } else { self.health(false) };
        let mut row = Line::default();
        for metric in shown_on(Surface::Dashboard) {
            let Some(sample) = metric.samples(run).into_iter().next() else { continue };
            let (name, value) = (self.label(&metric.text_key(&sample)), written(metric.unit, sample.value));
            let name = format!("{}{name} ", if row.spans.is_empty() { "" } else { "   " });
            let fits = row.width() + parts::columns(&name) + parts::columns(&value) <= width;
            if fits || row.spans.is_empty() {
                let style = if row.spans.is_empty() { loss } else { Style::new() };
                row.extend([Span::raw(name), Span::styled(value, style)]);
            }
        }
        row
    }

    /// The verdict in one word, with a sign that needs no color.
    fn verdict_word(&self) -> Span<'static> {
        let verdict = &self.run.verdict;
        let word = if verdict.healthy { self.label("tui-healthy") } else { self.word(&verdict.bottleneck.to_string()) };
        let sign = if verdict.healthy { "✓" } else { "!" };
        Span::styled(format!("{sign} {word}"), self.health(verdict.healthy).add_modifier(Modifier::BOLD))
    }

    /// What limits the run, and what would help.
    fn verdict(&self) -> [Row; 2] {
        let (run, verdict) = (self.run, &self.run.verdict);
        let mut what = vec![self.verdict_word()];
        if !verdict.healthy {
            let style = self.health(false).add_modifier(Modifier::BOLD);
            let stage = self.word(&verdict.bottleneck.to_string());
            what = vec![Span::styled(format!("! {}: ", self.label("tui-limited")), style), Span::styled(stage, style)];
        }
        let why = match (verdict.bottleneck, &run.profile.varies_with) {
            (Bottleneck::Variation, Some(stage)) => {
                (self.word(stage.name()), format!("±{}", parts::percent(run.profile.variation)))
            }
            _ => (self.label("tui-starved"), parts::percent(run.profile.starved)),
        };
        what.extend([Span::raw(format!(" ({} ", why.0)), Span::raw(format!("{})", why.1))]);
        let mut then = vec![
            Span::raw(format!("{} ", self.label("tui-headroom"))),
            Span::raw(format!("+{}", parts::percent(run.headroom.max(0.0)))),
        ];
        if let Some(advice) = verdict.recommendations.first().filter(|_| !verdict.healthy) {
            then.push(Span::raw(format!("; {} ", self.label("tui-try"))));
            then.push(Span::styled(format!("{} {}", advice.flag, advice.to), Modifier::BOLD));
        }
        [Line::from(what), Line::from(then)]
    }

    fn lanes(&self) -> Vec<Meter> {
        let (run, profile) = (self.run, &self.run.profile);
        let lane = |id, device: &str, share, style| Meter {
            style,
            ..self.meter(self.label(id), device.to_owned(), share, parts::percent(share))
        };
        let model = self.health(run.verdict.healthy);
        vec![
            lane("tui-data", &run.data_device, profile.data_busy, Style::new()),
            lane("tui-model", &run.model_device, profile.model_busy, model),
            lane("tui-starved", "", profile.starved, model),
        ]
    }

    fn queues(&self) -> Vec<Meter> {
        let queue = |queue: &tandem_observe::QueueFill| {
            let share = queue.items as f64 / queue.capacity.max(1) as f64;
            self.meter(self.word(&queue.name), String::new(), share, format!("{}/{}", queue.items, queue.capacity))
        };
        self.run.queues.iter().map(queue).collect()
    }

    fn memory(&self) -> Vec<Meter> {
        let place = |place: &tandem_observe::MemoryUse| {
            let share = place.limit_bytes.map(|limit| place.used_bytes as f64 / limit.max(1) as f64);
            let style = if share > Some(0.9) { self.health(false) } else { Style::new() };
            let value = parts::memory(place.used_bytes, place.limit_bytes);
            Meter { name: self.word(&place.name), note: place.device.clone(), share, value, style }
        };
        self.run.memory.iter().map(place).collect()
    }

    fn timing(&self) -> Vec<Meter> {
        let short = |ms: f64| if ms < 10_000.0 { format!("{ms:.1}") } else { parts::number(ms) };
        let stages = self.run.profile.stages.iter().zip(self.run.profile.percentages());
        let stage = |(stage, share): (&tandem_observe::StageProfile, String)| {
            let note = format!("{:>6} ± {:>5} ms", short(stage.mean_ms), short(stage.std_ms));
            self.meter(self.word(&stage.name), note, stage.share, format!("{share} %"))
        };
        stages.map(stage).collect()
    }

    /// What is of use when there is room for it.
    fn details(&self) -> Vec<Meter> {
        let run = self.run;
        let plain = |name, value| Meter { name, note: String::new(), share: None, value, style: Style::new() };
        let meters = |metric: &'static Metric| {
            let name = |sample: &Sample| match sample.labels.first() {
                Some((_, label)) if names_itself(metric) => label.clone(),
                _ => self.label(&metric.text_key(sample)),
            };
            let meter = |sample: Sample| plain(name(&sample), written(metric.unit, sample.value));
            metric.samples(run).into_iter().map(meter).collect::<Vec<_>>()
        };
        shown_on(Surface::Details).into_iter().flat_map(meters).collect()
    }

    /// Training as a line, validation as dots: they differ without color too.
    fn chart(&self, buffer: &mut Buffer, area: Rect) {
        let (losses, validations) = (self.view.board.losses.points(), self.view.board.validations.points());
        let title =
            format!("{}  ⠤ {}  • {}", self.label("tui-loss"), self.label("tui-training"), self.label("tui-validation"));
        let Some((x, y)) = bounds(&losses, &validations) else {
            let none = |_| vec![Line::from(self.label("tui-no-loss"))];
            return self.view.panel(buffer, area, title, none);
        };
        self.view.panel(buffer, area, title, |_| Vec::new());
        let dataset =
            |data, marker, kind, style| Dataset::default().data(data).marker(marker).graph_type(kind).style(style);
        let datasets = vec![
            dataset(&losses, Marker::Braille, GraphType::Line, Style::new()),
            dataset(&validations, Marker::Dot, GraphType::Scatter, self.view.tint(Color::Cyan)),
        ];
        let steps = [format!("{:.0}", x[0]), format!("{:.0}", x[1])];
        let values = [y[0], (y[0] + y[1]) / 2.0, y[1]].map(parts::number);
        let chart = Chart::new(datasets)
            .x_axis(Axis::default().bounds(x).labels(steps))
            .y_axis(Axis::default().bounds(y).labels(values))
            .legend_position(None);
        chart.render(Rect { y: area.y + 1.min(area.height), height: area.height.saturating_sub(1), ..area }, buffer);
    }

    /// 80x24 and more: the chart at the left, bars at the right; the timing is where there is room for it.
    fn columns(&self, buffer: &mut Buffer, area: Rect) {
        let wide = area.width >= 100 && area.height >= 30;
        let [head, body, log, foot] = Layout::vertical([
            Constraint::Length(4),
            Constraint::Min(0),
            Constraint::Length((area.height / 6).clamp(3, 9)),
            Constraint::Length(1),
        ])
        .areas(area);
        let width = usize::from(area.width);
        let [mut verdict, then] = self.verdict();
        verdict.push_span("; ");
        verdict.extend(then.spans);
        let mut rows = vec![self.view.header(width, self.run.simulated)];
        rows.extend(parts::meters(&[self.progress()], width));
        rows.extend([self.figures(width), verdict]);
        parts::put(buffer, head, rows);

        let share = if wide { 60 } else { 55 };
        let [left, right] =
            Layout::horizontal([Constraint::Percentage(share), Constraint::Min(0)]).spacing(2).areas(body);
        let mark = |id| match self.run.simulated {
            true => format!("{} ({})", self.label(id), self.label("tui-simulated")),
            false => self.label(id),
        };
        let timing = (self.label("tui-timing"), self.timing());
        let mut panels = vec![
            (mark("tui-lanes"), self.lanes()),
            (self.label("tui-queues"), self.queues()),
            (mark("tui-memory"), self.memory()),
        ];
        let mut plot = left;
        if wide {
            panels.extend([timing, (self.label("tui-details"), self.details())]);
        } else {
            let rows = timing.1.len() as u16 + 1;
            let [above, below] = Layout::vertical([Constraint::Min(0), Constraint::Length(rows)]).areas(left);
            plot = above;
            self.bars(buffer, below, timing);
        }
        self.chart(buffer, plot);
        panels.retain(|(_, meters)| !meters.is_empty());
        let needs: Vec<usize> = panels.iter().map(|(_, meters)| meters.len() + 1).collect();
        for (area, panel) in parts::stack(right, &needs).into_iter().zip(panels) {
            self.bars(buffer, area, panel);
        }
        self.view.panel(buffer, log, self.label("tui-messages"), |inner| self.view.messages(inner.height));
        parts::put(buffer, foot, vec![self.view.footer()]);
    }

    fn bars(&self, buffer: &mut Buffer, area: Rect, (title, meters): (String, Vec<Meter>)) {
        self.view.panel(buffer, area, title, |inner| parts::meters(&meters, inner.width.into()));
    }

    /// One column, without titles for the bars; timing, a chart and more messages if it is high.
    fn narrow(&self, buffer: &mut Buffer, area: Rect) {
        let width = usize::from(area.width);
        // What is starved is in the verdict already.
        let mut meters: Vec<Meter> = self.lanes().into_iter().take(2).collect();
        let mut memory = self.memory();
        // The fullest first: there may be room for one only.
        memory.sort_by(|a, b| b.share.unwrap_or(0.0).total_cmp(&a.share.unwrap_or(0.0)));
        for (id, more) in [("tui-queue", self.queues()), ("tui-memory", memory)] {
            let named =
                |meter: Meter| Meter { name: self.label(id), note: format!("{} {}", meter.name, meter.note), ..meter };
            meters.extend(more.into_iter().map(named));
        }
        let body = area.height - 6;
        let shown = meters.len().min(usize::from(body.saturating_sub(1)).max(2)) as u16;
        meters.truncate(shown.into());
        let rest = body.saturating_sub(shown);
        let stages = if rest >= 15 { self.run.profile.stages.len().min(5) as u16 + 1 } else { 0 };
        let plot = if rest >= 9 { rest - stages - 3 } else { 0 };
        let [head, bars, timing, chart, log, foot] = Layout::vertical([
            Constraint::Length(5),
            Constraint::Length(shown),
            Constraint::Length(stages),
            Constraint::Length(plot),
            Constraint::Min(0),
            Constraint::Length(1),
        ])
        .areas(area);
        let mut rows = vec![self.view.header(width, self.run.simulated)];
        rows.extend(parts::meters(&[self.progress()], width));
        rows.push(self.figures(width));
        rows.extend(self.verdict());
        parts::put(buffer, head, rows);
        parts::put(buffer, bars, parts::meters(&meters, width));
        self.bars(buffer, timing, (self.label("tui-timing"), self.timing()));
        self.chart(buffer, chart);
        parts::put(buffer, log, self.view.messages(log.height));
        parts::put(buffer, foot, vec![self.view.footer()]);
    }

    /// Step, loss and the verdict's word: a row each, or all in one.
    fn tiny(&self, buffer: &mut Buffer, area: Rect) {
        let step =
            Line::from(format!("{} {}/{}", self.label("tui-step"), self.run.progress.step, self.run.progress.steps));
        let rows = vec![step, self.figures(0), Line::from(self.verdict_word())];
        if area.height >= 3 {
            return parts::put(buffer, area, rows);
        }
        let joined = rows.into_iter().flat_map(|row| row.spans.into_iter().chain([Span::raw("  ")]));
        parts::put(buffer, area, vec![Line::from_iter(joined)]);
    }
}

/// A value of a metric, short.
fn written(unit: Unit, value: f64) -> String {
    let (scale, decimals, suffix) = unit.format();
    let space = if suffix.is_empty() { "" } else { " " };
    match unit {
        Unit::Duration => parts::duration(value),
        Unit::Ratio => parts::percent(value),
        Unit::Number => parts::number(value),
        _ if scale * value < 1e6 => format!("{:.decimals$}{space}{suffix}", scale * value),
        _ => format!("{}{space}{suffix}", parts::number(scale * value)),
    }
}

/// What of the plane is drawn. The first losses of a run are far above all others and may leave it at the top.
fn bounds(losses: &[(f64, f64)], validations: &[(f64, f64)]) -> Option<([f64; 2], [f64; 2])> {
    let first = losses.first().or(validations.first())?.0;
    let last = losses.last().or(validations.last())?.0;
    let settled = losses.iter().skip(losses.len() / 20).chain(validations).map(|point| point.1);
    let low = settled.clone().fold(f64::INFINITY, f64::min);
    let high = settled.fold(f64::NEG_INFINITY, f64::max);
    let margin = if high > low { 0.05 * (high - low) } else { 0.05 * high.abs().max(0.01) };
    Some(([first, last.max(first + 1.0)], [low - margin, high + margin]))
}
