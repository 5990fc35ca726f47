use std::collections::BTreeSet;

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::parts::{History, columns, cut_text, duration, memory, meters, number, pad, stack};
use super::terminal::Wish;
use super::*;
use tandem_flow::{Place, Stage};
use tandem_observe::{GAPS, MemoryUse, Profile, Progress, QueueFill, Reason, Recommendation, StageProfile, Verdict};

const EN: &str = include_str!("../../../messages/en.ftl");
const FA: &str = include_str!("../../../messages/fa.ftl");

fn find(catalog: &str, id: &str) -> String {
    let entry = catalog.lines().find_map(|line| line.strip_prefix(id)?.strip_prefix(" = "));
    entry.unwrap_or_else(|| panic!("{id} is in the catalogue")).to_owned()
}

fn english(id: &str) -> String {
    find(EN, id)
}

fn normal() -> Snapshot {
    let stage = |name: &str, mean_ms, share| StageProfile {
        name: name.to_owned(),
        mean_ms,
        std_ms: 1.25,
        jitter_ms: 1.25,
        share,
    };
    let stages = vec![
        stage(Stage::Load.name(), 41.0, 0.4),
        stage(Stage::Preprocess.name(), 12.5, 0.122),
        stage(Stage::Transfer.name(), 1.1, 0.011),
        stage(Stage::Train.name(), 29.0, 0.283),
        stage(GAPS, 18.9, 0.184),
    ];
    let place = |name: Place, device: &str, used_bytes, limit_bytes| MemoryUse {
        name: name.to_string(),
        device: device.to_owned(),
        used_bytes,
        limit_bytes,
    };
    let advice = Recommendation {
        flag: "--num-workers".to_owned(),
        now: "2".to_owned(),
        to: "6".to_owned(),
        gain: 1.44,
        reason: Reason::Decoding,
        why: "the model waits for files".to_owned(),
    };
    Snapshot {
        progress: Progress {
            step: 1234,
            steps: 10_000,
            epoch: 3,
            eta_s: 2563.0,
            loss: 2.345,
            terms: vec![("prior".to_owned(), 1.2), ("duration".to_owned(), 0.4)],
            lr: 3e-4,
            grad_norm: 1.7,
            steps_per_s: 3.42,
            clips_per_s: 54.7,
            audio_per_s: 312.4,
            starved: 0.31,
            memory_bytes: None,
            reduce: None,
        },
        seconds: 361.0,
        validation: Some(2.301),
        total_clips: 19_744,
        total_audio_s: 112_000.0,
        total_s: 361.0,
        profile: Profile {
            steps: 100,
            warm_up: 10,
            period_ms: 60.0,
            steps_per_s: 3.42,
            stages,
            data_busy: 0.97,
            model_busy: 0.69,
            starved: 0.31,
            variation: 0.04,
            varies_with: None,
        },
        step_ms: tandem_flow::Summary::default(),
        recent_ms: vec![1.0; 5],
        verdict: Verdict {
            healthy: false,
            bottleneck: Bottleneck::Load,
            findings: Vec::new(),
            recommendations: vec![advice],
        },
        headroom: 0.44,
        queues: vec![
            QueueFill { name: Place::Host.to_string(), items: 1, capacity: 8 },
            QueueFill { name: "device".to_owned(), items: 0, capacity: 2 },
        ],
        memory: vec![
            place(Place::Host, "CPU", 2_400 << 20, Some(16_000 << 20)),
            place(Place::Data, "GPU 0", 800 << 20, Some(4_096 << 20)),
            place(Place::Model, "GPU 1", 7_900 << 20, Some(8_192 << 20)),
        ],
        cpu_percent: Some(187.0),
        data_device: "GPU 0".to_owned(),
        model_device: "GPU 1".to_owned(),
        simulated: true,
    }
}

fn running(snapshot: Snapshot) -> Dashboard {
    let mut board = Dashboard::new("runs/lj-small", true);
    for step in 0..300u32 {
        let validation = (step % 50 == 49).then(|| 2.0 + 40.0 / f64::from(step));
        let loss = 2.0 + 50.0 / f64::from(step + 1);
        let progress = Progress { step: step.into(), loss, ..normal().progress };
        board.update(Snapshot { progress, validation, ..normal() });
    }
    board.message("step 1200: checkpoint `runs/lj-small/step-1200`");
    board.update(snapshot);
    board
}

