//! `tandem load`: drives only the loader.

use std::io::{IsTerminal, stderr};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;
use tandem_data::{Batch, Corpus, CorpusSettings, LoadSettings, Loader, Open, PlanSettings, padding};
use tandem_flow::{Budget, Context, Cursor, ErrorKind, Flow, Knob, Oversize, Place, Stage};
use tandem_text::{Frontend, Vocabulary};

use crate::args::{LoadArgs, Variant};
use crate::commands::corpus::{self, MB};
use crate::failure::{FAILED, Failure, INTERRUPTED};
use crate::interrupt;
use crate::messages::Messages;
use crate::ui::{output::print, progress};

/// The vocabulary of the benchmark of other loaders; its first symbol, `_`, is the padding.
const BENCH_SYMBOLS: &str = " !\"'(),-.:;?abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const BENCH_SEED: u64 = 1234;

pub(crate) fn run(args: LoadArgs, messages: &Messages) -> Result<(), Failure> {
    let mut settings = corpus::settings(&args.corpus.read)?;
    if args.bench {
        settings.audio_dir = match args.variant.unwrap_or(Variant::Wav) {
            Variant::Wav => "wavs",
            Variant::Flac => "flacs",
            Variant::Wav44 => "wavs44",
        }
        .to_owned();
        settings.open = Open::default();
        settings.frontend = Frontend::raw(Vocabulary::new(BENCH_SYMBOLS.chars()).expect("no symbol twice"));
    }
    let session = Session::open(&args, settings, messages)?;
    if args.bench { session.bench(&args, messages) } else { session.report(&args, messages) }
}

/// A corpus, its loader and how batches are made.
struct Session {
    corpus: Arc<Corpus>,
    loader: Arc<Loader>,
    context: Context,
    workers: Knob,
    buffer: Knob,
    budget: Budget,
    started: Instant,
}

impl Session {
    fn open(args: &LoadArgs, settings: CorpusSettings, messages: &Messages) -> Result<Session, Failure> {
        let started = Instant::now();
        let interrupt = interrupt::catch();
        let corpus = corpus::open(&args.corpus.dir, settings, &interrupt.flag, messages)?;
        corpus::check(&corpus, messages)?;
        let cache = corpus.cache(args.cache, args.cache_limit * MB);
        let plan = PlanSettings {
            batch_size: args.batch_size as usize,
            seed: if args.bench { BENCH_SEED } else { args.seed },
            static_shapes: args.enable_static_shapes && !args.disable_static_shapes,
            plain_order: args.bench,
            ..PlanSettings::default()
        };
        let settings = LoadSettings { plan, ..LoadSettings::default() };
        let loader = Loader::new(corpus.clone(), (0..corpus.len() as u32).collect(), settings, cache)
            .map_err(|error| Failure::usage(error.to_string()))?;
        let cores = crate::run_facts::cores();
        let workers = args.workers.map_or(cores, |workers| workers as usize);
        let mut context = Context::default();
        context.stop = interrupt.stop;
        Ok(Session {
            started,
            corpus,
            loader,
            context,
            workers: Knob::fixed("workers", workers),
            buffer: Knob::fixed("buffer", args.buffer_size as usize),
            budget: Budget::new(Place::Host, (args.memory_limit * MB) as usize, Oversize::Alone),
        })
    }

    fn epoch(&self, epoch: u64) -> Flow<Batch> {
        let start = Cursor { epoch, batch: 0 };
        self.loader.flow(&self.context, start, epoch + 1, &self.workers, &self.buffer, &self.budget)
    }

    /// Epochs one after the other, with what each of them did.
    fn report(&self, args: &LoadArgs, messages: &Messages) -> Result<(), Failure> {
        if !args.json {
            print(&corpus::describe(&self.corpus, messages))?;
        }
        let (mut epochs, mut first) = (Vec::new(), None);
        for epoch in 0..args.epochs {
            let plan = self.loader.plan(epoch);
            let padding = padding(&plan, &self.corpus.sizes());
            let bar = progress::bar(plan.len() as u64, stderr().is_terminal());
            let (before, start, mut clips, mut seconds) = (self.loader.counters(), Instant::now(), 0usize, 0.0);
            let limit = args.max_batches.map_or(usize::MAX, |batches| batches as usize);
            for item in self.epoch(epoch).take(limit) {
                let batch = item.map_err(|error| failure(&error, messages))?.value;
                first.get_or_insert_with(|| self.started.elapsed().as_secs_f64());
                clips += batch.clips.len();
                seconds += batch.seconds;
                bar.inc(1);
            }
            bar.finish_and_clear();
            let (wall, after) = (start.elapsed().as_secs_f64(), self.loader.counters());
            let stage = self.context.stage(Stage::Load).expect("it ran");
            let row = json!({
                "epoch": epoch, "clips": clips, "audio_s": seconds, "wall_s": wall,
                "clips_per_s": clips as f64 / wall, "audio_s_per_s": seconds / wall,
                "decoded": after.decoded - before.decoded,
                "decode_s": after.decode_s - before.decode_s, "resample_s": after.resample_s - before.resample_s,
                "features_s": after.features_s - before.features_s, "cache_s": after.cache_s - before.cache_s,
                "text_s": after.text_s - before.text_s,
                "batch_ms_mean": 1e3 * stage.busy.overall_mean, "batch_ms_p95": 1e3 * stage.busy.p95,
                "padding": padding.share(), "distinct_shapes": padding.distinct_shapes,
            });
            if !args.json {
                print(&epoch_report(&row, messages))?;
            }
            epochs.push(row);
        }
        let bad = self.loader.ledger().reports();
        let failed = self.loader.cache().stats().failed;
        if failed > 0 {
            let dir = self.corpus.work_dir().display();
            eprintln!("{}", messages.with("prepare-failed", &[("count", &failed), ("folder", &dir)]));
        }
        if args.json {
            let object = json!({"clips": self.corpus.len(), "rows": self.corpus.rows(), "audio_s": self.corpus.seconds(),
                "workers": self.workers.get(), "first_batch_s": first, "epochs": epochs, "cache": self.loader.cache().stats(),
                "left_out": self.corpus.fault_reports().into_iter().chain(bad).collect::<Vec<_>>(),
                "memory_high_water_bytes": self.budget.high_water_bytes()});
            print(&format!("{object}\n"))?;
        } else {
            let megabytes = self.budget.high_water_bytes() as u64 / MB;
            print(&format!(
                "{}\n",
                messages.with("load-memory", &[("used", &megabytes), ("limit", &args.memory_limit)])
            ))?;
            for report in bad {
                eprintln!("{}", messages.with("load-bad", &[("id", &report.id), ("reason", &report.reason)]));
            }
        }
        Ok(())
    }

