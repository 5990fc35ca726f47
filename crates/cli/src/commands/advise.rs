//! `tandem advise`: measures a few batches and steps, and says whether one device or two.

use std::collections::BTreeSet;
use std::io::{IsTerminal, stderr};
use std::path::Path;

use serde_json::json;
use tandem_device::memory::{DeviceMemory, MB, optimal_limits, predict};
use tandem_device::probes::Probes;
use tandem_device::topology::Link;
use tandem_device::{Backend, DeviceInfo, FeaturesOn, Inventory, Lanes, Mode, Placement, Request, Selector, resolve};
use tandem_observe::{Advice, Paces, Situation, advise};
use tandem_train::{
    Data, Facts, KeepGoing, MeasuredModel, Requested, TrainConfig, TrainError, measure_data, measure_model,
    resolve as resolve_settings,
};

use crate::args::{AdviseArgs, LaneArgs};
use crate::commands::corpus;
use crate::commands::train::{failure, memory_hints, open_data};
use crate::failure::{FAILED, Failure, INTERRUPTED};
use crate::interrupt;
use crate::messages::Messages;
use crate::open_lanes;
use crate::run_facts;
use crate::ui::output::print;
use crate::ui::progress;
use crate::ui::table::Table;
use crate::ui::training::millions;

/// Batch sizes that people use.
const BATCHES: [usize; 6] = [8, 16, 24, 32, 48, 64];

pub(crate) fn run(args: &AdviseArgs, messages: &Messages) -> Result<(), Failure> {
    let requested: &Requested = &args.requested;
    let lane_args = LaneArgs::of(requested);
    let inventory = open_lanes::inventory(&lane_args);
    let (single, dual) = candidates(&lane_args, &inventory, messages)?;
    let interrupt = interrupt::catch();
    let dir = requested.path("train-data").unwrap_or(Path::new(""));
    let data = open_data(dir, None, corpus::settings(requested)?, &interrupt, messages)?;
    let facts = Facts::new(data.clips.len(), &single).with_texts(&data.corpus);
    let (settings, _) =
        resolve_settings(requested, None, &facts).map_err(|error| run_facts::failure(error, None, messages))?;
    let devices = [&single, dual.as_ref().unwrap_or(&single)].map(|lanes| [lanes.data.physical, lanes.model.physical]);
    for index in devices.into_iter().flatten().collect::<BTreeSet<_>>() {
        let device = inventory.device(index);
        open_lanes::trust(device, messages).map_err(|why| {
            let values: &[(&str, &dyn std::fmt::Display)] =
                &[("device", &device.label()), ("name", &device.name), ("why", &why)];
            Failure::new(FAILED, messages.with("lanes-refused", values))
        })?;
    }
    let rounds = 2 + 2 * (args.steps as usize + 1);
    let bar = progress::bar(rounds as u64, stderr().is_terminal() && !args.json);
    let mut keep_going = || {
        bar.inc(1);
        interrupt.stop.reason().is_none()
    };
    let measured =
        try_out(&data, &settings, &inventory, (&single, dual.as_ref()), args.steps as usize, &mut keep_going);
    bar.finish_and_clear();
    let measured = measured.map_err(|error| memory_hints(&error, false, failure(&error, messages), messages))?;
    let Some((model, one, two)) = measured else {
        return Err(Failure::new(INTERRUPTED, messages.get("advise-stopped")));
    };
    let link = dual.as_ref().and_then(|dual| {
        let (data, model) = (inventory.device(dual.data.physical), inventory.device(dual.model.physical));
        open_lanes::link(&Probes::new(), data, model).value().copied()
    });
    let situation = Situation {
        gpus: inventory.gpus.iter().filter(|gpu| dual.is_some() || gpu.is_real()).count(),
        single: one,
        dual: two,
        link,
        batch_bytes: model.batch_bytes,
        fits: model.preflight.ladder.first().is_none_or(|asked| asked.fits),
    };
    let advice = advise(&situation);
    let report = Report {
        args,
        lanes: lane_args,
        dir,
        settings: &settings,
        single,
        dual,
        model,
        one,
        two,
        situation,
        advice,
        link,
    };
    print(&if args.json { format!("{}\n", report.json()) } else { report.text(messages) })
}

/// One device, and if there is a choice, two: those that were requested, else the best.
fn candidates(
    args: &LaneArgs,
    inventory: &Inventory,
    messages: &Messages,
) -> Result<(Placement, Option<Placement>), Failure> {
    if args.data_gpu.is_some() || args.model_gpu.is_some() {
        let dual = open_lanes::place(args, inventory, messages)?;
        if dual.mode == Mode::SingleBuffered {
            return Ok((dual, None));
        }
        let single = Placement::single(inventory.device(dual.model.physical), &inventory.cpu, FeaturesOn::Cpu);
        return Ok((single, Some(dual)));
    }
    let single = open_lanes::place(args, inventory, messages)?;
    // Indices are ordered by kind: the first is the best, the next one prepares for it.
    let mut real = inventory.gpus.iter().filter(|gpu| gpu.is_real() && gpu.index != single.model.physical);
    let helper: Option<&DeviceInfo> = real.next().filter(|_| single.model.physical.is_some());
    let dual = helper.and_then(|helper| {
        let request = Request {
            data: helper.index.map(Selector::Index),
            model: single.model.physical.map(Selector::Index),
            ..Request::default()
        };
        resolve(&request, &inventory.gpus, &inventory.cpu).ok()
    });
    Ok((single, dual))
}

