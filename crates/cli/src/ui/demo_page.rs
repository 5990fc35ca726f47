//! The page of `tandem demo`: what the voice says, beside the recording, and how it learned.

use std::path::Path;

use tandem_data::files::write_atomically;
use tandem_observe::{Curve, alignment_png, curves_svg, spectrogram_png};
use tandem_synth::{Evaluation, Speech};

use crate::commands::{evaluate, synth};
use crate::messages::{Lang, Messages};

const STYLE: &str = "\
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
img { max-width: 100%; height: auto; border-radius: 4px; background: #fff; }
img.data { width: 100%; height: 16rem; image-rendering: pixelated; }
audio { width: 100%; }
.sides { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 17rem), 1fr)); gap: 1rem; }
.sides > div { min-width: 0; }
pre { white-space: pre-wrap; padding: 1rem; border: 1px solid #8884; border-radius: 4px; }
";

/// A waveform of the sentence, and the mel that it has.
pub(crate) struct Heard {
    /// Its files are called so; `demo-NAME` is what it is.
    pub(crate) name: &'static str,
    pub(crate) speech: Speech,
}

/// What the demo shows.
pub(crate) struct Shown {
    pub(crate) sentence: String,
    /// As the acoustic model says it.
    pub(crate) spoken: Speech,
    /// The recording, and what each vocoder makes of what is spoken; the last is the best.
    pub(crate) heard: Vec<Heard>,
    pub(crate) truth: Vec<f32>,
    pub(crate) truth_frames: usize,
    pub(crate) alignment: Vec<u32>,
    pub(crate) curves: Vec<Curve>,
}

impl Shown {
    pub(crate) fn write(
        &self,
        dir: &Path,
        evaluation: &Evaluation,
        clips: usize,
        messages: &Messages,
    ) -> std::io::Result<()> {
        let put = |name: &str, bytes: &[u8]| write_atomically(&dir.join(name), bytes);
        for Heard { name, speech } in &self.heard {
            speech.write(&dir.join(format!("{name}.wav")))?;
            put(&format!("{name}.png"), &spectrogram_png(&speech.mel, speech.frames, &[], 4))?;
        }
        if let Some(best) = self.heard.last() {
            best.speech.write(&dir.join("speech.wav"))?;
        }
        put("curves.svg", curves_svg(&messages.get("demo-curves"), &self.curves).as_bytes())?;
        put("alignment.png", &alignment_png(&self.alignment, 4))?;
        put("mel-spoken.png", &synth::draw(&self.spoken))?;
        put("mel-true.png", &spectrogram_png(&self.truth, self.truth_frames, &synth::starts(&self.alignment), 4))?;
        put("index.html", self.page(evaluation, clips, messages).as_bytes())
    }

    fn page(&self, evaluation: &Evaluation, clips: usize, messages: &Messages) -> String {
        let escape = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;");
        let get = |id: &str| escape(&messages.get(id));
        let direction = messages.get("direction");
        let lang = if messages.lang() == Lang::Fa { "fa" } else { "en" };
        let figures = escape(&evaluate::report(evaluation, messages));
        let steps = escape(&messages.with("demo-steps", &[("steps", &evaluation.step), ("clips", &clips)]));
        let side = |Heard { name, .. }: &Heard| {
            let what = get(&format!("demo-{name}"));
            format!(
                "<div><b>{what}</b><img class=\"data\" src=\"{name}.png\" alt=\"\"><audio controls \
                 src=\"{name}.wav\"></audio></div>\n"
            )
        };
        let sides: String = self.heard.iter().map(side).collect();
        let about = if self.heard.len() > 2 { "demo-about-neural" } else { "demo-metallic" };
        format!(
            "<!doctype html>\n<html lang=\"{lang}\" dir=\"{direction}\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
             content=\"width=device-width, initial-scale=1\">\n<title>Tandem</title>\n<style>\n{STYLE}</style>\n\
             <h1>Tandem</h1>\n<p>{steps}</p>\n<h2>{}</h2>\n<p dir=\"auto\"><b>{}</b></p>\n<div class=\"sides\">\n{sides}</div>\n\
             <p>{}</p>\n<h2>{}</h2>\n<pre>{figures}</pre>\n<h2>{}</h2>\n<img src=\"curves.svg\" alt=\"\">\n<h2>{}</h2>\n\
             <img class=\"data\" src=\"mel-spoken.png\" alt=\"\">\n<h2>{}</h2>\n<img class=\"data\" src=\"mel-true.png\" \
             alt=\"\">\n<h2>{}</h2>\n<img class=\"data\" src=\"alignment.png\" alt=\"\">\n</html>\n",
            get("demo-says"),
            escape(&self.sentence),
            get(about),
            get("demo-figures"),
            get("demo-curves"),
            get("demo-mel-spoken"),
            get("demo-mel-true"),
            get("demo-alignment"),
        )
    }
}
