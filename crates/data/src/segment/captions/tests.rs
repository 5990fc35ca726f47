use super::*;

fn read(text: &str) -> Captions {
    parse_captions(text.as_bytes()).expect("captions")
}

fn said(found: &Captions) -> Vec<(f64, f64, &str)> {
    found.captions.iter().map(|caption| (caption.start, caption.end, caption.text.as_str())).collect()
}

fn faults(found: &Captions) -> Vec<String> {
    found.faults.iter().map(|(place, fault)| format!("{place}: {fault}")).collect()
}

const EXPECTED: [(f64, f64, &str); 2] = [(1.0, 2.5, "Good morning."), (3.0, 4.25, "How are you?")];

#[test]
fn five_kinds_say_the_same() {
    let srt =
        "1\n00:00:01,000 --> 00:00:02,500\nGood <i>morning</i>.\n\n2\n00:00:03,000 --> 00:00:04,250\nHow\nare you?\n";
    let vtt = "WEBVTT - a title\n\nNOTE not a cue\n\n00:01.000 --> 00:02.500 align:start\n<v Anna>Good morning.\n\nname\n\
               00:00:03.000 --> 00:00:04.250\n<v.loud Ben>How are <c.x>you</c>?</v>\n";
    let whisper = r#"{"text": "…", "segments": [{"id": 0, "start": 1.0, "end": 2.5, "text": " Good morning."},
                    {"start": 3, "end": 4.25, "text": " How are you?", "speaker": "SPEAKER_01"}]}"#;
    let cpp = r#"{"transcription": [{"timestamps": {"from": "00:00:01,000", "to": "00:00:02,500"}, "offsets": {"from": 1000, "to": 2500},
                "text": " Good morning."}, {"offsets": {"from": 3000, "to": 4250}, "text": " How are you?"}]}"#;
    let chunks = r#"{"chunks": [{"timestamp": [1.0, 2.5], "text": "Good morning."}, {"timestamp": [3.0, 4.25], "text": "How are you?"}]}"#;
    let grid = "File type = \"ooTextFile\"\nObject class = \"TextGrid\"\n\n0\n5\n<exists>\n2\n\"IntervalTier\"\n\"phones\"\n0\n5\n1\n0\n5\n\"a\"\n\
                \"IntervalTier\"\n\"text\"\n0\n5\n5\n0\n1\n\"\"\n1\n2.5\n\"Good morning.\"\n2.5\n3\n\"\"\n3\n4.25\n\"How are you?\"\n4.25\n5\n\"\"\n";
    let labels = "1.000000\t2.500000\tGood morning.\n\\\t100\t2000\n3,0\t4,25\tHow are you?\n";
    use CaptionKind::{Audacity, Srt, TextGrid, Vtt, Whisper};
    for (kind, text) in [
        (Srt, srt),
        (Vtt, vtt),
        (Whisper, whisper),
        (Whisper, cpp),
        (Whisper, chunks),
        (TextGrid, grid),
        (Audacity, labels),
    ] {
        let windows = format!("\u{feff}{}", text.replace('\n', "\r\n"));
        let utf16: Vec<u8> = windows.encode_utf16().flat_map(u16::to_le_bytes).collect();
        for bytes in [text.as_bytes(), windows.as_bytes(), &utf16] {
            let found = parse_captions(bytes).expect("captions");
            assert_eq!((found.kind, said(&found)), (kind, EXPECTED.to_vec()));
            assert_eq!(found.faults, []);
        }
    }
    let names: Vec<_> = read(vtt).captions.into_iter().map(|caption| caption.speaker.unwrap_or_default()).collect();
    assert_eq!(names, ["Anna", "Ben"]);
    assert_eq!(read(whisper).captions[1].speaker.as_deref(), Some("SPEAKER_01"));
}

