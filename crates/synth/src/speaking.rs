//! Long texts, sentence by sentence: split, encoded, synthesized in batches, handed on in order. What is in memory does
//! not grow with the text: at most one batch of speech, and a few sentences ahead as ids.
//!
//! ```text
//! text ─► Sentences: split, encoded 32 at a time ─► Speaking: 1, 2, 4, … at once ─► Joiner ─► file, socket
//! ```

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;

use tandem_model::HostReference;
use tandem_text::{Encoded, Frontend, Language, is_word};

use crate::sampler::SynthesisSettings;
use crate::sentences::{cut, sentences};
use crate::synthesizer::{Speech, SynthesisError, Synthesizer};

/// A sentence of more tokens is cut: attention grows with the square, and no clip of a corpus is that long.
pub const MOST_TOKENS: usize = 220;

/// What cannot be cut, a pronunciation in `[[…]]`, may have more, but not any number: memory grows with the square as well.
pub(crate) const LONGEST_SENTENCE: usize = 4 * MOST_TOKENS;

/// Sentences that are encoded in one go: phonemes take one process for all of them.
const READ_AHEAD: usize = 32;

/// A sentence as the model takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentence {
    /// As it is written.
    pub text: String,
    /// Its tokens.
    pub ids: Vec<i32>,
}

/// The sentences of one or many texts, encoded as they are asked for. Each text has a key that its sentences carry. What
/// cannot be said (a symbol that the voice does not know, a text without words) is an error in its place; the other
/// sentences still come.
pub struct Sentences<'a, K> {
    /// Knows the language if one was given.
    frontend: Cow<'a, Frontend>,
    pieces: Box<dyn Iterator<Item = Piece<'a, K>> + Send + 'a>,
    ready: VecDeque<(K, Result<Sentence, SynthesisError>)>,
    failed: bool,
}

/// A sentence on its way to ids.
#[derive(Clone)]
struct Piece<'a, K> {
    key: K,
    text: &'a str,
    /// That of the whole text, for a sentence that does not show its own, such as a number.
    language: Option<Language>,
}

impl<'a, K: Clone + Send + 'a> Sentences<'a, K> {
    /// The sentences of `texts`, in `language`, else in that of the front end, else guessed for each of them.
    pub fn new<T>(frontend: &'a Frontend, texts: T, language: Option<&Language>) -> Sentences<'a, K>
    where
        T: IntoIterator<Item = (K, &'a str)>,
        T::IntoIter: Send + 'a,
    {
        let frontend = match language {
            Some(language) => Cow::Owned(Frontend { language: Some(language.clone()), ..frontend.clone() }),
            None => Cow::Borrowed(frontend),
        };
        let pieces = texts.into_iter().flat_map(|(key, text)| {
            let language = Language::guess(text);
            let mut pieces = sentences(text).peekable();
            // A text without a sentence still has its error.
            let whole = pieces.peek().is_none().then_some(text);
            pieces.chain(whole).map(move |text| Piece { key: key.clone(), text, language: language.clone() })
        });
        Sentences { frontend, pieces: Box::new(pieces), ready: VecDeque::new(), failed: false }
    }

    fn encode(&mut self, pieces: Vec<Piece<'a, K>>) -> Result<(), SynthesisError> {
        let texts: Vec<(&str, Option<&Language>)> = (pieces.iter())
            .map(|piece| (piece.text, piece.language.as_ref().filter(|_| Language::guess(piece.text).is_none())))
            .collect();
        let symbols = self.frontend.symbols(&texts).map_err(SynthesisError::Frontend)?;
        for (piece, symbols) in pieces.into_iter().zip(symbols) {
            let vocabulary = &self.frontend.vocabulary;
            let Encoded { ids, mut unknown } = vocabulary.encode(symbols.symbols.iter().map(String::as_str));
            unknown.extend(symbols.skipped.iter().map(char::to_string));
            let longest_part = piece.text.chars().count() * 2 / 3;
            let sentence = if piece.text.trim().is_empty() {
                Err(SynthesisError::Empty)
            } else if !unknown.is_empty() {
                Err(SynthesisError::Unknown(unknown))
            } else if !vocabulary.decode(&ids).any(is_word) {
                Err(SynthesisError::NothingToSay)
            } else if ids.len() > MOST_TOKENS
                && let Some(at) = cut(piece.text, longest_part)
            {
                // Numbers are longer when they are said than when they are written.
                let (first, second) = piece.text.split_at(at);
                let part = |text: &'a str| Piece { text: text.trim(), ..piece.clone() };
                self.encode(vec![part(first), part(second)])?;
                continue;
            } else if ids.len() > LONGEST_SENTENCE {
                Err(SynthesisError::Uncuttable(ids.len()))
            } else {
                let ids = ids.into_iter().map(|id| id as i32).collect();
                Ok(Sentence { text: piece.text.to_owned(), ids })
            };
            self.ready.push_back((piece.key, sentence));
        }
        Ok(())
    }
}

impl<'a, K: Clone + Send + 'a> Iterator for Sentences<'a, K> {
    type Item = (K, Result<Sentence, SynthesisError>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.ready.is_empty() && !self.failed {
            let pieces: Vec<Piece<'a, K>> = self.pieces.by_ref().take(READ_AHEAD).collect();
            let key = pieces.first()?.key.clone();
            if let Err(error) = self.encode(pieces) {
                // There are no symbols at all, of this text or another.
                self.failed = true;
                self.ready = VecDeque::from([(key, Err(error))]);
            }
        }
        self.ready.pop_front()
    }
}

