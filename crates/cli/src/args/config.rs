//! Arguments of `tandem config`, `tandem completions` and `tandem man`.

use std::path::PathBuf;

use clap::Subcommand;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Every flag of `tandem train` is a key: --batch-size is learning.batch_size. What is typed wins over the file.

Exit code: 0 done, 2 wrong arguments, or a file that is not right.

Examples:
  tandem config init config.yaml
  tandem config check config.yaml
  tandem config explain batch_size
  tandem config schema > tandem.schema.json
  tandem train --config config.yaml --max-steps 2000
  tandem train --config config.yaml --print-config"
)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) action: ConfigAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigAction {
    /// Read a file as `tandem train` would, and say what is wrong with it
    Check {
        /// The file
        file: PathBuf,
    },
    /// Write a file with every key, its default and what it is for
    Init {
        /// The file; without it, to standard output
        file: Option<PathBuf>,
        /// Overwrite a file that is there
        #[arg(long)]
        force: bool,
    },
    /// Say what a key is for, also one of the earlier system
    Explain {
        /// The key, with or without its section
        key: String,
    },
    /// Print a JSON schema, with which editors complete and check the file
    Schema,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tandem completions bash > ~/.local/share/bash-completion/completions/tandem
  tandem completions fish > ~/.config/fish/completions/tandem.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tandem man ~/.local/share/man/man1
  tandem man --markdown docs/reference             the same as pages, with every key of config.yaml")]
pub(crate) struct ManArgs {
    /// Write Markdown: the commands, the settings, and a JSON schema of the settings
    #[arg(long)]
    pub(crate) markdown: bool,
    /// Folder that the pages are written to
    #[arg(value_name = "FOLDER")]
    pub(crate) dir: PathBuf,
}
