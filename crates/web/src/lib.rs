//! Voices behind HTTP, and runs in a browser. The only crate with an asynchronous runtime.
//!
//! ```text
//! client ─► connections ─► guard ─► speech: admit, parse, choose, encode ─► engine (one thread, keyed batches) ─► stream
//! ```
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `serve.rs` | [`serve`]: routes of `tandem serve`; read this first |
//! | `speech.rs` | `POST /v1/audio/speech` |
//! | `writer.rs` | from spoken sentences to the bytes of an answer |
//! | `request.rs` | [`SpeechRequest`]: what may be asked for; pure |
//! | `schedule.rs` | which sentences share the next batch; pure |
//! | `engine.rs` | the synthesis thread, and who is admitted to it |
//! | `voices.rs` | [`LoadedVoice`]: runs, speakers, uploaded references |
//! | `follow.rs` | later checkpoints take the place of earlier ones |
//! | `encode.rs` | samples as PCM, WAV and FLAC, in pieces |
//! | `connections.rs` | accepts connections, answers on them, lets them go |
//! | `seats.rs` | who is connected and what each does: who can make room |
//! | `patience.rs` | how slowly a client may take what is sent |
//! | `workers.rs` | threads for texts and recordings |
//! | `guard.rs` | tokens, hosts, origins, headers |
//! | `http.rs` | responses, bodies and addresses on top of hyper |
//! | `body.rs` | bodies of requests, within limits |
//! | `errors.rs` | errors in OpenAI's form |
//! | `counters.rs` | totals for Prometheus |
//! | `pages.rs` | files of the pages |
//! | `watch.rs` | [`watch`]: routes of `tandem watch` |
//! | `watch/live.rs` | pages as they change, made once for all who look at them |
//! | `watch/runs.rs` | runs below a directory, and their states |
//! | `watch/page.rs` | the table of runs and the pages of runs as HTML |

#![forbid(unsafe_code)]

mod body;
mod connections;
mod counters;
mod encode;
mod engine;
mod errors;
mod follow;
mod guard;
mod http;
mod pages;
mod patience;
mod request;
mod schedule;
mod seats;
mod serve;
mod speech;
mod voices;
mod watch;
mod workers;
mod writer;

pub use engine::{BatchHook, BatchPlan};
pub use request::{AudioFormat, RequestError, SpeechRequest, voice_name};
pub use serve::{OPENAPI, OnEvent, ServeEvent, ServeSettings, serve};
pub use voices::{LoadVoice, LoadedVoice};
pub use watch::{Texts, WatchSettings, watch};

/// One thread for the network; synthesis, decoding and reading of files have their own.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(8).build()
}
