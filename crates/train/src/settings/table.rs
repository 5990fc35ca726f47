//! [`SETTINGS`]: one row for each setting. The arguments of `train` (and of the commands that share some of them), the
//! keys of `config.yaml`, their JSON schema, the reference, the manifest and what must match on resume are made from it.
//!
//! To add a setting: a field in [`TrainConfig`], a row here, and its use.

use tandem_device::memory;

use super::resolve;
use super::setting::{Field, OnResume, Scope, Setting, row};
use super::train_config::TrainConfig;
use super::value::{Kind, Off, Plain, Value, Word};
use crate::optim::Schedule;

/// A place in [`TrainConfig`]; with `/ UNIT` it is kept in bytes and given in that unit.
macro_rules! at {
    ($($path:ident).+) => {
        Field { get: |config| config.$($path).+.show(), set: |config, value| config.$($path).+.assign(value) }
    };
    ($($path:ident).+ / $unit:expr) => {
        Field {
            get: |config| config.$($path).+.show().and_then(|bytes| Some(Value::Number(bytes.number()? / $unit))),
            set: |config, value| {
                let bytes = value.and_then(Value::number).map(|number| Value::Number(number.saturating_mul($unit)));
                config.$($path).+.assign(bytes.as_ref());
            },
        }
    };
}

/// A megabyte of host memory or of a file.
const MB: u64 = 1_000_000;
const ANY: Kind = Kind::Number(0, u64::MAX);
const FROM_ONE: Kind = Kind::Number(1, u64::MAX);

const DATA: &str = "Data";
const CORPUS: &str = "Corpus";
const FEATURES: &str = "Features";
const RUN: &str = "Run";
const MODEL: &str = "Model";
const DEVICES: &str = "Devices";
const LEARNING: &str = "Learning";
const PIPELINE: &str = "Pipeline";
const OUTPUT: &str = "Output";

const UNITS: &[Word] = &[
    ("auto", "Phonemes if espeak-ng has the language, else characters"),
    ("phonemes", "Phonemes by espeak-ng, which must be installed"),
    ("characters", "The characters of the text"),
];
const FORMATS: &[Word] = &[
    ("auto", "Found out; a folder that fits two is an error that shows both readings"),
    ("ljspeech", "metadata.csv with id|text or id|text|normalized text, and wavs/"),
    ("piper", "metadata.csv with id|text or id|speaker|text, and wavs/"),
    ("coqui", "metadata.csv with wavs/x.wav|text or wavs/x.wav|text|speaker"),
    ("vctk", "txt/SPEAKER/ID.txt and wav48/SPEAKER/ID.wav"),
    ("common-voice", "train.tsv and clips/"),
    ("jsonl", "A JSON object a line with audio_filepath and text, as NeMo writes them"),
    ("audiofolder", "Hugging Face: metadata.csv or metadata.jsonl with file_name"),
    ("shards", "Tar files, as WebDataset writes them"),
    ("parquet", "Hugging Face's parquet files (needs --features parquet)"),
];
const PARTS: &[Word] = &[
    ("acoustic", "The voice: text to mel"),
    ("vocoder", "The vocoder: mel to waveform, for `--vocoder` of synth and evaluate"),
];
const BACKENDS: &[Word] = &[
    ("auto", "The best that there is; software devices only when they are named"),
    ("cuda", "NVIDIA's CUDA (if built in)"),
    ("vulkan", "Vulkan"),
    ("metal", "Metal"),
    ("dx12", "Direct3D 12"),
    ("cpu", "The CPU"),
];
const FEATURES_ON: &[Word] = &[("cpu", "By the workers that read the files"), ("data", "On the data lane's device")];
const LEVELS: &[Word] = &[
    ("basic", "Falls to the end of the run; slowly if it has none"),
    ("enhanced", "Falls like a cosine, with restarts that grow longer"),
    ("plateau_breaker", "Short restarts of a high rate"),
];
const NAN: &[Word] =
    &[("stop", "Name the batch and end the run; nothing is lost"), ("skip", "Name the batch and skip it")];
const BALANCES: &[Word] =
    &[("off", "Every clip once"), ("speaker", "As many clips of each speaker, of rare ones several times")];
const CACHES: &[Word] = &[("ram", "In memory"), ("disk", "On disk, also for later runs"), ("off", "Nowhere")];