    /// The work that the benchmark of other loaders prescribes; prints its RESULT line.
    fn bench(&self, args: &LoadArgs, messages: &Messages) -> Result<(), Failure> {
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
        let spawned: f64 = std::env::var("BENCH_T0").ok().and_then(|text| text.parse().ok()).unwrap_or_else(now);
        let (mut first, mut frames, mut ids_sum, mut mel_sum) = (None, 0usize, 0i64, 0f64);
        let (mut epoch_s, mut cpu_s) = (Vec::new(), Vec::new());
        for epoch in 0..=args.epochs {
            let (start, cpu, mut clips) = (Instant::now(), cpu_seconds(), 0);
            for item in self.epoch(epoch) {
                let batch = item.map_err(|error| failure(&error, messages))?.value;
                first.get_or_insert_with(|| now() - spawned);
                clips += batch.clips.len();
                if epoch == 0 {
                    frames += batch.mel_lengths.iter().sum::<usize>();
                    for row in 0..batch.clips.len() {
                        let ids = &batch.ids[row * batch.tokens..row * batch.tokens + batch.id_lengths[row]];
                        ids_sum += ids.iter().map(|&id| i64::from(id)).sum::<i64>();
                        for mel in
                            batch.audio[row * batch.n_mels * batch.frames..].chunks(batch.frames).take(batch.n_mels)
                        {
                            mel_sum += mel[..batch.mel_lengths[row]].iter().map(|&x| f64::from(x)).sum::<f64>();
                        }
                    }
                }
            }
            if clips != self.corpus.rows() {
                let text = format!("only {clips} of {} clips could be loaded", self.corpus.rows());
                return Err(Failure::new(FAILED, text));
            }
            if epoch > 0 {
                epoch_s.push(start.elapsed().as_secs_f64());
                cpu_s.push(cpu_seconds() - cpu);
            }
        }
        let variant = match args.variant.unwrap_or(Variant::Wav) {
            Variant::Wav => "wav",
            Variant::Flac => "flac",
            Variant::Wav44 => "wav44",
        };
        let decoded = self.loader.counters().decoded;
        let result = json!({"peer": "tandem", "variant": variant, "clips": self.corpus.rows(),
            "audio_s": self.corpus.seconds(), "first_batch_s": first, "epoch_s": epoch_s, "cpu_s": cpu_s,
            "frames": frames, "ids_sum": ids_sum, "mel_sum": mel_sum, "decoded": decoded,
            "versions": {"tandem": env!("CARGO_PKG_VERSION")}});
        print(&format!("RESULT {result}\n"))?;
        Ok(())
    }
}

fn failure(error: &tandem_flow::Error, messages: &Messages) -> Failure {
    match error.kind {
        ErrorKind::Stopped(_) => Failure::new(INTERRUPTED, messages.get("load-stopped")),
        _ => Failure::new(FAILED, error.to_string()),
    }
}

fn epoch_report(row: &serde_json::Value, messages: &Messages) -> String {
    let number = |key: &str| row[key].as_f64().unwrap_or(0.0);
    let fixed = |key: &str, digits: usize| format!("{:.digits$}", number(key));
    let hours_per_second = format!("{:.2}", number("audio_s_per_s") / 3600.0);
    let padding = format!("{:.1}", 100.0 * number("padding"));
    let first = messages.with(
        "load-epoch",
        &[
            ("epoch", &row["epoch"]),
            ("clips", &row["clips"]),
            ("wall", &fixed("wall_s", 2)),
            ("rate", &fixed("clips_per_s", 0)),
            ("hours", &hours_per_second),
            ("decoded", &row["decoded"]),
        ],
    );
    let second = messages.with(
        "load-parts",
        &[
            ("decode", &fixed("decode_s", 2)),
            ("resample", &fixed("resample_s", 2)),
            ("features", &fixed("features_s", 2)),
            ("cache", &fixed("cache_s", 2)),
            ("text", &fixed("text_s", 2)),
        ],
    );
    let third = messages.with(
        "load-batches",
        &[
            ("mean", &fixed("batch_ms_mean", 1)),
            ("p95", &fixed("batch_ms_p95", 1)),
            ("padding", &padding),
            ("shapes", &row["distinct_shapes"]),
        ],
    );
    format!("{first}\n  {second}\n  {third}\n")
}

/// User and system time of this process, or zero where it cannot be had.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}
