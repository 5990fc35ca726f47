//! `tandem inspect`: what is in a run or a checkpoint, and whether it is whole.

use std::path::Path;

use serde_json::json;
use tandem_model::weights::Tensors;
use tandem_train::checkpoint::{self, Checkpoints};
use tandem_train::{Checkpoint, RunDir};

use crate::args::InspectArgs;
use crate::failure::{FAILED, Failure, USAGE};
use crate::messages::Messages;
use crate::ui::training::{duration, millions};
use crate::ui::{output::print, table::Table};

pub(crate) fn run(args: &InspectArgs, messages: &Messages) -> Result<(), Failure> {
    let dir = checkpoint::find(&args.run).map_err(|error| Failure::of(USAGE, &error))?;
    let is_run = dir != args.run;
    let run = RunDir::new(&args.run);
    // A run may be its folder or the folder of its checkpoints.
    let inside = run.checkpoints();
    let checkpoints = if inside.steps().is_empty() { Checkpoints::new(args.run.clone()) } else { inside };
    let mut damaged = 0;
    let steps: Vec<(u64, Option<String>)> = if is_run {
        let all = checkpoints.steps().into_iter();
        all.map(|step| (step, checkpoints.read(step).err().map(|error| error.to_string()))).collect()
    } else {
        Vec::new()
    };
    damaged += steps.iter().filter(|(_, error)| error.is_some()).count();
    let found = checkpoint::read(&dir);
    if args.json {
        let list: Vec<_> = steps.iter().map(|(step, error)| json!({"step": step, "damaged": error})).collect();
        let found = found.map_err(|error| Failure::of(FAILED, &error))?;
        let object = json!({"checkpoint": dir, "state": found.state, "parameters": count(&found.weights),
            "checkpoints": list, "best": checkpoints.best()});
        print(&format!("{object}\n"))?;
    } else {
        for (step, error) in &steps {
            let best = if checkpoints.best() == Some(*step) { messages.get("train-best") } else { String::new() };
            let state = error.clone().unwrap_or_else(|| messages.get("inspect-whole"));
            let line = messages.with("inspect-step", &[("step", step), ("state", &state), ("best", &best)]);
            print(&format!("{line}\n"))?;
        }
        match &found {
            Ok(found) => print(&describe(&dir, found, args.parameters, messages))?,
            Err(error) => return Err(Failure::of(FAILED, error)),
        }
    }
    if damaged > 0 {
        return Err(Failure::new(FAILED, messages.with("inspect-damaged", &[("count", &damaged)])));
    }
    Ok(())
}

fn count(tensors: &Tensors) -> usize {
    tensors.values().map(|tensor| tensor.values.len()).sum()
}

fn describe(dir: &Path, found: &Checkpoint, list: bool, messages: &Messages) -> String {
    let state = &found.state;
    let mut text = messages.with("inspect-title", &[("path", &dir.display()), ("version", &state.version)]);
    text.push('\n');
    let mut line = |id: &str, values: &[(&str, &dyn std::fmt::Display)]| {
        text += &format!("  {}\n", messages.with(id, values));
    };
    line(
        "inspect-progress",
        &[
            ("step", &state.step),
            ("epoch", &state.next.epoch),
            ("batch", &state.next.batch),
            ("time", &duration(state.seconds)),
            ("hours", &format!("{:.2}", state.audio_seconds / 3600.0)),
        ],
    );
    if let Some((loss, step)) = state.best {
        line("train-report-best", &[("loss", &format!("{loss:.4}")), ("step", &step)]);
    }
    line(
        "inspect-model",
        &[
            ("size", &state.settings.model.size),
            ("parameters", &millions(count(&found.weights))),
            ("vocabulary", &state.frontend.vocabulary.size()),
            ("bands", &state.model.n_mels()),
        ],
    );
    line(
        "inspect-data",
        &[
            ("folder", &state.data.dir),
            ("clips", &state.data.clips),
            ("validation", &state.data.validation_clips),
            ("speakers", &state.data.speakers),
        ],
    );
    line("inspect-optimizer", &[("tensors", &found.optimizer.len())]);
    if list {
        let mut table = Table::new([messages.get("inspect-name"), messages.get("inspect-shape")]);
        for (name, tensor) in &found.weights {
            table.row([name.clone(), format!("{:?}", tensor.shape)]);
        }
        text += &table.render();
    }
    text
}
