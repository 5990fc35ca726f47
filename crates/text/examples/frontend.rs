//! What is written becomes what is said, and then ids for a model.
//!
//!     cargo run --release -p tandem-text --example frontend -- ["A text in English or Persian." ...]
//!
//! Without a text, some of both languages are shown.

use std::collections::BTreeSet;

use tandem_text::{Frontend, Normalizer, Units, Vocabulary};

const TEXTS: [&str; 6] = [
    "Dr. Moss paid $4.50 on the 3rd of May, 1984.",
    "It’s 10 km at 5:30 — 50% of 6.28, naïve café ☃",
    "“Mr. Hale lives on Main St.,” he said…",
    "كتاب ۲۳ صفحه دارد?",
    "قیمت ۱٬۲۵۰ تومان, نه ١٠٪",
    "تاریخ ۱۴۰۲/۰۳/۱۵ ساعت ۱۲:۳۰ می\u{200C}روم",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut texts: Vec<String> = std::env::args().skip(1).collect();
    if texts.is_empty() {
        texts = Vec::from(TEXTS.map(str::to_owned));
    }
    for units in [Units::Characters, Units::Phonemes] {
        let frontend = Frontend { units, ..Frontend::default() };
        if let Err(error) = frontend.check() {
            println!("\n{units}: {error}");
            continue;
        }
        let inputs: Vec<_> = texts.iter().map(|text| (text.as_str(), None)).collect();
        let symbols = frontend.symbols(&inputs)?;
        // A voice knows the symbols of the texts that it was trained on.
        let seen: BTreeSet<String> = symbols.iter().flat_map(|symbols| symbols.symbols.clone()).collect();
        let frontend = frontend.with_vocabulary(Vocabulary::of(seen));
        println!("\n{units}: a vocabulary of {} ids", frontend.vocabulary.size());
        for (text, symbols) in texts.iter().zip(symbols) {
            let language = frontend.language_of(text, None);
            println!("\n{language}  {text}\n    {}", Normalizer::new(&language).normalize(text));
            println!("    {}", symbols.symbols.join(" "));
            let encoded = frontend.encode(text, None)?;
            println!("    {} ids: {:?}", encoded.ids.len(), encoded.ids);
            if !encoded.unknown.is_empty() {
                println!("    without a sound, skipped: {:?}", encoded.unknown);
            }
        }
    }
    Ok(())
}
