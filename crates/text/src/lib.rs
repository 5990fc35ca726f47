//! Text for speech: what is written becomes what is said, and then ids for a model.
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `frontend.rs` | [`Frontend`]: text to ids, in characters or phonemes; the one encoder of corpus and synthesis |
//! | `clauses.rs` | a text on its way to phonemes: clauses, pauses, what is known already |
//! | `language.rs` | [`Language`]: a language by its code |
//! | `guess.rs` | [`Guess`]: which languages texts are in, with the evidence |
//! | `script.rs` | which letters a language is written with |
//! | `normalize.rs` | [`Normalizer`]: Unicode, spaces, quotes; then English or Persian |
//! | `english.rs` | abbreviations, money, ordinals, years, symbols |
//! | `persian.rs` | ی and ک, digits, diacritics, ZWNJ, punctuation, numbers in words |
//! | `numbers.rs` | numbers in words, both languages |
//! | `espeak.rs` | [`Espeak`]: the `espeak-ng` program, if it is installed |
//! | `phonemes.rs` | [`Phonemizer`]: phonemes of clauses; the symbols of IPA |
//! | `lexicon.rs` | [`Lexicon`]: pronunciations that win over `espeak-ng` |
//! | `vocabulary.rs` | [`Vocabulary`]: symbols to ids, saved with the model |
//!
//! ```
//! use tandem_text::{Frontend, Language, Normalizer, Vocabulary};
//!
//! let english = Normalizer::new(&Language::ENGLISH);
//! assert_eq!(english.normalize("Dr. Moss paid $4.50 on the 3rd."),
//!            "doctor moss paid four dollars and fifty cents on the third.");
//! let persian = Normalizer::new(&Language::PERSIAN);
//! assert_eq!(persian.normalize("كتاب ۲۳ صفحه دارد?"), "کتاب بیست و سه صفحه دارد؟");
//!
//! let frontend = Frontend::default(); // characters; the language is guessed
//! let symbols = frontend.symbols(&[("Hello!", None)])?.remove(0).symbols;
//! let frontend = frontend.with_vocabulary(Vocabulary::of(symbols.into_iter().collect()));
//! assert_eq!(frontend.encode("hello", None)?.ids.len(), 7); // silence at both ends
//! assert!(frontend.encode("goodbye", None)?.unknown.contains("g"));
//! # Ok::<(), tandem_text::FrontendError>(())
//! ```

#![forbid(unsafe_code)]

mod clauses;
mod english;
mod espeak;
mod frontend;
mod guess;
mod language;
mod lexicon;
mod normalize;
pub mod numbers;
pub mod persian;
mod phonemes;
mod script;
mod vocabulary;

pub use espeak::{Espeak, PhonemeError};
pub use frontend::{Encoder, FRONTEND_VERSION, Frontend, FrontendError, Symbols, Units, is_word};
pub use guess::Guess;
pub use language::{Language, LanguageError, Rules};
pub use lexicon::{Lexicon, LexiconError, LexiconFault};
pub use normalize::{NORMALIZER_VERSION, Normalizer};
pub use phonemes::{Phonemizer, tokenize_ipa, unstressed};
pub use vocabulary::{Encoded, SILENCE, Vocabulary, VocabularyError};