fn extreme() -> Dashboard {
    let mut run = normal();
    let huge = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, -f64::MAX, f64::MIN_POSITIVE];
    let mut board = Dashboard::new(&"runs/ρ日本語👩‍👩‍👧/".repeat(40), true);
    for (step, value) in huge.iter().cycle().take(60).enumerate() {
        run.progress.step = step as u64;
        run.progress.loss = *value;
        run.validation = Some(*value);
        board.update(run.clone());
    }
    let progress = &mut run.progress;
    (progress.step, progress.steps, progress.epoch) = (u64::MAX, 0, u64::MAX);
    (progress.eta_s, progress.steps_per_s, progress.audio_per_s) = (f64::INFINITY, f64::MAX, f64::NAN);
    (progress.loss, run.headroom) = (f64::NAN, f64::INFINITY);
    run.profile.stages.iter_mut().zip(huge).for_each(|(stage, value)| {
        (stage.mean_ms, stage.std_ms, stage.share) = (value, value, value);
    });
    (run.profile.data_busy, run.profile.model_busy, run.profile.starved) = (f64::NAN, 1e300, -5.0);
    run.verdict.bottleneck = Bottleneck::Variation;
    run.profile.varies_with = Some(Stage::Preprocess);
    run.verdict.recommendations[0].to = "9".repeat(900);
    run.queues[0].capacity = 0;
    run.queues[1].items = usize::MAX;
    run.queues.extend((0..50).map(|_| QueueFill { name: "q".repeat(99), items: 7, capacity: 7 }));
    run.memory[0].limit_bytes = Some(0);
    run.memory[1].limit_bytes = None;
    run.memory[2].used_bytes = u64::MAX;
    run.model_device = "一二三四五六七八九十".repeat(9);
    run.progress.terms = (0..60).map(|index| (format!("term{index}"), f64::NAN)).collect();
    board.update(run);
    board.message(&"x".repeat(3000));
    board.message(&"سلام‌ها \u{1b}[31m\t\u{2068}日本\u{2069}".repeat(300));
    board
}

/// What is on a screen of that size, row by row.
fn screen(board: &Dashboard, width: u16, height: u16, label: &dyn Fn(&str) -> String) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal.draw(|frame| board.draw(frame, label)).expect("drawn");
    let cells = terminal.backend().buffer().content();
    let row = |row: &[ratatui::buffer::Cell]| row.iter().map(|cell| cell.symbol()).collect::<String>();
    cells.chunks(usize::from(width).max(1)).map(row).collect()
}

#[test]
fn no_size_and_no_state_makes_it_panic() {
    let mut preparing = Dashboard::new("runs/a", true);
    preparing.message("reading");
    let mut bare = normal();
    (bare.queues, bare.memory, bare.progress.terms, bare.profile.stages) = Default::default();
    let boards = [Dashboard::new("", false), preparing, running(normal()), running(bare), extreme()];
    let sizes = |most: u16, step: usize| (0..most).step_by(step).chain(0..9).chain([most - 1, most]);
    for board in &boards {
        for width in sizes(130, 7).chain([29, 30, 31, 71, 72, 73, 99, 100, 101]) {
            for height in sizes(45, 4).chain([19, 20, 21, 29, 30, 31]) {
                screen(board, width, height, &english);
            }
        }
        screen(board, 300, 100, &english);
        screen(board, 300, 1, &english);
        screen(board, 1, 100, &english);
        screen(board, 120, 40, &|id| find(FA, id));
    }
}

fn assert_has(rows: &[String], words: &[&str]) {
    let all = rows.join("\n");
    for word in words {
        assert!(all.contains(word), "`{word}` is not in\n{all}");
    }
}

const LIMITED: &str = "limited by: load (starved 31 %)";

#[test]
fn large_screens_show_everything() {
    for (width, height) in [(120, 40), (100, 30), (80, 24), (120, 24)] {
        let rows = screen(&running(normal()), width, height, &english);
        assert_has(
            &rows,
            &["runs/lj-small", "1234/10000", "12.3 %", "loss 2.345", "validation 2.301", "left 42 m 43 s"],
        );
        assert_has(&rows, &["steps/s 3.42", "audio 312 s/s", LIMITED, "headroom +44 %; try --num-workers 6"]);
        assert_has(&rows, &["lanes", "GPU 0", "GPU 1", "97 %", "69 %", "31 %", "queues", "1/8", "0/2"]);
        assert_has(
            &rows,
            &["memory", "0.8/4.0 GB", "7.7/8.0 GB", "time per batch", "41.0 ±   1.2", "40.0 %", "18.4 %"],
        );
        assert_has(&rows, &["preprocess", "checkpoint `runs/lj-small", "q / Ctrl-C: stop, save; again: at once"]);
        assert_has(&rows, &["█", "░", "•", "SIMULATED"]);
        assert!(rows.iter().any(|row| row.chars().any(|c| ('\u{2801}'..='\u{28ff}').contains(&c) && c != '⠤')));
    }
    let rows = screen(&running(normal()), 120, 40, &english);
    assert_has(&rows, &["details", "learning rate", "3.0e-4", "gradient norm", "CPU", "187 %", "duration"]);
}