/// The model alone, the data for one device, and for two. The step is that of the same device in both cases.
fn try_out(
    data: &Data,
    settings: &TrainConfig,
    inventory: &Inventory,
    (single, dual): (&Placement, Option<&Placement>),
    steps: usize,
    keep_going: KeepGoing<'_>,
) -> Result<Option<(MeasuredModel, Paces, Option<Paces>)>, TrainError> {
    let open = |placement: &Placement| -> Result<Lanes, TrainError> {
        let open = |index| inventory.open(inventory.device(index));
        let (data, model) = (open(placement.data.physical), open(placement.model.physical));
        Ok(Lanes {
            placement: placement.clone(),
            data: data.map_err(TrainError::Open)?,
            model: model.map_err(TrainError::Open)?,
        })
    };
    let lanes = open(single)?;
    let Some(model) = measure_model(data, settings, &lanes, steps, keep_going)? else { return Ok(None) };
    let with_step = |paces: Paces| Paces { step_ms: model.step_ms, ..paces };
    let Some(one) = measure_data(data, settings, &lanes, steps, keep_going)? else { return Ok(None) };
    let two = match dual {
        None => None,
        Some(dual) => match measure_data(data, settings, &open(dual)?, steps, keep_going)? {
            Some(two) => Some(with_step(two)),
            None => return Ok(None),
        },
    };
    Ok(Some((model.clone(), with_step(one), two)))
}

struct Report<'a> {
    args: &'a AdviseArgs,
    lanes: LaneArgs,
    dir: &'a Path,
    settings: &'a TrainConfig,
    single: Placement,
    dual: Option<Placement>,
    model: MeasuredModel,
    one: Paces,
    two: Option<Paces>,
    situation: Situation,
    advice: Advice,
    link: Option<Link>,
}

