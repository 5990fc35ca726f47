//! `tandem segment --html`: the cuts to look at and to listen to, the oddest first. The page has the pictures in it and plays the files
//! of the clips, or the recording itself where nothing was cut yet.

use std::path::{Path, PathBuf};

use tandem_data::{ClipAudio, Oddity, STRIP_AROUND_S, Segmented, SegmentedClip, odd_clips, strip_heights};

use crate::messages::{Lang, Messages};
use crate::ui::evaluation_page::escape;

/// Clips of a page: browsers are slow with thousands of players.
const CLIPS: usize = 300;
/// Of a strip, in its own units.
const HEIGHT: f64 = 60.0;
const WIDTH: f64 = 960.0;

const STYLE: &str = "\
:root { color-scheme: light dark; --page: #fff; --text: #1c2128; --edge: #d0d4da; --quiet: #59636e; --wave: #2a6f97; --outside: #a9b4bf; --cut: #b3261e; --odd: #7a4b00; }
@media screen and (prefers-color-scheme: dark) { :root { --page: #14181e; --text: #e6eaef; --edge: #3a424d; --quiet: #a3aebb; --wave: #6fb3d9; --outside: #4a545f; --cut: #ff8a80; --odd: #ffc46b; } }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, 'Noto Sans', Vazirmatn, sans-serif; max-width: 66rem; margin: 0 auto; padding: 2rem 1rem; background: var(--page); color: var(--text); overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.05rem; margin: 0; }
article { border: 1px solid var(--edge); border-radius: .6rem; padding: 1rem; margin: 1.2rem 0; }
p { margin: .4rem 0; }
.quiet { color: var(--quiet); } .odd { color: var(--odd); font-weight: 600; }
svg { width: 100%; height: 4rem; display: block; margin: .5rem 0; }
.wave { fill: var(--wave); } .outside { fill: var(--outside); } .cut { stroke: var(--cut); stroke-width: 2; } .caption { stroke: var(--quiet); stroke-width: 1.5; stroke-dasharray: 4 4; }
audio { width: 100%; }
";

/// Where the sound of a page is.
pub(crate) struct Place {
    /// The directory of the page.
    page: PathBuf,
    /// The corpus, if there is one, and the kind of its clips.
    corpus: Option<(PathBuf, ClipAudio)>,
}

impl Place {
    pub(crate) fn of(page: Option<&Path>, out: Option<&Path>, audio: ClipAudio) -> Place {
        let dir = page.and_then(Path::parent).filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Place { page: dir.to_owned(), corpus: out.map(|out| (out.to_owned(), audio)) }
    }

    /// What plays a clip: its file, or its part of the recording.
    fn source(&self, clip: &SegmentedClip) -> String {
        match &self.corpus {
            Some((out, audio)) => self.address(&out.join("wavs").join(format!("{}.{}", clip.id, audio.extension()))),
            None => format!("{}#t={:.2},{:.2}", self.address(&clip.recording), clip.cut.start, clip.cut.end),
        }
    }

    /// The address of a file as the page sees it: page and corpus may be moved together.
    fn address(&self, file: &Path) -> String {
        let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let (page, file) = (whole(&self.page), whole(file));
        let common = page.components().zip(file.components()).take_while(|(a, b)| a == b).count();
        let up = page.components().skip(common).map(|_| "..".to_owned());
        let down = file.components().skip(common).map(|part| encoded(&part.as_os_str().to_string_lossy()));
        up.chain(down).collect::<Vec<_>>().join("/")
    }
}

/// A part of a path in an address.
fn encoded(part: &str) -> String {
    let keep = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    part.bytes().map(|byte| if keep(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// The page, and how many clips are on it.
pub(crate) fn render(made: &Segmented, place: &Place, messages: &Messages) -> (String, usize) {
    let odd = odd_clips(&made.clips);
    let shown = odd.len().min(CLIPS);
    let articles: String = odd[..shown]
        .iter()
        .map(|(number, oddities)| article(&made.clips[*number], oddities, place, messages))
        .collect();
    let (direction, lang) = (messages.get("direction"), if messages.lang() == Lang::Fa { "fa" } else { "en" });
    let title = escape(&messages.get("segment-title"));
    let minutes = |seconds: f64| format!("{:.1}", seconds / 60.0);
    let (all, in_clips, clips) = (minutes(made.recorded_seconds), minutes(made.seconds), made.clips.len());
    let values: &[(&str, &dyn std::fmt::Display)] =
        &[("clips", &clips), ("minutes", &in_clips), ("recorded", &all), ("recordings", &made.recordings)];
    let summary = escape(&messages.with("segment-dry", values));
    let order = escape(&messages.with("segment-order", &[("count", &shown), ("clips", &clips)]));
    let about = escape(&messages.get("segment-about"));
    let page = format!(
        "<!doctype html>\n<html lang=\"{lang}\" dir=\"{direction}\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src 'self' file:\">\n<link rel=\"icon\" \
         href=\"data:,\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n<h1>{title}</h1>\n<p>{summary}</p>\n\
         <p class=\"quiet\">{about}</p>\n<p>{order}</p>\n{articles}</html>\n"
    );
    (page, shown)
}

fn article(clip: &SegmentedClip, oddities: &[Oddity], place: &Place, messages: &Messages) -> String {
    let SegmentedClip { id, recording, cut, strip } = clip;
    let name = recording.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let times: Vec<String> = [cut.start, cut.end, cut.seconds()].map(|at| format!("{at:.2}")).to_vec();
    let values: &[(&str, &dyn std::fmt::Display)] =
        &[("recording", &messages.isolated(&name)), ("start", &times[0]), ("end", &times[1]), ("seconds", &times[2])];
    let place_of = escape(&messages.with("segment-place", values));
    let speaker = cut.speaker.as_ref().map_or_else(String::new, |name| format!(" · <bdi>{}</bdi>", escape(name)));
    let odd: Vec<String> = oddities.iter().map(|oddity| escape(&words(oddity, messages))).collect();
    let odd = if odd.is_empty() { String::new() } else { format!("<p class=\"odd\">{}</p>\n", odd.join(" · ")) };
    let text = match cut.text.is_empty() {
        true => format!("<p class=\"quiet\">{}</p>", escape(&messages.get("segment-no-text"))),
        false => format!("<p dir=\"auto\">{}</p>", escape(&cut.text)),
    };
    let (picture, source) = (picture(cut, strip), escape(&place.source(clip)));
    format!(
        "<article>\n<h2><bdi>{}</bdi>{speaker}</h2>\n<p class=\"quiet\">{place_of}</p>\n{odd}{text}\n{picture}\
         <audio controls preload=\"none\" src=\"{source}\"></audio>\n</article>\n",
        escape(id)
    )
}

fn words(oddity: &Oddity, messages: &Messages) -> String {
    let with = |id: &str, value: f64, digits: usize| messages.with(id, &[("value", &format!("{value:.digits$}"))]);
    match *oddity {
        Oddity::LoudStart(db) => with("segment-loud-start", db, 0),
        Oddity::LoudEnd(db) => with("segment-loud-end", db, 0),
        Oddity::Fast(times) => with("segment-fast", times, 1),
        Oddity::Slow(times) => with("segment-slow", times, 1),
        Oddity::Short => messages.get("segment-short"),
    }
}

/// How loud the clip and half a second on either side are, with the cuts (lines) and the edges of the captions (dashed).
fn picture(cut: &tandem_data::Cut, strip: &str) -> String {
    let (from, to) = (cut.start - STRIP_AROUND_S, cut.end + STRIP_AROUND_S);
    let x = |seconds: f64| ((seconds - from) / (to - from)).clamp(0.0, 1.0) * WIDTH;
    let count = strip.len().max(1) as f64;
    let mut bars = [String::new(), String::new()];
    for (n, height) in strip_heights(strip).enumerate() {
        let (left, half) = (WIDTH * n as f64 / count, (HEIGHT / 2.0 * height).max(0.5));
        let middle = left + WIDTH / count / 2.0;
        let inside = (x(cut.start)..x(cut.end)).contains(&middle);
        bars[usize::from(inside)] += &format!(
            "M{left:.1} {:.1}h{:.1}v{:.1}h-{:.1}z",
            HEIGHT / 2.0 - half,
            WIDTH / count * 0.8,
            2.0 * half,
            WIDTH / count * 0.8
        );
    }
    let line = |class: &str, seconds: f64| format!("<path class=\"{class}\" d=\"M{0:.1} 0V{HEIGHT}\"/>", x(seconds));
    let captions = cut.captions.map_or_else(String::new, |(start, end)| line("caption", start) + &line("caption", end));
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><path class=\"outside\" d=\"{}\"/>\
         <path class=\"wave\" d=\"{}\"/>{captions}{}{}</svg>\n",
        bars[0],
        bars[1],
        line("cut", cut.start),
        line("cut", cut.end)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_relative_to_the_page_and_encoded() {
        let work = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(work.path().join("a b/wavs")).expect("made");
        std::fs::create_dir_all(work.path().join("pages")).expect("made");
        let file = work.path().join("a b/wavs/x#1?.wav");
        std::fs::write(&file, "x").expect("written");
        let place = |dir: &str| Place::of(Some(&work.path().join(dir).join("page.html")), None, ClipAudio::Wav);
        assert_eq!(place("pages").address(&file), "../a%20b/wavs/x%231%3F.wav");
        assert_eq!(place("").address(&file), "a%20b/wavs/x%231%3F.wav");
    }
}
