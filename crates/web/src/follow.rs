//! `--follow`: a later checkpoint of a run is loaded beside the one that speaks, and then takes its place.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tandem_train::checkpoint;

use crate::serve::{OnEvent, ServeEvent, Shared};
use crate::voices::LoadVoice;

/// How often it is looked for one.
const EVERY: Duration = Duration::from_secs(1);
/// How often a checkpoint is tried that cannot be loaded: a shared file system may show a part of it first.
const TRIES: u32 = 5;

/// Looks until `stop` is set.
pub(crate) fn start(shared: Arc<Shared>, load: LoadVoice, stop: Arc<AtomicBool>, on_event: OnEvent) -> JoinHandle<()> {
    let look = move || {
        let mut tries = BTreeMap::new();
        while !stop.load(Ordering::SeqCst) {
            for (model, run, loaded) in shared.voices.loaded() {
                let Ok(found) = checkpoint::find(&run) else { continue };
                let tried: &mut u32 = tries.entry(found.clone()).or_default();
                if found == loaded || *tried >= TRIES {
                    continue;
                }
                *tried += 1;
                let opened = catch_unwind(AssertUnwindSafe(|| load(&found)));
                match opened.unwrap_or_else(|_| Err("loading it panicked".to_owned())) {
                    Ok(voice) => {
                        let step = voice.step;
                        shared.voices.replace(&model, voice);
                        shared.counters.reload(true);
                        on_event(ServeEvent::Reloaded { model, step });
                    }
                    Err(reason) if *tried == TRIES => {
                        shared.counters.reload(false);
                        on_event(ServeEvent::ReloadFailed { model, reason });
                    }
                    Err(_) => {}
                }
            }
            std::thread::sleep(EVERY);
        }
    };
    std::thread::Builder::new().name("follow".to_owned()).spawn(look).expect("a thread can be made")
}