#[test]
fn small_screens_show_what_matters() {
    let rows = screen(&running(normal()), 40, 12, &english);
    assert_has(&rows, &["runs/lj-small", "SIMULATED", "1234/10000", "loss 2.345", "left 42 m", LIMITED]);
    assert_has(
        &rows,
        &["try --num-workers 6", "data", "GPU 0", "model", "GPU 1", "1/8", "7.7/8.0 GB", "step 1200: ch", "q / Ctrl-C"],
    );
    let rows = screen(&running(normal()), 20, 5, &english);
    assert_has(&rows, &["step 1234/10000", "loss 2.345", "! load"]);
    let rows = screen(&running(normal()), 60, 1, &english);
    assert_has(&rows, &["step 1234/10000  loss 2.345  ! load"]);
    let rows = screen(&running(normal()), 40, 44, &english);
    assert_has(&rows, &["•", "memory", "time per batch", "preprocess", "step 1200: ch"]);
}

#[test]
fn wherever_devices_are_shown_they_are_said_to_be_simulated() {
    let board = running(normal());
    for (id, catalog) in [("en", EN), ("fa", FA)] {
        for width in (1..130).step_by(5) {
            for height in (1..24).chain([29, 30, 44]) {
                let rows = screen(&board, width, height, &|id| find(catalog, id)).join("\n");
                let said = rows.contains(&find(catalog, "tui-simulated"));
                assert!(!rows.contains("GPU") || said, "{id} {width}x{height}:\n{rows}");
            }
        }
    }
    let real = Snapshot { simulated: false, ..normal() };
    assert!(!screen(&running(real), 120, 40, &english).join("\n").contains("SIMULATED"));
}

#[test]
fn health_and_states_are_said_in_words() {
    let mut run = normal();
    run.verdict =
        Verdict { healthy: true, bottleneck: Bottleneck::Train, findings: Vec::new(), recommendations: Vec::new() };
    run.profile.starved = 0.01;
    let rows = screen(&running(run), 80, 24, &english);
    assert_has(&rows, &["✓ healthy (starved 1 %); headroom +44 %"]);
    assert!(!rows.join("\n").contains("limited"));

    let mut board = Dashboard::new("runs/a", true);
    board.message("first\nsecond");
    for (width, height) in [(120, 40), (80, 24), (40, 12)] {
        assert_has(&screen(&board, width, height, &english), &["runs/a", "preparing", "first", "second", "q / Ctrl-C"]);
    }
    assert_has(&screen(&board, 20, 5, &english), &["preparing"]);
    board.stopping = true;
    assert_has(&screen(&board, 80, 24, &english), &["stopping; again: at once"]);
}

#[test]
fn without_color_nothing_is_colored() {
    let mut board = running(normal());
    for color in [true, false] {
        board.color = color;
        let mut terminal = Terminal::new(TestBackend::new(120, 40)).expect("a terminal");
        terminal.draw(|frame| board.draw(frame, &english)).expect("drawn");
        let plain = |cell: &ratatui::buffer::Cell| cell.fg == Color::Reset && cell.bg == Color::Reset;
        assert_eq!(terminal.backend().buffer().content().iter().all(plain), !color);
    }
}

#[test]
fn long_texts_end_with_an_ellipsis() {
    assert_eq!(cut_text("abcdef", 4), "abc…");
    assert_eq!(cut_text("abcd", 4), "abcd");
    assert_eq!(cut_text("日本語", 4), "日…");
    assert_eq!((cut_text("abc", 1), cut_text("abc", 0)), ("…".to_owned(), String::new()));
    assert_eq!((columns("خط‌ها"), pad("خط‌ها", 6).chars().count()), (4, 7));
    let rows = screen(&extreme(), 80, 24, &english);
    assert_has(&rows, &["xxx…", "loss NaN", "left ?"]);
}

