//! Files that are written whole or not at all.

use std::io;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::failure::{FAILED, Failure};
use crate::messages::Messages;

/// Writes to standard output. A reader that has seen enough (`| head`) ends the program without a word; anything
/// else that goes wrong there, such as a full disk, is an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match io::Write::write_all(&mut out, text.as_bytes()).and_then(|()| io::Write::flush(&mut out)) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(Failure::new(FAILED, format!("cannot write to standard output: {error}"))),
    }
}

/// A file that appears under its name only when [`Output::finish`] is called; made early, so that a path that
/// cannot be written is found before the work and not after it.
pub(crate) struct Output {
    path: PathBuf,
    file: NamedTempFile,
}

impl Output {
    pub(crate) fn create(path: &Path) -> io::Result<Output> {
        if path.is_dir() {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory"));
        }
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !dir.is_dir() {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("`{}` is not a folder", dir.display())));
        }
        Ok(Output { path: path.to_owned(), file: tempfile::Builder::new().prefix(".tandem-").tempfile_in(dir)? })
    }

    /// The same, with an error for the user.
    pub(crate) fn create_for(path: &Path, messages: &Messages) -> Result<Output, Failure> {
        Output::create(path).map_err(|error| {
            Failure::usage(messages.with("cannot-write", &[("path", &path.display()), ("reason", &error)]))
        })
    }

    pub(crate) fn writer(&mut self) -> impl io::Write + '_ {
        io::BufWriter::new(&mut self.file)
    }

    pub(crate) fn finish(self) -> io::Result<PathBuf> {
        // A temporary file is private; what the user asked for has the usual permissions.
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            self.file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
        }
        self.file.persist(&self.path).map_err(|error| error.error)?;
        Ok(self.path)
    }
}
