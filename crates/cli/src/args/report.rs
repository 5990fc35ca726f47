//! Arguments of `tandem report`.

use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = "Reads the folder of a run; the run may still be running.

Exit code: 0 done, 2 wrong arguments, or not a run that this version can read.

Examples:
  tandem report runs/my-voice
  tandem report runs/my-voice --html report.html
  tandem report runs/before runs/after")]
pub(crate) struct ReportArgs {
    /// Folder of a run
    #[arg(value_name = "RUN")]
    pub(crate) run: PathBuf,
    /// Another one, to compare with
    #[arg(value_name = "OTHER")]
    pub(crate) other: Option<PathBuf>,
    /// Write the report with plots as one HTML file
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Print one JSON object instead of the report
    #[arg(long)]
    pub(crate) json: bool,
}
