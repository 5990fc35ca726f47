//! `tandem segment`: long recordings and their captions to a corpus of clips.

use std::io::{IsTerminal, Write, stderr};

use tandem_data::{SegmentError, SegmentStage, Segmented, SegmentedClip, find_recordings, segment};

use crate::args::SegmentArgs;
use crate::failure::{FAILED, Failure, INTERRUPTED, USAGE};
use crate::interrupt;
use crate::messages::Messages;
use crate::ui::output::{Output, print};
use crate::ui::table::Table;
use crate::ui::{progress, segment_page};

/// Skipped captions that are named.
const NAMED: usize = 10;
/// Characters of a text in the table of a dry run.
const SHOWN: usize = 48;

pub(crate) fn run(args: &SegmentArgs, messages: &Messages) -> Result<(), Failure> {
    // A page that cannot be written is found before the work.
    let mut page = args.html.as_deref().map(|path| Output::create_for(path, messages)).transpose()?;
    let recordings = find_recordings(&args.recording).map_err(|error| failure(error, messages))?;
    let stop = interrupt::catch().flag;
    let bar = progress::share(1000, stderr().is_terminal());
    let show = |stage: SegmentStage, seconds: f64, of: f64| {
        bar.set_message(messages.get(match stage {
            SegmentStage::Listening => "segment-listening",
            SegmentStage::Writing => "convert-writing",
        }));
        bar.set_position((1000.0 * seconds / of.max(f64::MIN_POSITIVE)).min(1000.0) as u64);
    };
    let out = args.out.as_deref().filter(|_| !args.dry_run);
    let made = segment(&recordings, out, &args.settings(), &show, &stop);
    bar.finish_and_clear();
    let made = made.map_err(|error| failure(error, messages))?;
    if let Some(mut file) = page.take() {
        let failed = |error: std::io::Error| Failure::new(FAILED, error.to_string());
        let place = segment_page::Place::of(args.html.as_deref(), out, args.settings().audio);
        let (html, shown) = segment_page::render(&made, &place, messages);
        file.writer().write_all(html.as_bytes()).map_err(failed)?;
        let path = file.finish().map_err(failed)?;
        let values: &[(&str, &dyn std::fmt::Display)] = &[("count", &shown), ("path", &path.display())];
        eprintln!("{}", messages.with("segment-html", values));
    }
    if args.json {
        return print(&format!("{}\n", serde_json::to_string(&made).expect("plain data")));
    }
    report(&made, args, messages)
}

fn report(made: &Segmented, args: &SegmentArgs, messages: &Messages) -> Result<(), Failure> {
    if !made.skipped.is_empty() {
        eprintln!("{}", messages.with("segment-skipped", &[("count", &made.skipped.len())]));
    }
    for skipped in made.skipped.iter().take(NAMED) {
        let place = format!("{}, {}", skipped.path.display(), skipped.place);
        eprintln!("  {}: {}", messages.isolated(&place), messages.text(skipped.reason.clone()));
    }
    if made.skipped.len() > NAMED {
        eprintln!("  {}", messages.with("segment-more", &[("count", &(made.skipped.len() - NAMED))]));
    }
    let minutes = |seconds: f64| format!("{:.1}", seconds / 60.0);
    let (seconds, recorded) = (minutes(made.seconds), minutes(made.recorded_seconds));
    let mut text = if args.dry_run { table(made, messages) } else { String::new() };
    let clips = made.clips.len();
    let mut line = |id: &str, values: &[(&str, &dyn std::fmt::Display)]| {
        text += &messages.with(id, values);
        text.push('\n');
    };
    let sizes: Vec<(&str, &dyn std::fmt::Display)> =
        vec![("clips", &clips), ("minutes", &seconds), ("recorded", &recorded), ("recordings", &made.recordings)];
    match args.out.as_deref().filter(|_| !args.dry_run) {
        Some(out) => {
            let path = out.display();
            let written: Vec<(&str, &dyn std::fmt::Display)> = vec![("written", &made.written), ("path", &path)];
            line("segment-done", &[sizes, written].concat());
            if made.without_text > 0 {
                line(
                    "segment-without-text",
                    &[("count", &made.without_text), ("path", &out.join("metadata.csv").display())],
                );
            }
            if made.without_speaker > 0 {
                let path = out.join("speakers.csv");
                line("segment-without-speaker", &[("count", &made.without_speaker), ("path", &path.display())]);
            }
        }
        None => line("segment-dry", &sizes),
    }
    print(&text)
}

/// The cuts, one a line.
fn table(made: &Segmented, messages: &Messages) -> String {
    let mut table = Table::new(["segment-clip", "segment-start", "segment-end"].map(|id| messages.get(id)));
    let mut texts = vec![messages.get("segment-text")];
    for SegmentedClip { id, cut, .. } in &made.clips {
        table.row([id.clone(), format!("{:.2}", cut.start), format!("{:.2}", cut.end)]);
        let short = match cut.text.char_indices().nth(SHOWN) {
            Some((at, _)) => format!("{}…", &cut.text[..at]),
            None => cut.text.clone(),
        };
        let speaker = cut.speaker.as_ref().map_or_else(String::new, |name| format!("{}: ", messages.isolated(name)));
        texts.push(speaker + &messages.isolated(&short));
    }
    let lines = table.render();
    let lines = lines.lines().zip(texts).map(|(line, text)| format!("{line}  {text}").trim_end().to_owned() + "\n");
    lines.collect::<String>() + "\n"
}

fn failure(error: SegmentError, messages: &Messages) -> Failure {
    let hint = match &error {
        SegmentError::Stopped => return Failure::new(INTERRUPTED, messages.get("segment-stopped")),
        SegmentError::Io(_, reason) => return Failure::of(FAILED, &error).hint_about(reason, messages),
        SegmentError::Locked(_) => return Failure::of(FAILED, &error),
        SegmentError::NotEmpty(_) => "convert-hint-out",
        SegmentError::SeveralCaptions(..) | SegmentError::OneCaptions(..) => "segment-hint-captions",
        SegmentError::Captions(_, tandem_data::CaptionsError::NotUtf8(_)) | SegmentError::TextEncoding(..) => {
            "segment-hint-encoding"
        }
        SegmentError::Captions(..) => "segment-hint-kinds",
        SegmentError::TextCount { .. } => "segment-hint-texts",
        SegmentError::Lengths(..) => "segment-hint-lengths",
        SegmentError::NothingToCut(_) => "segment-hint-nothing",
        SegmentError::SameName(..) => "segment-hint-names",
        _ => "segment-hint-recording",
    };
    Failure::of(USAGE, &error).hint(messages.get(hint))
}
