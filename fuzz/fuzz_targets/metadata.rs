//! Any bytes as a row of metadata, and its text through normalisation and tokens.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tandem_text::{Language, Normaliser, Tokenizer};

fuzz_target!(|bytes: &[u8]| {
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        let Ok(record) = tandem_data::parse_row(line) else { continue };
        assert!(!record.id.is_empty() && !record.id.contains('/'));
        for language in [Language::English, Language::Persian] {
            let normaliser = Normaliser::new(language);
            let once = normaliser.normalise(&record.text);
            assert_eq!(normaliser.normalise(&once), once);
            let tokenizer = Tokenizer::for_language(language);
            let encoded = tokenizer.encode(&once);
            assert_eq!(tokenizer.decode(&encoded.ids).chars().count(), encoded.ids.len());
        }
    }
});