#[test]
fn the_columns_of_a_panel_are_aligned() {
    let meter = |name: &str, value: &str| Meter {
        name: name.to_owned(),
        note: String::new(),
        share: Some(0.5),
        value: value.to_owned(),
        style: Style::new(),
    };
    for width in 0..60 {
        let rows = meters(&[meter("داده", "5 %"), meter("preprocess", "100 %")], width);
        assert!(rows.iter().all(|row| row.width() == width), "{width}: {rows:?}");
    }
    let areas = stack(Rect::new(0, 3, 10, 7), &[4, 3, 2]);
    assert_eq!(areas.iter().map(|area| (area.y, area.height)).collect::<Vec<_>>(), [(3, 4), (7, 3), (10, 0)]);
}

#[test]
fn figures_are_for_people() {
    let numbers = [2.3456, 3e-4, 0.0, 123_456.0, 1e9, f64::NAN, f64::INFINITY].map(number);
    assert_eq!(numbers, ["2.346", "3.0e-4", "0.000", "123456", "1.00e9", "NaN", "∞"]);
    assert_eq!([4.2, 63.0, 3723.0, -1.0, f64::NAN].map(duration), ["4 s", "1 m 03 s", "1 h 02 m", "?", "?"]);
    assert_eq!(memory(5 << 20, Some(100 << 20)), "5/100 MB");
    assert_eq!(memory(1536 << 20, None), "1.5 GB");
}

#[test]
fn a_long_history_is_thinned_evenly() {
    let mut history = History::default();
    for step in 0..100_000 {
        history.push(f64::from(step), 1.0);
    }
    history.push(5.0, 9.0);
    history.push(2e5, f64::NAN);
    let points = history.points();
    assert!((200..=513).contains(&points.len()), "{}", points.len());
    assert!(points.iter().all(|point| (point.1 - 1.0).abs() < 1e-9));
    assert!(points.windows(2).all(|pair| pair[1].0 > pair[0].0 && pair[1].0 - pair[0].0 <= 512.0));
    assert_eq!(points.last().map(|point| point.0), Some(99_999.0));
}

#[test]
fn only_so_many_messages_are_kept() {
    let mut board = Dashboard::new("", false);
    (0..1000).for_each(|line| board.message(&line.to_string()));
    assert_eq!((board.messages.len(), board.messages[0].as_str()), (MESSAGES, "800"));
}

#[cfg(unix)]
#[test]
fn keys_ask_for_a_stop() {
    use super::terminal::keys::wish;
    assert_eq!(wish(b"q"), Some(Wish::Stop { held: true }));
    assert_eq!(wish(b"\x1b"), Some(Wish::Stop { held: true }));
    assert_eq!(wish(b"xx\x03"), Some(Wish::Stop { held: false }));
    assert_eq!(wish(b"\x0c"), Some(Wish::Repaint));
    assert_eq!((wish(b"\x1b[A"), wish(b"x"), wish(b"")), (None, None, None));
}

#[test]
fn every_text_is_in_both_languages_and_in_the_list() {
    let ids = |text: &str| -> BTreeSet<String> {
        let part = |rest: &str| rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect::<String>();
        text.split("\"tui-").skip(1).map(|rest| format!("tui-{}", part(rest))).filter(|id| id != "tui-").collect()
    };
    let catalog = |text: &str| -> BTreeSet<String> {
        let ids = text.lines().filter_map(|line| line.split_once(" = ")).map(|(id, _)| id.to_owned());
        ids.filter(|id| id.starts_with("tui-")).collect()
    };
    let source = include_str!("../dashboard.rs");
    let (list, code) = source.split_once("];").expect("the list of labels");
    for id in labels() {
        assert!(!find(EN, &id).is_empty() && !find(FA, &id).is_empty());
    }
    let listed: BTreeSet<String> = LABELS.iter().map(|id| (*id).to_owned()).collect();
    assert_eq!(ids(list), listed);
    assert!(ids(code).is_subset(&listed), "{:?}", ids(code).difference(&listed));
    assert_eq!(catalog(EN), listed);
    assert_eq!(catalog(FA), listed);
    let mut persian = FA.lines().filter(|line| line.starts_with("tui-"));
    assert!(persian.all(|line| line.chars().any(|c| ('\u{0600}'..='\u{06FF}').contains(&c))));
}
