use proptest::prelude::*;

use super::*;
use crate::segment::levels::steps_of;

/// Speech of -25 dB in these seconds, with syllables, and quiet elsewhere.
fn levels(speech: &[(f64, f64)], seconds: f64) -> Levels {
    let level = |at: usize| {
        let there = speech.iter().any(|&(start, end)| (frame(start)..frame(end)).contains(&at));
        steps_of(if there { -25.0 - 6.0 * (at as f64 * 0.4).sin().abs() } else { -70.0 + (at % 3) as f64 })
    };
    Levels::from_steps((0..frame(seconds)).map(level).collect())
}

fn caption(line: usize, start: f64, end: f64, text: &str) -> Caption {
    let (place, text) = (CaptionPlace::Line(line), text.to_owned());
    Caption { place, start, end, text, speaker: None, words: Vec::new() }
}

fn settings() -> CutSettings {
    CutSettings::default()
}

/// Speech of each cut, in tenths of a second.
fn tenths(cuts: &Cuts) -> Vec<(u32, u32)> {
    let tenth = |seconds: f64| (seconds * 10.0).round() as u32;
    cuts.cuts.iter().map(|cut| (tenth(cut.speech_start), tenth(cut.speech_end))).collect()
}

fn texts(cuts: &Cuts) -> Vec<&str> {
    cuts.cuts.iter().map(|cut| cut.text.as_str()).collect()
}

#[test]
fn edges_of_captions_move_into_the_pause_beside_them() {
    let levels = levels(&[(1.0, 3.0), (3.6, 6.0), (7.5, 9.0)], 10.0);
    // Early and late, by up to 0.4 s.
    let captions = [caption(1, 0.7, 3.3, "One."), caption(2, 3.3, 5.7, "Two."), caption(3, 7.9, 9.4, "Three.")];
    let cuts = cut_captions(&levels, &captions, &settings());
    assert_eq!(tenths(&cuts), [(10, 30), (36, 60), (75, 90)]);
    assert_eq!(cuts.skipped, []);
    for cut in &cuts.cuts {
        assert_eq!(cut.edge_db, (0.0, 0.0));
        assert!((cut.speech_start - cut.start - 0.1).abs() < 0.011 && (cut.end - cut.speech_end - 0.1).abs() < 0.011);
    }
}

#[test]
fn a_long_pause_wins_over_a_short_one_that_is_nearer() {
    let levels = levels(&[(1.0, 2.5), (2.7, 3.4), (4.0, 6.0)], 7.0);
    let captions = [caption(1, 1.0, 3.1, "One, two."), caption(2, 3.1, 6.0, "Three.")];
    assert_eq!(tenths(&cut_captions(&levels, &captions, &settings())), [(10, 34), (40, 60)]);
}

#[test]
fn captions_without_a_pause_between_them_are_one_clip() {
    let levels = levels(&[(1.0, 7.0), (8.0, 10.0)], 11.0);
    let captions = [caption(1, 1.0, 4.0, "It goes"), caption(2, 4.0, 7.0, "on."), caption(3, 8.0, 10.0, "Then ends.")];
    let cuts = cut_captions(&levels, &captions, &settings());
    assert_eq!(texts(&cuts), ["It goes on.", "Then ends."]);
    // Unless it would be too long: then it is cut where it is quietest, and says so.
    let cuts = cut_captions(&levels, &captions, &CutSettings { max_seconds: 5.0, ..settings() });
    assert_eq!(texts(&cuts), ["It goes", "on.", "Then ends."]);
    assert!(cuts.cuts[0].edge_db.1 > 10.0 && cuts.cuts[0].end == cuts.cuts[1].start, "{cuts:?}");
    // Or another speaker's.
    let speak = |caption: &Caption, name: &str| Caption { speaker: Some(name.to_owned()), ..caption.clone() };
    let two = [speak(&captions[0], "Anna"), speak(&captions[1], "Ben"), speak(&captions[2], "Ben")];
    assert_eq!(texts(&cut_captions(&levels, &two, &settings())), ["It goes", "on.", "Then ends."]);
}

#[test]
fn what_is_too_short_joins_a_neighbor_or_is_named() {
    let levels = levels(&[(1.0, 1.4), (1.9, 4.0), (8.0, 8.5)], 10.0);
    let captions = [caption(1, 1.0, 1.4, "Yes."), caption(2, 1.9, 4.0, "I know it."), caption(3, 8.0, 8.5, "No.")];
    let cuts = cut_captions(&levels, &captions, &settings());
    assert_eq!(texts(&cuts), ["Yes. I know it."]);
    assert!(matches!(cuts.skipped[..], [(CaptionPlace::Line(3), CaptionFault::TooShort(_))]), "{:?}", cuts.skipped);
}

#[test]
fn captions_that_overlap_or_lie_beyond_the_end_are_named() {
    let levels = levels(&[(1.0, 3.0), (4.0, 6.0), (7.0, 9.0)], 10.0);
    let captions = [
        caption(1, 1.0, 5.5, "Anna says this."),
        caption(5, 4.0, 6.0, "Ben says that."),
        caption(9, 7.0, 9.0, "Nobody else."),
        caption(13, 9.9, 12.0, "Half of it is there."),
        caption(17, 20.0, 22.0, "Not at all."),
        caption(21, 6.1, 6.9, "Nothing is heard."),
    ];
    let cuts = cut_captions(&levels, &captions, &settings());
    assert_eq!(texts(&cuts), ["Nobody else."]);
    let named: Vec<String> = cuts.skipped.iter().map(|(place, fault)| format!("{place}: {fault}")).collect();
    assert_eq!(
        named,
        [
            "line 13: it ends at 12.00 s, the recording at 10.00 s",
            "line 17: it ends at 22.00 s, the recording at 10.00 s",
            "line 1: 1.50 s at the same time as line 5",
            "line 5: 1.50 s at the same time as line 1",
            "line 21: there is nothing to be heard",
        ]
    );
}

