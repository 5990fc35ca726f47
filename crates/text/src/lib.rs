//! Text for speech: what is written becomes what is said, and then numbers for a model.
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `normalise.rs` | [`Normaliser`]: Unicode, spaces, quotes; then English or Persian |
//! | `english.rs` | abbreviations, money, ordinals, years, symbols |
//! | `persian.rs` | ی and ک, digits, diacritics, ZWNJ, punctuation, numbers in words |
//! | `numbers.rs` | numbers in words, both languages |
//! | `tokenizer.rs` | [`Tokenizer`]: characters to ids with a vocabulary that is saved with the model |
//! | `phonemes.rs` | [`Phonemiser`]: phonemes by the `espeak-ng` program, if it is installed |
//!
//! ```
//! use tandem_text::{Language, Normaliser, Tokenizer};
//!
//! let english = Normaliser::new(Language::English);
//! assert_eq!(english.normalise("Dr. Moss paid $4.50 on the 3rd."),
//!            "doctor moss paid four dollars and fifty cents on the third.");
//! let persian = Normaliser::new(Language::Persian);
//! assert_eq!(persian.normalise("كتاب ۲۳ صفحه دارد?"), "کتاب بیست و سه صفحه دارد؟");
//! let ids = Tokenizer::for_language(Language::English).encode("hello").ids;
//! assert_eq!(ids.len(), 5);
//! ```

mod english;
mod normalise;
pub mod numbers;
pub mod persian;
mod phonemes;
mod tokenizer;

pub use normalise::{Language, NORMALISER_VERSION, Normaliser};
pub use phonemes::{PhonemeError, Phonemiser};
pub use tokenizer::{Encoded, Tokenizer, VocabularyError};
