//! `tandem serve`: voices behind OpenAI's interface, and a page to try them.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tandem_model::Device;
use tandem_synth::{Solver, SynthesisSettings};
use tandem_train::checkpoint;
use tandem_web::{LoadVoice, LoadedVoice, ServeEvent, ServeSettings};

use crate::args::ServeArgs;
use crate::commands::synth;
use crate::failure::Failure;
use crate::interrupt;
use crate::messages::Messages;
use crate::open_lanes;

/// Where a token can be put so that it is in no list of processes.
const TOKEN: &str = "TANDEM_TOKEN";

pub(crate) fn run(args: &ServeArgs, messages: &Messages) -> Result<(), Failure> {
    let token = token(args.listen, args.token.as_deref(), args.no_auth, messages)?;
    let device = open_lanes::open_one(&args.device, messages)?.model;
    let synthesis = SynthesisSettings {
        steps: args.steps as usize,
        solver: Solver::Euler,
        temperature: args.temperature as f32,
        ..SynthesisSettings::default()
    };
    let mut voices = Vec::new();
    for run in &args.runs {
        let (synthesizer, state, found) = synth::open(run, &device, messages)?;
        synthesizer.check_settings(synthesis).map_err(|error| synth::failure(&error, messages))?;
        let (synthesizer, _) = synth::with_vocoder(synthesizer, &found, args.vocoder.as_deref(), messages)?;
        let voice = LoadedVoice {
            speakers: speakers(&synthesizer, &found).map_err(|error| synth::failure(&error, messages))?,
            synthesizer,
            frontend: state.frontend,
            step: state.step,
            checkpoint: found,
        };
        voices.push((run.clone(), voice));
    }
    let settings = ServeSettings {
        listen: args.listen,
        token,
        most_characters: args.max_characters as usize,
        most_requests: args.max_requests as usize,
        most_connections: args.max_connections as usize,
        batch_size: args.batch_size as usize,
        hosts: args.host.clone(),
        synthesis,
        follow: args.follow,
        patience: Duration::from_secs(args.patience),
        ..ServeSettings::default()
    };
    let interrupt = interrupt::catch();
    let _ = interrupt.notice.set(messages.get("serve-stopping"));
    let load = loader(args.vocoder.clone(), device);
    let lang = messages.lang();
    let on_event = move |event: ServeEvent| eprintln!("{}", describe(&event, &Messages::for_user(Some(lang))));
    let served = tandem_web::serve(voices, load, settings, interrupt.flag.clone(), Arc::new(on_event));
    served.map_err(|error| cannot_listen(args.listen, &error, messages))
}

/// The token, if one is needed or given; an address that others reach needs a decision.
pub(crate) fn token(
    listen: SocketAddr,
    given: Option<&str>,
    no_auth: bool,
    messages: &Messages,
) -> Result<Option<String>, Failure> {
    let of_environment = || std::env::var(TOKEN).ok();
    let token = given.map(str::to_owned).or_else(of_environment).filter(|token| !token.is_empty() && !no_auth);
    if token.is_none() && !no_auth && !listen.ip().is_loopback() {
        let failure = Failure::usage(messages.with("serve-open", &[("address", &listen)]));
        return Err(failure.hint(messages.get("serve-hint-open")));
    }
    Ok(token)
}

pub(crate) fn cannot_listen(address: SocketAddr, error: &io::Error, messages: &Messages) -> Failure {
    let failure = Failure::usage(messages.with("serve-failed", &[("address", &address), ("reason", error)]));
    match error.kind() {
        io::ErrorKind::AddrInUse => failure.hint(messages.get("serve-hint-port")),
        _ => failure,
    }
}

fn describe(event: &ServeEvent, messages: &Messages) -> String {
    match event {
        ServeEvent::Listening(address) => messages.with("serve-listening", &[("url", &format!("http://{address}/"))]),
        ServeEvent::Reloaded { model, step } => messages.with("serve-reloaded", &[("model", model), ("step", step)]),
        ServeEvent::ReloadFailed { model, reason } => {
            messages.with("serve-reload-failed", &[("model", model), ("reason", reason)])
        }
    }
}

/// Speakers of the corpus of a run.
fn speakers(
    synthesizer: &tandem_synth::Synthesizer,
    checkpoint: &Path,
) -> Result<BTreeMap<String, Arc<tandem_model::HostReference>>, tandem_synth::SynthesisError> {
    if !synthesizer.has_speakers() {
        return Ok(BTreeMap::new());
    }
    let all = synthesizer.all_named(&synth::run_of(checkpoint).voices_path())?;
    Ok(all.into_iter().map(|(name, reference)| (name, Arc::new(reference))).collect())
}

/// Opens later checkpoints.
fn loader(vocoder: Option<String>, device: Device) -> LoadVoice {
    Arc::new(move |path: &Path| {
        let (synthesizer, state) = checkpoint::open_voice(path, &device).map_err(|error| error.to_string())?;
        let synthesizer = match synth::choose_vocoder(vocoder.as_deref(), path) {
            None => synthesizer,
            Some(vocoder) => {
                let vocoder = checkpoint::open_trained_vocoder(&vocoder, &synthesizer.bundle().mel, &device);
                synthesizer.with_vocoder(Box::new(vocoder.map_err(|error| error.to_string())?))
            }
        };
        let speakers = speakers(&synthesizer, path).map_err(|error| error.to_string())?;
        Ok(LoadedVoice {
            synthesizer,
            frontend: state.frontend,
            step: state.step,
            checkpoint: path.to_owned(),
            speakers,
        })
    })
}
