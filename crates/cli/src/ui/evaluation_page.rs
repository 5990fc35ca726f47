//! `tandem evaluate --html`: the clips that are furthest from their recordings, to look at and to listen to. One file that needs nothing
//! else: images and sound are in it.

use tandem_audio::write_wav;
use tandem_observe::spectrogram_png;
use tandem_synth::{Distance, Measures, Speech, SpokenClip};

use crate::commands::{evaluate, synth};
use crate::messages::{Lang, Messages};

/// Clips of a page: about a megabyte each.
const CLIPS: usize = 10;

const STYLE: &str = "\
:root { color-scheme: light dark; --page: #fff; --text: #1c2128; --edge: #d0d4da; --quiet: #59636e; }
@media screen and (prefers-color-scheme: dark) { :root { --page: #14181e; --text: #e6eaef; --edge: #3a424d; --quiet: #a3aebb; } }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, 'Noto Sans', Vazirmatn, sans-serif; max-width: 76rem; margin: 0 auto; padding: 2rem 1rem; background: var(--page); color: var(--text); overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.05rem; margin: 0; }
article { border: 1px solid var(--edge); border-radius: .6rem; padding: 1rem; margin: 1.2rem 0; }
.quiet { color: var(--quiet); }
.three { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: 1rem; }
.three > div { min-width: 0; }
img { width: 100%; height: 9rem; image-rendering: pixelated; border-radius: .3rem; } audio { width: 100%; }
table { border-collapse: collapse; margin: .6rem 0 1rem; }
th, td { text-align: start; padding: .15rem 0; padding-inline-end: 1.5rem; border-bottom: 1px solid var(--edge); font-weight: 400; }
thead th { color: var(--quiet); } td { font-variant-numeric: tabular-nums; }
";

/// Collects the worst clips, and only them.
#[derive(Default)]
pub(crate) struct Page {
    /// Distortion and HTML, the worst first.
    clips: Vec<(f64, Shown)>,
}

/// What is kept of a clip: images and sound as they will be written.
struct Shown {
    id: String,
    text: String,
    distances: [Distance; 2],
    token_error_ms: f64,
    length_error: f64,
    /// PNG and WAV of recording, copy-synthesis and synthesis.
    sides: [(Vec<u8>, Vec<u8>); 3],
}

impl Page {
    /// Adds a clip if it is among the worst.
    pub(crate) fn add(&mut self, clip: &SpokenClip, text: String) {
        let measures = clip.measures();
        let distortion = measures.synthesis.mcd_db.unwrap_or(0.0);
        let place = self.clips.iter().position(|(other, _)| *other < distortion).unwrap_or(self.clips.len());
        if place >= CLIPS {
            return;
        }
        let shown = Shown {
            id: clip.id.clone(),
            text,
            distances: [measures.synthesis.clone(), measures.copy_synthesis.clone()],
            token_error_ms: measures.token_duration_error_ms,
            length_error: measures.length_error,
            sides: [&clip.recording, &clip.copy_synthesis, &clip.synthesis].map(side),
        };
        self.clips.insert(place, (distortion, shown));
        self.clips.truncate(CLIPS);
    }

    /// Clips that are on it.
    pub(crate) fn len(&self) -> usize {
        self.clips.len()
    }

    /// The page.
    pub(crate) fn render(&self, title: &str, measures: &Measures, messages: &Messages) -> String {
        let (direction, lang) = (messages.get("direction"), if messages.lang() == Lang::Fa { "fa" } else { "en" });
        let get = |id: &str| escape(&messages.get(id));
        let all = figures(
            &measures.synthesis,
            &measures.copy_synthesis,
            messages,
            &[
                ("evaluate-token", format!("{:.1}", measures.token_duration_error_ms)),
                ("evaluate-clip-length", format!("{:.1}", 100.0 * measures.length_error)),
            ],
        );
        let clips: String = self.clips.iter().map(|(_, clip)| clip.render(messages)).collect();
        format!(
            "<!doctype html>\n<html lang=\"{lang}\" dir=\"{direction}\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
             content=\"width=device-width, initial-scale=1\">\n<meta http-equiv=\"Content-Security-Policy\" \
             content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:\">\n<link rel=\"icon\" \
             href=\"data:,\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n<h1>{title}</h1>\n<p class=\"quiet\">{}</p>\n\
             {all}<p>{}</p>\n{clips}</html>\n",
            get("evaluate-html-about"),
            escape(&messages.with("evaluate-html-worst", &[("count", &self.len()), ("clips", &measures.clips)])),
            title = escape(title),
        )
    }
}

impl Shown {
    fn render(&self, messages: &Messages) -> String {
        let [synthesis, copy] = &self.distances;
        let figures = figures(
            synthesis,
            copy,
            messages,
            &[
                ("evaluate-token", format!("{:.1}", self.token_error_ms)),
                ("evaluate-clip-length", format!("{:.1}", 100.0 * self.length_error)),
            ],
        );
        let names = ["evaluate-recording", "evaluate-copy", "evaluate-synthesis"];
        let sides = names.into_iter().zip(&self.sides).map(|(id, (png, wav))| {
            let name = escape(&messages.get(id));
            let (png, wav) = (base64(png), base64(wav));
            format!(
                "<div><b dir=\"auto\">{name}</b><img alt=\"\" src=\"data:image/png;base64,{png}\">\
                 <audio controls preload=\"none\" src=\"data:audio/wav;base64,{wav}\"></audio></div>\n"
            )
        });
        format!(
            "<article>\n<h2><bdi>{}</bdi></h2>\n<p dir=\"auto\">{}</p>\n{figures}<div class=\"three\" dir=\"ltr\">\n{}</div>\n</article>\n",
            escape(&self.id),
            escape(&self.text),
            sides.collect::<String>()
        )
    }
}

/// The image of a mel and the sound of a waveform, as files.
fn side(speech: &Speech) -> (Vec<u8>, Vec<u8>) {
    let mut wav = Vec::new();
    write_wav(&speech.samples, speech.sample_rate, &mut wav).expect("memory can be written to");
    (spectrogram_png(&speech.mel, speech.frames, &synth::starts(&speech.durations), 2), wav)
}

fn figures(synthesis: &Distance, copy: &Distance, messages: &Messages, alone: &[(&str, String)]) -> String {
    let cell = |text: &str| format!("<td><bdi>{}</bdi></td>", escape(text));
    let row = |id: &str, synthesis: &str, copy: &str| {
        let name = escape(&messages.get(id));
        format!("<tr><th scope=\"row\">{name}</th>{}{}</tr>\n", cell(synthesis), cell(copy))
    };
    let both = evaluate::rows(synthesis, copy).into_iter().map(|(id, synthesis, copy)| row(id, &synthesis, &copy));
    let alone = alone.iter().map(|(id, value)| row(id, value, "–"));
    let heading = ["evaluate-measure", "evaluate-synthesis", "evaluate-copy"]
        .map(|id| format!("<th scope=\"col\">{}</th>", escape(&messages.get(id))));
    let rows: String = both.chain(alone).collect();
    format!("<table>\n<thead><tr>{}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n", heading.concat())
}

/// Text as HTML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Standard alphabet, padded (RFC 4648).
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits = (0..3).fold(0u32, |bits, n| bits << 8 | u32::from(chunk.get(n).copied().unwrap_or(0)));
        for n in 0..4 {
            let letter = ALPHABET[(bits >> (18 - 6 * n) & 63) as usize];
            text.push(if n <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_standard() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xff, 0xfe, 0xfd]), "//79");
    }
}