#[test]
fn a_long_caption_is_split_where_text_and_speech_have_a_break() {
    let levels = levels(&[(1.0, 9.0), (9.4, 11.0), (11.5, 21.0)], 22.0);
    let text = "This first sentence is long enough. And so on. The last one is a little longer than that.";
    let cuts = cut_captions(&levels, &[caption(1, 1.0, 21.0, text)], &settings());
    assert_eq!(tenths(&cuts), [(10, 90), (94, 210)], "{cuts:?}");
    assert_eq!(
        texts(&cuts),
        ["This first sentence is long enough.", "And so on. The last one is a little longer than that."]
    );
    // Where no break fits, nobody guesses.
    let cuts = cut_captions(&levels, &[caption(1, 1.0, 21.0, &text.replace('.', ""))], &settings());
    assert!(cuts.cuts.is_empty() && matches!(cuts.skipped[..], [(_, CaptionFault::TooLong(_))]), "{cuts:?}");
}

#[test]
fn words_with_times_say_where_a_long_caption_is_split() {
    let levels = levels(&[(1.0, 9.0), (9.5, 21.0)], 22.0);
    let word = |n: usize| {
        let start = if n < 8 { 1.0 + n as f64 } else { 9.5 + 1.15 * (n - 8) as f64 };
        TimedWord { text: format!("w{n}"), start, end: start + 0.9 }
    };
    let words: Vec<TimedWord> = (0..18).map(word).collect();
    let text = words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
    let cuts = cut_captions(&levels, &[Caption { words, ..caption(1, 1.0, 21.0, &text) }], &settings());
    assert_eq!(texts(&cuts), ["w0 w1 w2 w3 w4 w5 w6 w7", "w8 w9 w10 w11 w12 w13 w14 w15 w16 w17"]);
    assert_eq!(tenths(&cuts), [(10, 90), (95, 210)]);
}

#[test]
fn pauses_part_speech_that_nobody_wrote_down() {
    let levels = levels(&[(1.0, 3.0), (3.2, 5.0), (5.6, 6.0), (8.0, 8.4), (10.0, 40.0)], 41.0);
    let cuts = cut_pauses(&levels, &settings());
    assert_eq!(tenths(&cuts)[0], (10, 60), "a short pause parts nothing, and what is too short joins");
    assert_eq!(cuts.too_short.len(), 1, "{:?}", cuts.too_short);
    let rest = &cuts.cuts[1..];
    assert!(rest.len() >= 2 && rest.iter().all(|cut| cut.seconds() <= 15.0), "{cuts:?}");
}

proptest! {
    #[test]
    fn clips_never_overlap_and_have_the_lengths_that_were_asked_for(
        speech in prop::collection::vec((0.05f64..12.0, 0.02f64..3.0), 0..25),
        captions in prop::collection::vec((0f64..150.0, 0.01f64..20.0, "[a-z .,?]{0,60}"), 0..25),
        min_seconds in 0.2f64..3.0,
        keep_seconds in 0f64..0.5,
        reach_seconds in 0f64..1.0,
    ) {
        let (mut at, mut stretches) = (0.5, Vec::new());
        for (length, pause) in speech {
            stretches.push((at, at + length));
            at += length + pause;
        }
        let levels = levels(&stretches, at);
        let settings = CutSettings { min_seconds, max_seconds: 4.0 * min_seconds, keep_seconds, reach_seconds, pause_seconds: 0.3 };
        let captions: Vec<Caption> =
            (1..).zip(captions).map(|(line, (start, length, text))| caption(line, start, start + length, &text)).collect();
        for cuts in [cut_captions(&levels, &captions, &settings), cut_pauses(&levels, &settings)] {
            let mut before = 0.0;
            for cut in &cuts.cuts {
                prop_assert!(before <= cut.start + 1e-9, "{cuts:?}");
                prop_assert!(cut.start <= cut.speech_start + 1e-9 && cut.speech_end <= cut.end + 1e-9, "{cut:?}");
                prop_assert!(cut.speech_end - cut.speech_start >= min_seconds - 0.011, "{cut:?}");
                prop_assert!(cut.seconds() <= settings.max_seconds + 0.011, "{cut:?}");
                prop_assert!(cut.end <= levels.seconds() + 1e-9, "{cut:?}");
                before = cut.end;
            }
        }
        // Every caption is in a clip or named, and only once.
        let cuts = cut_captions(&levels, &captions, &settings);
        let letters = |text: &str| text.chars().filter(|letter| !letter.is_whitespace()).count();
        let named: std::collections::BTreeSet<usize> = cuts.skipped.iter().map(|(place, _)| match place {
            CaptionPlace::Line(line) => *line,
            _ => 0,
        }).collect();
        let all: usize = captions.iter().map(|caption| letters(&caption.text)).sum();
        let of_named: usize = named.iter().map(|&line| letters(&captions[line - 1].text)).sum();
        let cut: usize = cuts.cuts.iter().map(|cut| letters(&cut.text)).sum();
        // A caption that was split may be in part.
        prop_assert!(cut + of_named >= all && cut <= all, "{cut} + {of_named} of {all}");
    }
}