use Kind::{Choice, DeviceMegabytes, Fraction, Megabytes, Number, Positive, Real, Seconds, Switch, Text};
use OnResume::{Kept, KeptAs, PerStart};
use Scope::{Advise, Corpus, Profile};

/// Every setting, in the order of the help.
#[rustfmt::skip]
pub static SETTINGS: &[Setting] = &[
    Setting { required: true, ..row("train-data", DATA, Kind::Path, "DIR",
        "Corpus: a folder of speech in any layout that --format lists").scope(Advise) },
    row("val-data", DATA, Kind::Path, "DIR",
        "Corpus to validate on; without it, metadata_eval.csv (or metadata_val.csv) of --train-data, else a tenth of its clips")
        .on_resume(OnResume::MayChange),
    row("alignments", DATA, Kind::Path, "DIR",
        "TextGrids as `tandem align` writes them, ID.TextGrid for each clip: clips that have one are trained with its durations instead of searching for them")
        .at(at!(data.alignments)),

    row("language", CORPUS, Kind::Language, "CODE",
        "Language of the texts: en, fa or any code that espeak-ng has; without it, guessed from the texts")
        .at(at!(data.language)).scope(Corpus),
    row("units", CORPUS, Choice(UNITS), "UNITS", "What the voice reads [default: auto]")
        .at(at!(data.units)).by(resolve::units).on_resume(Kept).scope(Corpus),
    row("keep-diacritics", CORPUS, Switch(Off::NotGiven), "", "Short vowels of Persian that are written are characters too")
        .at(at!(data.diacritics)).on_resume(Kept).scope(Corpus).hide(),
    row("lexicon", CORPUS, Kind::Path, "FILE",
        "Pronunciations that win over espeak-ng, for phonemes: a word and its IPA on each line; kept in a run")
        .on_resume(OnResume::MayChange).scope(Corpus),
    row("format", CORPUS, Choice(FORMATS), "FORMAT", "Layout of the corpus")
        .at(at!(data.format)).is("auto").on_resume(Kept).scope(Corpus),
    row("speakers", CORPUS, Text, "NAMES", "Use only the clips of these speakers, separated by commas")
        .at(at!(data.speakers)).on_resume(Kept).scope(Corpus),
    row("audio-folder", CORPUS, Text, "NAME", "Folder of the audio files below DIR")
        .at(at!(data.audio_dir)).is("wavs").on_resume(Kept).scope(Corpus),
    row("max-mel-frames", CORPUS, ANY, "N", "Skip clips with more than N mel frames")
        .at(at!(data.max_frames)).on_resume(Kept).scope(Corpus),
    row("max-text-length", CORPUS, ANY, "N", "Skip clips whose text has more than N tokens (characters or phonemes)")
        .at(at!(data.max_tokens)).on_resume(Kept).scope(Corpus),

    row("sample-rate", FEATURES, Number(1000, 768_000), "HZ",
        "Samples per second of the features; clips of another rate are resampled")
        .at(at!(data.mel.sample_rate)).is("22050").on_resume(Kept).scope(Corpus),
    row("trim-silence", FEATURES, Switch(Off::Flag("no-trim-silence", "Keep clips whole (the default)")), "",
        "Cut silence beyond 0.1 s at both ends of each clip; every clip is decoded once to find it")
        .at(at!(data.trim_silence)).on_resume(Kept).scope(Corpus),
    row("loudness", FEATURES, Kind::Decibels, "DBFS",
        "Level that the speech of each clip is brought to, for example -23, as far as nothing clips; `off` leaves it")
        .at(at!(data.loudness)).is("off").on_resume(Kept).scope(Corpus),
    row("n-mels", FEATURES, Number(1, 1024), "N", "Mel bands")
        .at(at!(data.mel.n_mels)).is("80").on_resume(Kept).scope(Corpus),
    row("n-fft", FEATURES, ANY, "N", "Samples of one Fourier transform")
        .at(at!(data.mel.n_fft)).is("1024").on_resume(Kept).scope(Corpus),
    row("hop-length", FEATURES, Number(1, 65_536), "N", "Samples between two frames")
        .at(at!(data.mel.hop_length)).is("256").on_resume(Kept).scope(Corpus),
    row("win-length", FEATURES, ANY, "N", "Length of the window; without it, that of the transform")
        .at(at!(data.mel.win_length)).from(|config| Value::Number(config.data.mel.n_fft as u64)).on_resume(Kept).scope(Corpus),
    row("fmin", FEATURES, Real, "HZ", "Lowest frequency")
        .at(at!(data.mel.fmin)).is("0").on_resume(Kept).scope(Corpus),
    row("fmax", FEATURES, Real, "HZ", "Highest frequency")
        .at(at!(data.mel.fmax)).is("8000").on_resume(Kept).scope(Corpus),

    row("checkpoint-dir", RUN, Kind::Path, "DIR", "Folder of the run; without it, runs/NAME of --train-data"),
    row("resume", RUN, Text, "WHICH",
        "Where to resume: `last`, `last-good` (an older one when the last is damaged), `best`, or the folder of a checkpoint")
        .not_with(&["reset-training"]),
    row("reset-training", RUN, Switch(Off::NotGiven), "",
        "Start from scratch; a run that is there is kept beside it as DIR.1, DIR.2, …"),
    row("epochs", RUN, FROM_ONE, "N", "Times over the data").at(at!(run.epochs)).is("500"),
    row("max-steps", RUN, FROM_ONE, "N", "Stop after so many steps, all sessions together")
        .at(at!(run.max_steps)).on_resume(PerStart),
    row("seed", RUN, ANY, "N", "Seed of initial values, order of clips and noise")
        .at(at!(run.seed)).is("1").on_resume(Kept),

    row("part", MODEL, Choice(PARTS), "PART", "What is trained")
        .at(at!(model.part)).is("acoustic").on_resume(Kept),
    row("model-size", MODEL, Kind::Size, "SIZE", "Size of the model; normal is also called base")
        .at(at!(model.size)).is("tiny").on_resume(Kept).scope(Advise),
    row("flow", MODEL, Switch(Off::Flag("no-flow", "Only the mean decoder (the default)")), "",
        "Train the flow-matching decoder too, for `--temperature` above 0: steps take half as long again, and it needs far more of them")
        .at(at!(model.flow)).on_resume(Kept),
    row("enable-gradient-checkpointing", MODEL,
        Switch(Off::Flag("disable-gradient-checkpointing", "Remember activations (the default)")), "",
        "Recompute instead of remembering: less memory, the same gradients").at(at!(model.gradient_checkpointing)),
    row("mixed-precision", MODEL, Switch(Off::Flag("no-mixed-precision", "Single precision (the default)")), "",
        "Half precision; an error where the device has none").at(at!(model.mixed_precision)),
    row("prior-steps", MODEL, ANY, "N", "Steps over which the diagonal prior of the alignment is annealed")
        .at(at!(model.prior_steps)).from(|config| Value::Number(config.model.default_prior_steps())).on_resume(Kept).hide(),
    row("init-from", MODEL, Kind::Path, "RUN",
        "Start with the weights of another run (or checkpoint): for another speaker, corpus or language; what fits by name and shape is loaded, symbols by their name")
        .at(at!(model.init_from)),
    row("freeze", MODEL, Text, "PARTS",
        "Parts of the model that do not learn, separated by commas: text, aligner, mean, projection, speaker, duration, pitch, decoder")
        .at(at!(model.freeze)),
    row("adversarial", MODEL, Switch(Off::NotGiven), "",
        "Stage 2 of a vocoder, unproven: discriminators learn to tell its waveforms from recordings, and it learns to pass; start from stage 1 with --init-from")
        .at(at!(model.adversarial)).on_resume(Kept),
    row("for", MODEL, Kind::Path, "RUN",
        "Acoustic run that a vocoder is for, trained on the same clips: in the last fifth of the steps half of each batch is what it predicts for them")
        .at(at!(model.predicted_by)).on_resume(Kept),
    row("predictions-from", MODEL, ANY, "N",
        "Step from which predictions of --for are learned from; without it, four fifths of all steps")
        .at(at!(model.predictions_from)).by(resolve::predictions_from).on_resume(Kept),

    row("data-gpu", DEVICES, Kind::Device, "GPU",
        "GPU that prepares batches: an index or a part of a name, see `tandem devices`, or `cpu`; needs --model-gpu")
        .scope(Advise),
    row("model-gpu", DEVICES, Kind::Device, "GPU",
        "GPU that trains: an index or a part of a name; needs --data-gpu").scope(Advise),
    row("backend", DEVICES, Choice(BACKENDS), "BACKEND", "Kind of device").is("auto").scope(Advise),
    row("features-on", DEVICES, Choice(FEATURES_ON), "WHERE",
        "Where features are computed [default: data with two GPUs, else cpu]").scope(Advise),
    row("allow-fallback", DEVICES, Switch(Off::NotGiven), "",
        "Use something else, and say so, when a device that was requested cannot be had").scope(Advise),
    row("simulate-devices", DEVICES, Kind::Simulation, "DEVICES",
        "Pretend that there are so many GPUs (4, or 2x24GB); the CPU does their work").scope(Advise),
    row("enable-memory-isolation", DEVICES,
        Switch(Off::Flag("disable-memory-isolation", "No limits but the memory of the devices (the default)")), "",
        "Hard limits for the memory of each lane; going over one is an error, never a crash at hour nine")
        .at(at!(memory.isolated)),
    row("data-gpu-memory", DEVICES, DeviceMegabytes, "MB",
        "What the data lane may take, in MB; needs --enable-memory-isolation; without it, by the memory of the device [8192 if that is unknown]")
        .at(at!(memory.data_limit / memory::MB)).by(resolve::data_limit),
    row("model-gpu-memory", DEVICES, DeviceMegabytes, "MB",
        "What the model lane may take, in MB; needs --enable-memory-isolation; without it, by the memory of the device [16384 if that is unknown]")
        .at(at!(memory.model_limit / memory::MB)).by(resolve::model_limit),

    row("batch-size", LEARNING, Number(1, 65_536), "N", "Clips in a batch; without it, by the memory of the device")
        .at(MICRO_BATCH).by(resolve::batch_size).scope(Advise)
        .on_resume(KeptAs("--batch-size x --grad-accum", |config| Value::Number(config.data.batch_size as u64))),
    row("grad-accum", LEARNING, Number(1, 4096), "N",
        "Batches that make a step, one after the other on the device: the same step as with a batch N times as large")
        .at(at!(optimizer.grad_accum)).is("1"),
    row("balance", LEARNING, Choice(BALANCES), "WHAT",
        "Which clips an epoch has; it is as long in any case").at(at!(data.balance)).is("off").on_resume(Kept),
    row("optimization-level", LEARNING, Choice(LEVELS), "LEVEL",
        "Preset of learning rate, schedule and --max-grad-norm; flags of their own win").is("basic"),
    row("lr", LEARNING, Positive, "RATE", "Highest learning rate")
        .at(at!(optimizer.lr.peak)).preset(|lr, _| Value::Real(lr.peak)),
    row("warmup", LEARNING, ANY, "N", "Steps over which the learning rate rises")
        .at(at!(optimizer.lr.warmup)).preset(|lr, _| Value::Number(lr.warmup)),
    row("schedule", LEARNING, Kind::Schedule(Schedule::WORDS), "KIND",
        "How the learning rate then changes; with numbers of their own as cosine:PERIOD:GROWTH and exponential:HALF_LIFE")
        .at(at!(optimizer.lr.schedule)).preset(|lr, _| Value::Word(lr.schedule.to_string())),
    row("max-grad-norm", LEARNING, Positive, "NORM", "Norm that gradients are clipped to").or(&["clip"])
        .at(at!(optimizer.max_grad_norm)).preset(|_, max_grad_norm| Value::Real(max_grad_norm)),
    row("ema-decay", LEARNING, Fraction, "DECAY",
        "Decay of the moving average of the weights, which validation and synthesis use; 0 = the weights of the last step")
        .at(at!(optimizer.ema_decay)).is("0.999"),
    row("patience", LEARNING, ANY, "N", "End after so many validations without progress; 0 = never")
        .at(at!(run.patience)).is("0"),
    row("nan", LEARNING, Choice(NAN), "POLICY", "What to do when the loss is not a number")
        .at(at!(run.nan)).is("stop"),

    row("num-workers", PIPELINE, Number(0, 1024), "N",
        "Workers: batches made at once; 0 = none, the model's own thread does it; without it, one for each core, at first at most 4")
        .or(&["workers"]).at(at!(pipeline.workers)).by(resolve::workers).on_resume(PerStart).scope(Profile),
    row("buffer-size", PIPELINE, Number(1, 100_000), "N", "Batches kept ready on the host")
        .at(at!(pipeline.buffer_size)).is("50").scope(Profile),
    row("prefetch-buffer-size", PIPELINE, Number(1, 1024), "N",
        "Batches kept ready on the model's device [default: by the batch size, 2 to 8]")
        .at(at!(pipeline.prefetch_buffer_size)).from(resolve::model_queue).scope(Profile),
    row("model-start-delay", PIPELINE, Seconds, "S",
        "Seconds that the model waits for the data lane to get ahead, at most")
        .at(at!(pipeline.model_start_delay)).is("2"),
    row("autotune", PIPELINE, Switch(Off::Flag("no-autotune", "Leave workers and queues as they are")), "",
        "Tune workers and queues while the run is going (the default)").at(at!(pipeline.autotune)),
    row("stall-timeout", PIPELINE, Seconds, "S", "Give up when no batch came for so many seconds; 0 = never")
        .at(at!(pipeline.stall_timeout)).is("300"),
    row("pipeline-depth", PIPELINE, Number(1, 1024), "N",
        "Batches under way before the model: 2 is triple buffering, 1 double buffering")
        .at(at!(pipeline.pipeline_depth)).is("2").scope(Profile),
    row("memory-limit", PIPELINE, Megabytes(1), "MB", "Host memory that all batches together may take, in MB")
        .at(at!(memory.host_limit / MB)).is("512").scope(Profile),
    row("enable-static-shapes", PIPELINE,
        Switch(Off::Flag("disable-static-shapes", "Pad each batch to its longest clip (the default)")), "",
        "Pad batches to a few shapes that never change").at(at!(data.static_shapes)).on_resume(Kept),
    row("cache", PIPELINE, Choice(CACHES), "CACHE", "Where features are kept between epochs")
        .at(at!(pipeline.cache)).is("ram").scope(Profile),
    row("cache-limit", PIPELINE, Megabytes(0), "MB", "The most that the cache may take, in MB")
        .at(at!(pipeline.cache_limit / MB)).is("2000"),

    row("log-every", OUTPUT, Number(1, 100_000), "N", "Steps between two readings of the loss")
        .at(at!(run.log_every)).is("10"),
    row("validate-every", OUTPUT, FROM_ONE, "N", "Steps between two validations [default: an epoch, but at least 100]")
        .at(at!(run.validate_every)).by(resolve::validate_every),
    row("checkpoint-every", OUTPUT, FROM_ONE, "N", "Steps between two checkpoints")
        .at(at!(run.checkpoint_every)).is("500"),
    row("keep", OUTPUT, Number(1, 100_000), "N", "Checkpoints kept besides the best").at(at!(run.keep)).is("5"),
    row("sample-every", OUTPUT, ANY, "N", "Steps between two samples of speech; 0 = none")
        .at(at!(run.sample_every)).is("1000"),
    row("json", OUTPUT, Switch(Off::NotGiven), "", "Print one JSON object a line instead of the report"),
    row("tui", OUTPUT, Switch(Off::NotGiven), "",
        "Show lanes, queues, losses and memory as a dashboard that fills the terminal").not_with(&["json"]),
    row("trace", OUTPUT, Kind::Path, "FILE", "Write who worked when, for ui.perfetto.dev or chrome://tracing"),
    row("tensorboard-log-dir", OUTPUT, Kind::Path, "DIR",
        "Write losses, figures, samples and spectrograms for TensorBoard"),
    row("metrics", OUTPUT, Kind::Address, "ADDRESS",
        "Serve figures for Prometheus on a port (9100) or an address (0.0.0.0:9100); a port alone only for this machine"),
    row("web", OUTPUT, Kind::Address, "ADDRESS",
        "Show the run in a browser while it trains, on a port (7861) or an address of this machine; see `tandem watch`"),
];

