//! `tandem align`: when each token of a corpus is said, as Praat TextGrids.

use std::io::{IsTerminal, stderr};
use std::path::Path;
use std::sync::atomic::Ordering;

use serde_json::json;
use tandem_data::files::write_atomically;
use tandem_data::{Alignment, ClipFault, CorpusSettings, text_grid_path};
use tandem_synth::{HeldOutBatch, Synthesizer};
use tandem_train::{Data, State, each_validation_batch};

use crate::args::AlignArgs;
use crate::commands::{corpus, synth, train};
use crate::failure::{FAILED, Failure, INTERRUPTED};
use crate::interrupt;
use crate::messages::Messages;
use crate::open_lanes;
use crate::ui::output::print;
use crate::ui::progress;

pub(crate) fn run(args: &AlignArgs, messages: &Messages) -> Result<(), Failure> {
    let interrupt = interrupt::catch();
    let device = open_lanes::open_one(&args.device, messages)?.model;
    let (synthesizer, state, _) = synth::open(&args.run, &device, messages)?;
    let dir = args.data.as_deref().unwrap_or(Path::new(&state.data.dir));
    let settings = CorpusSettings {
        max_frames: state.settings.data.max_frames,
        max_tokens: state.settings.data.max_tokens,
        ..state.corpus_settings()
    };
    let opened = corpus::open(dir, settings, &interrupt.flag, messages)
        .map_err(|failure| failure.hint(messages.get("evaluate-hint-data")))?;
    // All clips, each as if it were for validation: no clip is left out, and none is augmented.
    let data = Data::new(opened.clone(), Some(opened)).map_err(|error| train::data_failure(&error, messages))?;
    let clips = data.validation_clips.len();
    for &clip in data.validation_clips.iter().filter(|_| !args.overwrite) {
        let path = text_grid_path(&args.out, &data.validation.name(clip).0);
        if path.exists() {
            let text = messages.with("align-exists", &[("path", &path.display())]);
            return Err(Failure::usage(text).hint(messages.get("synth-hint-overwrite")));
        }
    }
    let bar = progress::bar(clips as u64, stderr().is_terminal());
    bar.set_message(messages.get("align-aligning"));
    let (group, reference) = state.batch_shape();
    let batches = each_validation_batch(&data, &state.settings, &state.stats, group, reference)
        .map_err(|error| Failure::of(FAILED, &error))?;
    let mut written = 0;
    for batch in batches {
        for (id, alignment) in align(&synthesizer, &state, &data, &batch) {
            let alignment = alignment.map_err(|fault| {
                let values: &[(&str, &dyn std::fmt::Display)] = &[("id", &id), ("reason", &fault)];
                Failure::new(FAILED, messages.with("evaluate-unreadable", values))
            })?;
            let path = text_grid_path(&args.out, &id);
            let dir = path.parent().unwrap_or(&args.out);
            let made = std::fs::create_dir_all(dir)
                .and_then(|()| write_atomically(&path, alignment.to_text_grid().as_bytes()));
            made.map_err(|error| {
                let values: &[(&str, &dyn std::fmt::Display)] = &[("path", &path.display()), ("reason", &error)];
                Failure::new(FAILED, messages.with("cannot-write", values))
            })?;
            written += 1;
            bar.inc(1);
        }
        if interrupt.flag.load(Ordering::SeqCst) && written < clips {
            bar.finish_and_clear();
            let values: &[(&str, &dyn std::fmt::Display)] =
                &[("written", &written), ("clips", &clips), ("folder", &args.out.display())];
            return Err(Failure::new(INTERRUPTED, messages.with("align-stopped", values)));
        }
    }
    bar.finish_and_clear();
    if args.json {
        let object = json!({"clips": written, "skipped": data.validation.rows() - written, "folder": args.out,
            "step": state.step});
        return print(&format!("{object}\n"));
    }
    let skipped = data.validation.rows() - written;
    let values: &[(&str, &dyn std::fmt::Display)] =
        &[("clips", &written), ("folder", &args.out.display()), ("step", &state.step), ("skipped", &skipped)];
    print(&format!("{}\n", messages.with("align-done", values)))
}

/// The alignments of a batch, each with the id of its clip.
fn align(
    synthesizer: &Synthesizer,
    state: &State,
    data: &Data,
    batch: &HeldOutBatch,
) -> Vec<(String, Result<Alignment, ClipFault>)> {
    let host = &batch.inputs;
    let inputs = host.clone().upload(&synthesizer.input_shape(), synthesizer.device());
    let durations = synthesizer.model().alignment(&inputs);
    let of_row = |(row, (&clip, durations)): (usize, (&u32, &Vec<u32>))| {
        let ids: Vec<u32> = host.ids[row * host.tokens..][..host.id_lengths[row]].iter().map(|&id| id as u32).collect();
        let text = data.validation.text(clip).unwrap_or_default();
        let symbols = state.frontend.vocabulary.decode(&ids);
        let times = data.validation.frame_times(clip);
        (data.validation.name(clip).0, times.map(|times| Alignment::new(text, symbols, durations, &times)))
    };
    batch.clips.iter().zip(&durations).enumerate().map(of_row).collect()
}
