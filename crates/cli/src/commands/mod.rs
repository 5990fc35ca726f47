//! The commands: one module each, and one line each in [`Command`] and in [`Command::run`]. Their arguments are in `args/` or beside them.

pub(crate) mod advise;
pub(crate) mod align;
pub(crate) mod config;
pub(crate) mod convert;
pub(crate) mod corpus;
pub(crate) mod demo;
pub(crate) mod devices;
pub(crate) mod doctor;
pub(crate) mod evaluate;
pub(crate) mod inspect;
pub(crate) mod load;
pub(crate) mod prepare;
pub(crate) mod profile;
pub(crate) mod reference;
pub(crate) mod report;
pub(crate) mod scaling;
pub(crate) mod segment;
pub(crate) mod serve;
pub(crate) mod simulate;
pub(crate) mod synth;
pub(crate) mod train;
pub(crate) mod watch;

use clap::Subcommand;

use crate::args::{
    AdviseArgs, AlignArgs, CompletionsArgs, ConfigArgs, ConvertArgs, DemoArgs, DevicesArgs, DoctorArgs, EvaluateArgs,
    InspectArgs, LoadArgs, ManArgs, PackArgs, PrepareArgs, ProfileArgs, ReportArgs, SegmentArgs, ServeArgs,
    SimulateArgs, SynthArgs, TrainArgs, WatchArgs,
};
use crate::failure::Failure;
use crate::messages::Messages;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a small talking corpus, train a voice on it for a few minutes, and hear it speak
    Demo(DemoArgs),
    /// Train a voice from a folder of speech; resumes an earlier run
    Train(Box<TrainArgs>),
    /// Synthesize a text with a trained voice
    Synth(SynthArgs),
    /// Serve trained voices over HTTP, as OpenAI's speech endpoint does, with a page to try them
    Serve(ServeArgs),
    /// Show runs in a browser, live: losses, lanes, queues, memory, what limits them, and samples to hear
    Watch(WatchArgs),
    /// Measure how well a voice has learned, on clips that it has not seen
    Evaluate(EvaluateArgs),
    /// Find when each token of a corpus is said, and write it as Praat TextGrids
    Align(AlignArgs),
    /// Show what is in a run or a checkpoint, and whether it is whole
    Inspect(InspectArgs),
    /// List the devices, what connects them, and what could not be read
    Devices(DevicesArgs),
    /// Measure your data on your devices, and say whether one or two are better, and by how much
    Advise(AdviseArgs),
    /// Run some steps of the real pipeline: where the time goes, what limits it, and what to change
    Profile(Box<ProfileArgs>),
    /// Show what a finished or running run did with its time, or compare two
    Report(ReportArgs),
    /// Check every clip of a corpus and name what is wrong, before a single step
    Doctor(DoctorArgs),
    /// Make the index and the feature cache of a corpus, so that training starts at once
    Prepare(PrepareArgs),
    /// Cut long recordings into clips, by captions or at pauses
    Segment(SegmentArgs),
    /// Write a corpus in another layout: new lists, and its audio files by link or copy
    Convert(ConvertArgs),
    /// Pack a corpus into tar files that are read at random, as WebDataset has them
    Pack(PackArgs),
    /// Drive only the loader: how many clips per second, and where the time goes
    Load(LoadArgs),
    /// Write, check and explain the file of settings
    Config(ConfigArgs),
    /// Print a script that completes commands and flags in a shell
    Completions(CompletionsArgs),
    /// Write man pages
    Man(ManArgs),
    /// Run the real pipeline on simulated lanes: see what overlap, workers and depths do, without a GPU
    Simulate(SimulateArgs),
}

impl Command {
    /// Runs it.
    pub(crate) fn run(self, messages: &Messages) -> Result<(), Failure> {
        match self {
            Command::Demo(args) => demo::run(&args, messages),
            Command::Train(args) => train::run(&args, messages),
            Command::Synth(args) => synth::run(&args, messages),
            Command::Serve(args) => serve::run(&args, messages),
            Command::Watch(args) => watch::run(&args, messages),
            Command::Evaluate(args) => evaluate::run(&args, messages),
            Command::Align(args) => align::run(&args, messages),
            Command::Inspect(args) => inspect::run(&args, messages),
            Command::Devices(args) => devices::run(&args, messages),
            Command::Advise(args) => advise::run(&args, messages),
            Command::Profile(args) => profile::run(&args, messages),
            Command::Report(args) => report::run(&args, messages),
            Command::Doctor(args) => doctor::run(args, messages),
            Command::Prepare(args) => prepare::run(args, messages),
            Command::Segment(args) => segment::run(&args, messages),
            Command::Convert(args) => convert::run(&args, messages),
            Command::Pack(args) => convert::run_pack(&args, messages),
            Command::Load(args) => load::run(args, messages),
            Command::Config(args) => config::run(&args, messages),
            Command::Completions(args) => config::completions(&args, messages),
            Command::Man(args) => reference::run(&args, messages),
            Command::Simulate(args) => simulate::run(args, messages),
        }
    }

    /// Whether a script reads events line by line, and so an error as the last of them. The other commands print one
    /// object, and say by their exit code how it ended.
    pub(crate) fn streams_json(&self) -> bool {
        match self {
            Command::Demo(args) => args.json,
            Command::Train(args) => args.requested.is_on("json"),
            Command::Advise(args) => args.json,
            Command::Profile(args) => args.json,
            Command::Synth(args) => args.json && args.out_dir.is_some(),
            _ => false,
        }
    }
}
