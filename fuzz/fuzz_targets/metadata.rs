//! Any bytes as a row of metadata, and its text through normalization and symbols; any bytes as a lexicon.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tandem_data::Format;
use tandem_text::{Frontend, Language, Lexicon, Normalizer, tokenize_ipa};

fuzz_target!(|bytes: &[u8]| {
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        for format in Format::ALL {
            let Some(Ok(fields)) = tandem_data::parse_row(format, line) else { continue };
            assert!(!fields.audio.split('/').any(|part| part == ".."), "{format}: {fields:?}");
        }
        let Some(Ok(record)) = tandem_data::parse_row(Format::LjSpeech, line) else { continue };
        assert!(!record.id.is_empty() && !record.id.contains('/'));
        for language in [Language::ENGLISH, Language::PERSIAN] {
            let normalizer = Normalizer::new(&language);
            let once = normalizer.normalize(&record.text);
            assert_eq!(normalizer.normalize(&once), once);
            let frontend = Frontend { language: Some(language), ..Frontend::default() };
            let symbols = frontend.symbols(&[(&once, None)]).expect("characters need no program").remove(0);
            assert!(symbols.symbols.len() <= once.chars().count() + 2);
        }
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = Lexicon::parse(text);
        assert!(tokenize_ipa(text).iter().all(|symbol| !symbol.is_empty()));
    }
});
