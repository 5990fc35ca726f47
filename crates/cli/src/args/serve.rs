//! Arguments of the commands that are used with a browser.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::DeviceArgs;
use super::train::parse_temperature;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Open the address in a browser to type and hear, or send requests as to OpenAI's speech endpoint (POST /v1/audio/speech).
Only this machine can connect unless --listen says otherwise; then --token or --no-auth is needed. Ctrl-C (or SIGTERM) finishes
what is under way.

Exit code: 0 ended by Ctrl-C, 2 wrong arguments, runs or address.

Examples:
  tandem serve runs/my-voice
  tandem serve runs/my-voice runs/other-voice --follow
  tandem serve runs/my-voice --listen 0.0.0.0:7860 --token \"$(openssl rand -hex 16)\"
  curl http://127.0.0.1:7860/v1/audio/speech -H 'Content-Type: application/json' -d '{\"input\": \"A metal basket.\"}' -o hello.wav"
)]
pub(crate) struct ServeArgs {
    /// Run (its last checkpoint) or checkpoint; several are told apart by `model`
    #[arg(value_name = "RUN", required = true)]
    pub(crate) runs: Vec<PathBuf>,
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7860", help_heading = "Clients")]
    pub(crate) listen: SocketAddr,
    /// What clients must send as `Authorization: Bearer TOKEN`; without it, TANDEM_TOKEN of the environment
    #[arg(long, value_name = "TOKEN", help_heading = "Clients")]
    pub(crate) token: Option<String>,
    /// Let everybody in who reaches an address that is not this machine's own
    #[arg(long, conflicts_with = "token", help_heading = "Clients")]
    pub(crate) no_auth: bool,
    /// Name that a proxy before this server has, such as voice.example; several are possible
    #[arg(long, value_name = "NAME", help_heading = "Clients")]
    pub(crate) host: Vec<String>,
    /// Characters of a text, at most
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000), help_heading = "Clients")]
    pub(crate) max_characters: u64,
    /// Requests for speech at once; one more is answered with 429
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=100_000), help_heading = "Clients")]
    pub(crate) max_requests: u64,
    /// Connections at once; of more, the one that is idle longest is closed
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=100_000), help_heading = "Clients")]
    pub(crate) max_connections: u64,
    /// Seconds that a client may take to send a request, or to take what is sent to it
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600), help_heading = "Clients")]
    pub(crate) patience: u64,
    /// Load later checkpoints of the runs as they appear
    #[arg(long, help_heading = "Voice")]
    pub(crate) follow: bool,
    /// What makes sound of the mel: a run of `train --part vocoder` (or a checkpoint), or `griffin-lim`; without it, RUN-vocoder if there is one, else Griffin-Lim
    #[arg(long, value_name = "RUN|griffin-lim", help_heading = "Voice")]
    pub(crate) vocoder: Option<String>,
    /// Solver steps from noise to mel: more is finer and slower
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000), help_heading = "Voice")]
    pub(crate) steps: u64,
    /// How lively: 0 is flat, 1 as varied as the corpus
    #[arg(long, value_name = "T", default_value_t = 0.0, value_parser = parse_temperature, help_heading = "Voice")]
    pub(crate) temperature: f64,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Sentences that are synthesized at once, at most; what they sound like does not depend on it
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1024), help_heading = "Device")]
    pub(crate) batch_size: u64,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Reads the folders of runs and nothing else: runs that are going, finished, killed or copied from elsewhere.

Exit code: 0 ended by Ctrl-C, 2 wrong arguments or address.

Examples:
  tandem watch
  tandem watch runs
  tandem watch runs/my-voice runs/other-voice --listen 127.0.0.1:7000"
)]
pub(crate) struct WatchArgs {
    /// Folders of runs, or folders with runs in them
    #[arg(value_name = "DIR|RUN", default_value = "runs")]
    pub(crate) dirs: Vec<PathBuf>,
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7861")]
    pub(crate) listen: SocketAddr,
    /// What browsers must know: the page asks for it; without it, TANDEM_TOKEN of the environment
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    /// Let everybody in who reaches an address that is not this machine's own
    #[arg(long, conflicts_with = "token")]
    pub(crate) no_auth: bool,
    /// Name that a proxy before this server has, such as voice.example; several are possible
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Vec<String>,
}