impl<K> fmt::Debug for Sentences<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sentences").field("ready", &self.ready.len()).finish_non_exhaustive()
    }
}

/// A sentence, spoken.
#[derive(Clone, Debug)]
pub struct Utterance {
    /// As it is written.
    pub text: String,
    /// What was synthesized.
    pub speech: Speech,
}

/// Sentences of one or many texts, spoken in order. The key says which text a sentence belongs to; an error takes the place
/// of its sentence, and those of other texts go on. Made by [`Synthesizer::speak`].
#[derive(Debug)]
pub struct Speaking<'a, K, I> {
    synthesizer: &'a Synthesizer,
    sentences: I,
    reference: Option<&'a HostReference>,
    settings: SynthesisSettings,
    /// Sentences of the next batch: the first is one, so that there is something to hear soon, then twice as many each time.
    batch: usize,
    most: usize,
    ready: VecDeque<(K, Result<Utterance, SynthesisError>)>,
    failed: bool,
}

impl Synthesizer {
    /// Synthesizes sentences in batches of at most `batch`. What a sentence sounds like depends on its text, the settings
    /// and the speaker alone, not on the batch that it is in.
    ///
    /// # Errors
    ///
    /// [`SynthesisError::NoReference`] or [`SynthesisError::OneSpeaker`] if the reference does not go with the voice,
    /// [`SynthesisError::NoFlow`] if the temperature does not.
    pub fn speak<'a, K, I>(
        &'a self,
        sentences: I,
        reference: Option<&'a HostReference>,
        settings: SynthesisSettings,
        batch: usize,
    ) -> Result<Speaking<'a, K, I::IntoIter>, SynthesisError>
    where
        I: IntoIterator<Item = (K, Result<Sentence, SynthesisError>)>,
    {
        self.check_reference(reference)?;
        self.check_settings(settings)?;
        Ok(Speaking {
            synthesizer: self,
            sentences: sentences.into_iter(),
            reference,
            settings,
            batch: 1,
            most: batch.max(1),
            ready: VecDeque::new(),
            failed: false,
        })
    }
}

impl<K, I: Iterator<Item = (K, Result<Sentence, SynthesisError>)>> Iterator for Speaking<'_, K, I> {
    type Item = (K, Result<Utterance, SynthesisError>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.ready.is_empty() && !self.failed {
            let mut batch: Vec<_> = self.sentences.by_ref().take(self.batch).collect();
            self.batch = (2 * self.batch).min(self.most);
            let ids = |(_, sentence): &mut (K, Result<Sentence, SynthesisError>)| {
                sentence.as_mut().ok().map(|sentence| std::mem::take(&mut sentence.ids))
            };
            let ids: Vec<Vec<i32>> = batch.iter_mut().filter_map(ids).collect();
            match self.synthesizer.synthesize_batch(&ids, self.reference, self.settings) {
                Ok(spoken) => {
                    let mut spoken = spoken.into_iter();
                    self.ready.extend(batch.into_iter().map(|(key, sentence)| {
                        let speak = |Sentence { text, .. }| Utterance {
                            text,
                            speech: spoken.next().expect("as many as sentences"),
                        };
                        (key, sentence.map(speak))
                    }));
                }
                Err(error) => {
                    self.failed = true;
                    let first = batch.into_iter().next()?;
                    return Some((first.0, Err(error)));
                }
            }
        }
        self.ready.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use tandem_text::Vocabulary;

    use super::*;

    #[test]
    fn what_cannot_be_cut_is_not_endless() {
        let frontend = Frontend::raw(Vocabulary::new(["a", "[", "]", " ", "."]).expect("no symbol twice"));
        let lengths = |text: &str| -> Vec<Result<usize, SynthesisError>> {
            let all = Sentences::new(&frontend, [((), text)], None);
            all.map(|((), sentence)| sentence.map(|sentence| sentence.ids.len())).collect()
        };
        let long = format!("[[{}]] aa.", "a".repeat(LONGEST_SENTENCE));
        assert!(matches!(lengths(&long)[..], [Err(SynthesisError::Uncuttable(884)), Ok(3)]), "{:?}", lengths(&long));
        let shorter = format!("[[{}]]", "a".repeat(LONGEST_SENTENCE - 4));
        assert!(matches!(lengths(&shorter)[..], [Ok(LONGEST_SENTENCE)]), "{:?}", lengths(&shorter));
        assert!(lengths(&"a".repeat(5000)).iter().all(|length| length.as_ref().is_ok_and(|&length| length <= 220)));
    }
}