/// `--batch-size` is one micro-batch; a run keeps the effective batch.
const MICRO_BATCH: Field = Field {
    get: |config| Some(Value::Number(config.data.batch_size.div_ceil(config.optimizer.grad_accum.max(1)) as u64)),
    set: |config, value| {
        if let Some(batch) = value.and_then(Value::number) {
            config.data.batch_size = batch as usize * config.optimizer.grad_accum;
        }
    },
};

/// The setting of a name, and whether the name turns it off. A name is a flag with or without `--`, an alias, the flag
/// that turns a switch off, or a key of `config.yaml` with or without its section.
pub fn find(name: &str) -> Option<(&'static Setting, bool)> {
    let (section, last) = match name.split_once('.') {
        Some((section, last)) => (Some(section), last),
        None => (None, name),
    };
    let flag = last.trim_start_matches("--").replace('_', "-");
    let here = |setting: &&Setting| section.is_none_or(|section| setting.section() == section);
    SETTINGS.iter().filter(here).find_map(|setting| {
        if setting.flag == flag || setting.aliases.contains(&flag.as_str()) {
            return Some((setting, false));
        }
        setting.off().filter(|(off, _)| *off == flag).map(|_| (setting, true))
    })
}

impl TrainConfig {
    /// What differs among the settings that decide what is learned; one line each.
    pub fn differences(&self, other: &TrainConfig) -> Vec<String> {
        let mut lines = Vec::new();
        let mut compare = |name: &str, mine: Option<Value>, theirs: Option<Value>| {
            if mine != theirs {
                let show = |value: Option<Value>| value.map_or("none".to_owned(), |value| value.to_string());
                lines.push(format!("{name}: {} here, {} in the checkpoint", show(mine), show(theirs)));
            }
        };
        for setting in SETTINGS {
            match setting.on_resume {
                OnResume::Kept => compare(&setting.name(), setting.value(self), setting.value(other)),
                OnResume::KeptAs(name, value) => compare(name, Some(value(self)), Some(value(other))),
                OnResume::MayChange | OnResume::PerStart => {}
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_belong_to_one_setting() {
        let mut names: Vec<&str> = Vec::new();
        for setting in SETTINGS {
            names.push(setting.flag);
            names.extend(setting.aliases);
            names.extend(setting.off().map(|(off, _)| off));
        }
        for name in &names {
            assert_eq!(names.iter().filter(|other| other == &name).count(), 1, "{name}");
        }
        let found = |name| find(name).map(|(setting, off)| (setting.flag, off));
        assert_eq!(found("learning.lr"), Some(("lr", false)));
        assert_eq!(found("--clip"), Some(("max-grad-norm", false)));
        assert_eq!(found("pipeline.no_autotune"), Some(("autotune", true)));
        assert_eq!(found("pipeline.lr"), None);
    }

    /// What the help says is what a run without flags has.
    #[test]
    fn defaults_of_the_table_are_those_of_the_config() {
        let config = TrainConfig::default();
        for setting in SETTINGS {
            if let Some(text) = setting.default_text() {
                let default = setting.kind.parse(text).unwrap_or_else(|why| panic!("{}: {why}", setting.flag));
                if setting.field.is_some() {
                    assert_eq!(setting.value(&config), Some(default), "{}", setting.flag);
                }
            }
            assert!(!setting.help.ends_with('.'), "{}", setting.flag);
            assert_eq!(setting.kind.is_switch(), setting.value_name.is_empty(), "{}", setting.flag);
        }
    }

    /// Each field takes what it shows, in the unit that it is given in.
    #[test]
    fn fields_take_what_they_show() {
        for setting in SETTINGS.iter().filter(|setting| setting.field.is_some()) {
            let mut config = TrainConfig::default();
            config.optimizer.grad_accum = 2;
            (config.memory.data_limit, config.memory.model_limit) = (Some(memory::MB), Some(memory::MB));
            let field = setting.field.expect("filtered");
            let other = match setting.kind {
                Kind::Number(..) | Kind::Megabytes(_) | Kind::DeviceMegabytes => Value::Number(7),
                Kind::Positive | Kind::Fraction | Kind::Real | Kind::Seconds => Value::Real(0.5),
                Kind::Decibels => Value::Real(-23.0),
                Kind::Switch(_) => Value::Switch(setting.value(&config) == Some(Value::Switch(false))),
                Kind::Choice(words) | Kind::Schedule(words) => Value::Word(words[words.len() / 2].0.to_owned()),
                Kind::Size => Value::Word("big".to_owned()),
                Kind::Language => Value::Word("fa".to_owned()),
                Kind::Text => Value::Word("sound".to_owned()),
                Kind::Path => Value::Path("run".into()),
                Kind::Device | Kind::Simulation | Kind::Address => panic!("{}", setting.flag),
            };
            let before = setting.value(&config);
            (field.set)(&mut config, Some(&other));
            assert_eq!(setting.value(&config), Some(other), "{}", setting.flag);
            assert_ne!(setting.value(&config), before, "{}", setting.flag);
        }
    }
}
