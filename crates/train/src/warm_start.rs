//! Warm start (SPEC V5): a new run begins with the weights of another one, for another speaker, corpus or language.
//! Tensors are matched by name and shape, rows of embeddings by the symbol they stand for; everything else is new.

use std::path::Path;

use serde::Serialize;
use tandem_audio::MelSettings;
use tandem_model::weights::{HostTensor, Tensors};
use tandem_text::Vocabulary;

use crate::checkpoint::{self, Checkpoint};
use crate::events::TrainError;
use crate::task::TrainedPart;

/// The embeddings whose rows stand for symbols: row `id` belongs to the symbol with that id, row 0 to padding.
const EMBEDDINGS: [&str; 2] = ["text.embedding.weight", "aligner.embedding.weight"];

/// What another run has learned.
#[derive(Clone, Debug)]
pub struct Donor {
    /// Its averaged weights.
    pub weights: Tensors,
    /// Its symbols.
    pub vocabulary: Vocabulary,
    /// What its frames are.
    pub mel: MelSettings,
    /// Steps that it was trained for.
    pub step: u64,
}

impl Donor {
    /// The best checkpoint of a run, or one that is named.
    ///
    /// # Errors
    ///
    /// If there is none, or if its features are not these: then nothing that it learned holds.
    pub fn open(path: &Path, part: TrainedPart, mel: &MelSettings) -> Result<Donor, TrainError> {
        let Checkpoint { state, ema, .. } = checkpoint::read(&checkpoint::find(path)?)?;
        state.check_part(path, part)?;
        let donor = Donor { weights: ema, vocabulary: state.frontend.vocabulary, mel: state.mel, step: state.step };
        let differences = donor.differences(mel);
        if differences.is_empty() { Ok(donor) } else { Err(TrainError::OtherFeatures(path.to_owned(), differences)) }
    }

    /// What of the features differs; one line each.
    fn differences(&self, mel: &MelSettings) -> Vec<String> {
        checkpoint::mel_differences(mel, &self.mel)
    }
}

/// What became of each tensor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WarmStart {
    /// Taken from the other run.
    pub loaded: Vec<String>,
    /// Embeddings of which some rows were taken: name, rows taken, rows there are.
    pub matched: Vec<(String, usize, usize)>,
    /// Of this model alone: they start from scratch.
    pub new: Vec<String>,
    /// Of the other run alone, or of another shape: not used.
    pub skipped: Vec<String>,
}

/// The weights that a model starts with: `fresh` ones with what the donor has for them.
pub fn match_weights(fresh: Tensors, vocabulary: &Vocabulary, donor: &Donor) -> (Tensors, WarmStart) {
    let mut report = WarmStart::default();
    let weights = (fresh.into_iter())
        .map(|(name, tensor)| {
            let tensor = match donor.weights.get(&name) {
                Some(theirs) if EMBEDDINGS.contains(&name.as_str()) => {
                    match by_symbol(&tensor, theirs, vocabulary, &donor.vocabulary) {
                        Some((tensor, rows)) => {
                            report.matched.push((name.clone(), rows, tensor.shape[0]));
                            tensor
                        }
                        None => {
                            report.new.push(name.clone());
                            tensor
                        }
                    }
                }
                Some(theirs) if theirs.shape == tensor.shape => {
                    report.loaded.push(name.clone());
                    theirs.clone()
                }
                _ => {
                    report.new.push(name.clone());
                    tensor
                }
            };
            (name, tensor)
        })
        .collect();
    let used = |name: &String| report.loaded.contains(name) || report.matched.iter().any(|(used, ..)| used == name);
    report.skipped = donor.weights.keys().filter(|name| !used(name)).cloned().collect();
    (weights, report)
}