#[test]
fn what_is_wrong_in_an_srt_file_has_its_line() {
    let found = read(
        "1\n00:00:01,000 --> 00:00:02,000\nfirst\n\ntwo\n00:00:03,000 --> 00:00:04,000\nsecond\n\n3\n00:00:06,000 --> 00:00:05,000\nreversed\n\n\
         4\n00:00:07,000 --> 00:61:08,000\nno time\n\n5\n00:00:09,000 --> 00:00:10,000\n\n6\n00:00:11,000 --> 00:00:12,000\n[Music]\n\n\
         7\n00:00:13,000 --> 00:00:14,000\n- Who?\n- Me.\n\nstray\n",
    );
    assert_eq!(said(&found), [(1.0, 2.0, "first"), (3.0, 4.0, "second")]);
    assert_eq!(
        faults(&found),
        [
            "line 5: `two` is not the number of a caption; the caption is used",
            "line 10: it begins at 6.000 s and ends at 5.000 s",
            "line 14: `00:61:08,000` is not a time",
            "line 18: the caption has no text",
            "line 21: nothing is said: `[Music]`",
            "line 25: two speakers in one caption",
            "line 29: text that belongs to no caption: `stray`",
        ]
    );
}

#[test]
fn captions_that_follow_without_a_blank_line_are_several() {
    let found = read("1\n00:00:01,000 --> 00:00:02,000\na\n2\n00:00:02,000 --> 00:00:03,000\n7\n8 of 9\n");
    assert_eq!(said(&found), [(1.0, 2.0, "a"), (2.0, 3.0, "7 8 of 9")]);
}

#[test]
fn voices_entities_and_tags_of_vtt() {
    let found = read(
        "WEBVTT\n\n00:01.000 --> 00:02.000\n<v Anna &amp; Co>AT&amp;T is &lt; x <00:01.500><b>y</b> {z}\n\n\
         00:03.000 --> 00:04.000\n<v Anna>Hi.</v> <v Ben>Hi.</v>\n\nno times here\n",
    );
    assert_eq!(said(&found), [(1.0, 2.0, "AT&T is < x y {z}")]);
    assert_eq!(found.captions[0].speaker.as_deref(), Some("Anna & Co"));
    assert_eq!(
        faults(&found),
        ["line 6: two speakers in one caption", "line 9: text that belongs to no caption: `no times here`"]
    );
}

#[test]
fn words_count_if_they_are_the_text() {
    let json = |word: &str| {
        format!(
            r#"[{{"start": 0, "end": 2, "text": " Good morning.", "words": [{{"word": " Good", "start": 0.1, "end": 0.5}},
               {{"word": "{word}", "start": 0.6, "end": 1.9}}]}}]"#
        )
    };
    assert_eq!(read(&json(" morning.")).captions[0].words.len(), 2);
    assert_eq!(read(&json(" evening.")).captions[0].words.len(), 0);
}

#[test]
fn tiers_of_a_text_grid_are_speakers_and_words_only_in_need() {
    let grid = |tiers: &[(&str, &str)]| {
        let mut text = format!("\"ooTextFile\"\n\"TextGrid\"\n0\n5\n<exists>\n{}\n", tiers.len());
        for (name, label) in tiers {
            text += &format!("\"IntervalTier\"\n\"{name}\"\n0\n5\n1\n0\n5\n\"{label}\"\n");
        }
        read(&text)
            .captions
            .into_iter()
            .map(|caption| (caption.speaker.unwrap_or_default(), caption.text))
            .collect::<Vec<_>>()
    };
    let pair = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    assert_eq!(grid(&[("Anna", "hello"), ("Ben", "bye"), ("words", "x")]), [pair("Anna", "hello"), pair("Ben", "bye")]);
    assert_eq!(grid(&[("words", "hello"), ("phones", "h")]), [pair("", "hello")]);
    assert_eq!(grid(&[("anna - words", "hello"), ("ben - words", "bye")]), [pair("anna", "hello"), pair("ben", "bye")]);
}

#[test]
fn what_is_no_caption_file_is_named() {
    let error = |bytes: &[u8]| parse_captions(bytes).expect_err("no captions").to_string();
    let neither = "neither SRT, VTT, Whisper JSON, a TextGrid nor labels of Audacity";
    assert_eq!(error(b"once upon a time\n"), neither);
    assert_eq!(error(b""), neither);
    assert_eq!(error(b"1\n00:00:01,000 --> 00:00:02,000\ncaf\xe9\n"), "line 3 is neither UTF-8 nor UTF-16");
    assert_eq!(error(b"{\"text\": \"x\"}"), "JSON without `segments` of a transcript");
    assert!(error(b"{\"segments\": [").starts_with("not whole JSON: "));
    assert_eq!(error(b"File type = \"ooTextFile\"\n"), "not a whole TextGrid in a text format");
    assert_eq!(error(b"WEBVTT\n"), "VTT without a caption");
}