impl Report<'_> {
    /// The command line that the advice amounts to.
    fn command(&self) -> String {
        let dir = self.dir.display();
        let mut command = format!("tandem train --train-data {dir} --model-size {}", self.settings.model.size);
        command += &format!(" --batch-size {}", self.settings.data.batch_size);
        match &self.dual {
            Some(Placement { data, model, .. }) if self.advice.dual => {
                let index = |lane: Option<usize>| lane.unwrap_or_default();
                command += &format!(" --data-gpu {} --model-gpu {}", index(data.physical), index(model.physical));
            }
            _ => match (self.single.model.physical, self.lanes.model_gpu.is_some(), self.lanes.backend.as_ref()) {
                (None, _, _) => command += " --backend cpu",
                // The device that was measured, if it was named.
                (Some(index), true, _) | (Some(index), _, Some(_)) => {
                    command += &format!(" --data-gpu cpu --model-gpu {index}");
                }
                (Some(_), false, None) => {}
            },
        }
        if let Some(simulation) = self.lanes.simulate_devices {
            command += &format!(" --simulate-devices {}x{}GB", simulation.devices, simulation.memory >> 30);
        }
        command
    }

    /// Batch sizes with what they take and whether that fits.
    fn ladder(&self) -> Vec<(usize, u64, Option<bool>)> {
        let limit = self.model.preflight.limit_bytes.or(self.single.model.memory_bytes);
        let sizes: BTreeSet<usize> = BATCHES.into_iter().chain([self.settings.data.batch_size]).collect();
        sizes
            .into_iter()
            .map(|batch| {
                let bytes = predict(&self.model.footprint, batch, 1, false, 2);
                (batch, bytes, limit.map(|limit| bytes <= limit))
            })
            .collect()
    }

    /// What else is to be known about two devices and larger batches (SPEC M14).
    fn supports(&self, messages: &Messages) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(link) = self.link.filter(|link| !link.is_far()) {
            lines.push(messages.with("advise-support-same-root", &[("link", &link)]));
        }
        if let Some(two) = &self.two {
            let taken_over = 1.0 - two.load_ms / self.one.load_ms.max(f64::MIN_POSITIVE);
            if taken_over > 0.3 {
                let share = format!("{:.0}", 100.0 * taken_over);
                lines.push(messages.with("advise-support-preparation", &[("share", &share)]));
            }
        }
        let room = self.ladder().into_iter().filter(|(_, _, fits)| *fits == Some(true)).map(|(batch, ..)| batch).max();
        if let Some(batch) = room.filter(|&batch| batch > self.settings.data.batch_size) {
            lines.push(messages.with("advise-support-batch-can-grow", &[("batch", &batch)]));
        }
        lines
    }

    fn limits(&self) -> tandem_device::memory::Limits {
        let lanes = self.dual.as_ref().unwrap_or(&self.single);
        optimal_limits(
            DeviceMemory { name: &lanes.data.name, total_bytes: lanes.data.memory_bytes },
            DeviceMemory { name: &lanes.model.name, total_bytes: lanes.model.memory_bytes },
        )
    }

    fn json(&self) -> serde_json::Value {
        let paces = |paces: &Paces| {
            json!({"load_ms": paces.load_ms, "preprocess_ms": paces.preprocess_ms, "transfer_ms": paces.transfer_ms,
                "step_ms": paces.step_ms, "period_ms": paces.period_ms(), "starved": paces.starved()})
        };
        let ladder: Vec<_> = self
            .ladder()
            .into_iter()
            .map(|(batch, bytes, fits)| json!({"batch": batch, "bytes": bytes, "fits": fits}))
            .collect();
        json!({"advice": if self.advice.dual { "dual" } else { "single" }, "rule": self.advice.rule,
            "why": self.advice.rule.to_string(), "overlap_gain": self.advice.overlap_gain,
            "dual_gain": self.advice.dual_gain, "command": self.command(),
            "single": {"lanes": self.single, "paces": paces(&self.one)},
            "dual": self.dual.as_ref().zip(self.two.as_ref())
                .map(|(lanes, two)| json!({"lanes": lanes, "paces": paces(two)})),
            "link": self.link, "batch_size": self.settings.data.batch_size, "workers": self.settings.pipeline.workers,
            "parameters": self.model.parameters, "batch_bytes": self.model.batch_bytes, "batches": ladder,
            "limits": self.limits(), "situation": self.situation})
    }

    fn text(&self, messages: &Messages) -> String {
        let mut text = messages.with(
            "advise-measured",
            &[
                ("steps", &self.args.steps),
                ("batch", &self.settings.data.batch_size),
                ("size", &self.settings.model.size),
                ("parameters", &millions(self.model.parameters)),
                ("workers", &self.settings.pipeline.workers),
            ],
        );
        text.push('\n');
        let name = |placement: &Placement| format!("{} + {}", placement.data.label(), placement.model.label());
        let mut table = Table::new([
            messages.get("advise-stage"),
            name(&self.single),
            self.dual.as_ref().map_or(String::new(), name),
        ]);
        type Cell = fn(&Paces) -> String;
        let rows: [(&str, Cell); 6] = [
            ("stage-load", |paces| format!("{:.1} ms", paces.load_ms)),
            ("stage-preprocess", |paces| format!("{:.1} ms", paces.preprocess_ms)),
            ("stage-transfer", |paces| format!("{:.1} ms", paces.transfer_ms)),
            ("stage-train", |paces| format!("{:.1} ms", paces.step_ms)),
            ("advise-period", |paces| format!("{:.1} ms", paces.period_ms())),
            ("advise-starved", |paces| format!("{:.1} %", 100.0 * paces.starved())),
        ];
        for (id, value) in rows {
            let two = self.two.as_ref().map_or(String::new(), value);
            table.row([messages.get(id), value(&self.one), two]);
        }
        text += &table.render();
        let mut line = |text_of_line: String| text += &(text_of_line + "\n");
        line(messages.with("advise-overlap", &[("gain", &format!("{:.2}", self.advice.overlap_gain))]));
        if let Some(gain) = self.advice.dual_gain {
            // A measurement varies by some hundredths.
            let id = match gain {
                1.05.. => "advise-dual-gain",
                0.95..1.05 => "advise-dual-nothing",
                _ => "advise-dual-cost",
            };
            line(messages.with(id, &[("gain", &format!("{gain:.2}"))]));
        }
        if self.single.model.backend == Backend::Cpu {
            line(messages.get("advise-cpu"));
        }
        if self.single.model.backend == Backend::Simulated {
            line(messages.get("lanes-simulated"));
        }
        for support in self.supports(messages) {
            line(support);
        }
        let rule = messages.get(&format!("advise-rule-{}", rule_id(self.advice)));
        let mode = messages.get(if self.advice.dual { "advise-dual" } else { "advise-single" });
        line(messages.with("advise-advice", &[("mode", &mode), ("rule", &rule)]));
        line(format!("  {}", self.command()));
        let mut batches = Table::new(["batch", "memory", "fits"].map(|id| messages.get(&format!("advise-{id}"))));
        for (batch, bytes, fits) in self.ladder() {
            let mark = fits.map_or("?", |fits| if fits { "✓" } else { "-" });
            batches.row([batch.to_string(), format!("{} MB", bytes.div_ceil(MB)), mark.to_owned()]);
        }
        line(batches.render().trim_end().to_owned());
        let limits = self.limits();
        line(messages.with(
            "advise-limits",
            &[("data", &(limits.data_bytes / MB)), ("model", &(limits.model_bytes / MB)), ("why", &limits.why)],
        ));
        text
    }
}

/// The rule's name as it is in JSON.
fn rule_id(advice: Advice) -> String {
    json!(advice.rule).as_str().unwrap_or_default().replace('_', "-")
}
