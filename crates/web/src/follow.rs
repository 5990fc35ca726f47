//! `--follow`: a later checkpoint of a run is loaded beside the one that speaks, and then takes its place.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tandem_train::checkpoint;

use crate::serve::{OnEvent, ServeEvent, Shared};
use crate::voices::LoadVoice;

/// How often it is looked for one.
const EVERY: Duration = Duration::from_secs(1);

/// Looks until `stop` is set.
pub(crate) fn start(shared: Arc<Shared>, load: LoadVoice, stop: Arc<AtomicBool>, on_event: OnEvent) -> JoinHandle<()> {
    let look = move || {
        // A checkpoint that could not be loaded is not tried again: the next one is.
        let mut refused = Vec::new();
        while !stop.load(Ordering::SeqCst) {
            for (model, run, loaded) in shared.voices.loaded() {
                let Ok(found) = checkpoint::find(&run) else { continue };
                if found == loaded || refused.contains(&found) {
                    continue;
                }
                match load(&found) {
                    Ok(voice) => {
                        let step = voice.step;
                        shared.voices.replace(&model, voice);
                        shared.counters.reload(true);
                        on_event(ServeEvent::Reloaded { model, step });
                    }
                    Err(reason) => {
                        shared.counters.reload(false);
                        refused.push(found);
                        on_event(ServeEvent::ReloadFailed { model, reason });
                    }
                }
            }
            std::thread::sleep(EVERY);
        }
    };
    std::thread::Builder::new().name("follow".to_owned()).spawn(look).expect("a thread can be made")
}
