//! What is written becomes what is said, and then numbers for a model.
//!
//!     cargo run --release -p tandem-text --example normalise -- ["A text in English or Persian." ...]
//!
//! Without a text, some of both languages are shown.

use tandem_text::{Language, Normaliser, Tokenizer};

const TEXTS: [&str; 6] = [
    "Dr. Moss paid $4.50 on the 3rd of May, 1984.",
    "It’s 10 km at 5:30 — 50% of 6.28, naïve café ☃",
    "“Mr. Hale lives on Main St.,” he said…",
    "كتاب ۲۳ صفحه دارد?",
    "قیمت ۱٬۲۵۰ تومان, نه ١٠٪",
    "تاریخ ۱۴۰۲/۰۳/۱۵ ساعت ۱۲:۳۰ می\u{200C}روم",
];

fn main() {
    let mut texts: Vec<String> = std::env::args().skip(1).collect();
    if texts.is_empty() {
        texts = Vec::from(TEXTS.map(str::to_owned));
    }
    // The Persian vocabulary has the Latin letters too: one for both languages.
    let tokenizer = Tokenizer::for_language(Language::Persian);
    println!("a vocabulary of {} ids", tokenizer.size());
    for text in texts {
        let language = Language::guess(&text).unwrap_or(Language::English);
        let said = Normaliser::new(language).normalise(&text);
        let encoded = tokenizer.encode(&said);
        println!("\n{}  {text}\n    {said}\n    {} ids: {:?}", language.code(), encoded.ids.len(), encoded.ids);
        if !encoded.unknown.is_empty() {
            println!("    not in the vocabulary, and left out: {:?}", encoded.unknown);
        }
        assert_eq!(tokenizer.encode(&tokenizer.decode(&encoded.ids)).ids, encoded.ids);
    }
}