/// The rows of symbols that both know are theirs, the others stay; none if the rows are of another width.
fn by_symbol(
    mine: &HostTensor,
    theirs: &HostTensor,
    my_vocabulary: &Vocabulary,
    their_vocabulary: &Vocabulary,
) -> Option<(HostTensor, usize)> {
    let width = *mine.shape.get(1)?;
    if theirs.shape.get(1) != Some(&width) {
        return None;
    }
    let mut tensor = mine.clone();
    let shared = my_vocabulary
        .symbols()
        .iter()
        .filter_map(|symbol| Some((my_vocabulary.id(symbol)? as usize, their_vocabulary.nearest(symbol)? as usize)));
    let mut rows = 0;
    // Padding is row 0 of both.
    for (to, from) in shared.chain([(0, 0)]) {
        let from = theirs.values.get(from * width..(from + 1) * width)?;
        tensor.values.get_mut(to * width..(to + 1) * width)?.copy_from_slice(from);
        rows += 1;
    }
    Some((tensor, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(shape: &[usize], first: f32) -> HostTensor {
        let count = shape.iter().product::<usize>();
        HostTensor { shape: shape.to_vec(), values: (0..count).map(|n| first + n as f32).collect() }
    }

    fn vocabulary(symbols: &[&str]) -> Vocabulary {
        Vocabulary::new(symbols.iter().copied()).expect("distinct")
    }

    fn named(tensors: &[(&str, HostTensor)]) -> Tensors {
        tensors.iter().map(|(name, tensor)| ((*name).to_owned(), tensor.clone())).collect()
    }

    #[test]
    fn tensors_are_matched_by_name_and_shape_and_embeddings_by_symbol() {
        let theirs = vocabulary(&["a", "b", "c"]);
        let mine = vocabulary(&["c", "x", "a"]);
        let donor = Donor {
            weights: named(&[
                (EMBEDDINGS[0], tensor(&[4, 2], 100.0)),
                ("same.weight", tensor(&[2, 2], 200.0)),
                ("grown.weight", tensor(&[2, 3], 300.0)),
                ("gone.weight", tensor(&[1], 400.0)),
            ]),
            vocabulary: theirs.clone(),
            mel: MelSettings::default(),
            step: 7,
        };
        let fresh = named(&[
            (EMBEDDINGS[0], tensor(&[4, 2], 0.0)),
            ("same.weight", tensor(&[2, 2], 10.0)),
            ("grown.weight", tensor(&[2, 4], 20.0)),
        ]);
        let (weights, report) = match_weights(fresh.clone(), &mine, &donor);
        assert_eq!(weights["same.weight"], donor.weights["same.weight"]);
        assert_eq!(weights["grown.weight"], fresh["grown.weight"]);
        let row = |tensors: &Tensors, id: u32| tensors[EMBEDDINGS[0]].values[2 * id as usize..][..2].to_vec();
        for symbol in ["a", "c"] {
            let (to, from) = (mine.id(symbol).expect("known"), theirs.id(symbol).expect("known"));
            assert_eq!(row(&weights, to), row(&donor.weights, from), "{symbol}");
        }
        let new = mine.id("x").expect("known");
        assert_eq!(row(&weights, new), row(&fresh, new), "a symbol that the other run never saw");
        assert_eq!(report.loaded, ["same.weight"]);
        assert_eq!(report.matched, [(EMBEDDINGS[0].to_owned(), 3, 4)]);
        assert_eq!(report.new, ["grown.weight"]);
        assert_eq!(report.skipped, ["gone.weight", "grown.weight"]);
    }

    #[test]
    fn other_features_are_named() {
        let donor =
            Donor { weights: Tensors::new(), vocabulary: vocabulary(&["a"]), mel: MelSettings::default(), step: 0 };
        assert_eq!(donor.differences(&MelSettings::default()), Vec::<String>::new());
        let other = MelSettings { n_mels: 100, ..MelSettings::default() };
        assert_eq!(donor.differences(&other), ["n_mels: 100 here, 80 there"]);
    }
}
