//! Promises about long texts (SPEC V7), on an untrained voice: what is tested does not depend on what was learned.

use std::cell::Cell;
use std::collections::BTreeSet;

use tandem_audio::{MelSettings, MelStats, Processing};
use tandem_model::{Device, ModelConfig, Size, Voice};
use tandem_synth::{
    Bundle, Joiner, MOST_TOKENS, Sentence, Sentences, SynthesisError, SynthesisSettings, Synthesizer, Utterance,
};
use tandem_text::{Frontend, Vocabulary};

const TEXT: &str = "Dr. Moss paid 3.14 pounds. Really? Yes, and she carried all of it home in a metal basket, through the \
                    rain. So what! It was late. Nobody saw her; the street was dark and the lamps were out. Stop. Why \
                    would anyone ask? The end.";

fn frontend() -> Frontend {
    let letters = "abcdefghijklmnopqrstuvwxyz ,.;:!?'-".chars().map(String::from);
    Frontend::default().with_vocabulary(Vocabulary::of(letters.collect::<BTreeSet<_>>()))
}

fn voice(frontend: &Frontend) -> Synthesizer {
    let (mel, device) = (MelSettings::default(), Device::flex());
    let config = ModelConfig::new(Size::Smoke, frontend.vocabulary.size(), mel.n_mels, false);
    let stats = MelStats { mean: vec![-5.0; mel.n_mels], std: vec![2.0; mel.n_mels] };
    let processing = Processing::default();
    Synthesizer::new(Voice::new(&config, 3, &device), Bundle { config, mel, processing, stats }, &device)
}

fn speak(text: &str, settings: SynthesisSettings, batch: usize) -> Vec<Utterance> {
    let frontend = frontend();
    let voice = voice(&frontend);
    let sentences = Sentences::new(&frontend, [((), text)], None);
    let spoken = voice.speak(sentences, None, settings, batch).expect("one speaker");
    spoken.map(|(_, utterance)| utterance.expect("known letters")).collect()
}

#[test]
fn a_sentence_sounds_the_same_in_any_batch() {
    // With noise, which must not depend on the place in a batch.
    let settings = SynthesisSettings { temperature: 0.7, steps: 3, ..SynthesisSettings::default() };
    let (single, batched) = (speak(TEXT, settings, 1), speak(TEXT, settings, 8));
    assert_eq!((single.len(), batched.len()), (9, 9));
    for (a, b) in single.iter().zip(&batched) {
        assert_eq!((&a.text, &a.speech.durations), (&b.text, &b.speech.durations));
        let furthest =
            a.speech.mel.iter().zip(&b.speech.mel).map(|(a, b)| (a - b).abs()).max_by(f32::total_cmp).expect("values");
        assert!(a.speech.mel.len() == b.speech.mel.len() && furthest < 1e-4, "{}: {furthest}", a.text);
    }
    // Another seed is another take.
    let other = speak(TEXT, SynthesisSettings { seed: 2, ..settings }, 8);
    assert!(other[0].speech.mel.iter().zip(&single[0].speech.mel).any(|(a, b)| (a - b).abs() > 0.1));
}

#[test]
fn the_first_sentence_is_heard_before_the_second_is_made_and_no_more_than_a_batch_waits() {
    let voice = voice(&frontend());
    let pulled = Cell::new(0);
    let sentences = (0..40).map(|n| {
        pulled.set(pulled.get() + 1);
        (n, Ok(Sentence { text: n.to_string(), ids: vec![2, 3, 4] }))
    });
    let mut heard = 0;
    for (n, utterance) in voice.speak(sentences, None, SynthesisSettings::default(), 4).expect("one speaker") {
        assert_eq!((n, utterance.expect("spoken").text), (heard, heard.to_string()), "in order");
        assert!(heard > 0 || pulled.get() == 1, "the first waits for nobody: {} pulled", pulled.get());
        assert!(pulled.get() - heard <= 4, "{} pulled, {heard} heard", pulled.get());
        heard += 1;
    }
    assert_eq!((heard, pulled.get()), (40, 40));
}

#[test]
fn joins_are_no_steeper_than_the_speech_beside_them() {
    let spoken = speak(TEXT, SynthesisSettings::default(), 8);
    let jump = |a: f32, b: f32| (a - b).abs();
    let inside = spoken.iter().flat_map(|utterance| utterance.speech.samples.windows(2).map(|w| jump(w[0], w[1])));
    let steepest = inside.max_by(f32::total_cmp).expect("values");
    for pause in [0.0, 0.25] {
        let mut joiner = Joiner::new(pause, 22_050);
        let (mut whole, mut bounds) = (Vec::new(), Vec::new());
        for utterance in &spoken {
            let joined = joiner.join(&utterance.speech.samples);
            bounds.extend([joined.start as usize, joined.end as usize]);
            whole.extend(joined.samples);
        }
        let silence = whole.len() - spoken.iter().map(|utterance| utterance.speech.samples.len()).sum::<usize>();
        assert_eq!(silence, (spoken.len() - 1) * (pause * 22_050.0f64).round() as usize);
        for at in bounds.into_iter().filter(|&at| at > 0 && at < whole.len()) {
            let there = jump(whole[at - 1], whole[at]);
            assert!(there < 0.1 * steepest, "{there} at {at}, {steepest} inside");
        }
    }
}

#[test]
fn speed_scales_the_length() {
    let seconds = |speed: f32| -> f64 {
        let spoken = speak(TEXT, SynthesisSettings { speed, ..SynthesisSettings::default() }, 8);
        spoken.iter().map(|utterance| utterance.speech.seconds()).sum()
    };
    let normal = seconds(1.0);
    for speed in [0.5, 0.8, 1.25, 2.0] {
        let ratio = normal / seconds(speed) / f64::from(speed);
        assert!((0.95..1.05).contains(&ratio), "at {speed} the length is off by a factor of {ratio}");
    }
}

#[test]
fn what_cannot_be_said_is_an_error_in_its_place() {
    let frontend = frontend();
    let texts = [(1, "One. ☃ Two."), (2, " "), (3, "… !"), (4, "Four."), (5, "жук")];
    let found: Vec<(i32, Result<Sentence, SynthesisError>)> = Sentences::new(&frontend, texts, None).collect();
    let summary: Vec<(i32, String)> = (found.iter())
        .map(|(key, sentence)| (*key, sentence.as_ref().map_or_else(ToString::to_string, |found| found.text.clone())))
        .collect();
    let unknown = |symbols: &str| format!("the voice was never trained on these symbols:{symbols}");
    let wanted = [
        (1, "One.".to_owned()),
        (1, unknown(" `☃` (U+2603)")),
        (2, "the text is empty".to_owned()),
        (3, "the text has no words".to_owned()),
        (4, "Four.".to_owned()),
        (5, unknown(" `ж` (U+0436) `к` (U+043A) `у` (U+0443)")),
    ];
    assert_eq!(summary, wanted);
    let voice = voice(&frontend);
    let spoken: Vec<_> = voice.speak(found, None, SynthesisSettings::default(), 8).expect("one speaker").collect();
    let is_spoken: Vec<(i32, bool)> = spoken.iter().map(|(key, spoken)| (*key, spoken.is_ok())).collect();
    assert_eq!(is_spoken, [(1, true), (1, false), (2, false), (3, false), (4, true), (5, false)]);
}

#[test]
fn no_sentence_has_more_tokens_than_the_bound() {
    let frontend = frontend();
    // Written short, said long; and a word that never ends.
    let texts = ["123456789 ".repeat(30), "x".repeat(5000), "banana, and ".repeat(200)];
    for text in &texts {
        let sentences: Vec<Sentence> = (Sentences::new(&frontend, [((), text.as_str())], None))
            .map(|(_, sentence)| sentence.expect("known letters"))
            .collect();
        assert!(sentences.len() > 3 && sentences.iter().all(|sentence| sentence.ids.len() <= MOST_TOKENS));
        let bare = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
        let joined: String = sentences.iter().map(|sentence| sentence.text.as_str()).collect();
        assert_eq!(bare(&joined), bare(text), "nothing is lost");
    }
}
