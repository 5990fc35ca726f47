//! Files that are written whole or not at all.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use tempfile::TempPath;

use crate::failure::{FAILED, Failure};
use crate::messages::Messages;

/// Writes to standard output. A reader that has seen enough (`| head`) ends the program without a word; anything
/// else that goes wrong there, such as a full disk, is an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(Failure::new(FAILED, format!("cannot write to standard output: {error}"))),
    }
}

/// A file that appears under its name only when [`Output::finish`] is called; made early, so that a path that
/// cannot be written is found before the work and not after it.
pub(crate) struct Output {
    path: PathBuf,
    /// The file itself, not a `NamedTempFile`: errors of that one name the temporary file, which no user knows.
    file: io::BufWriter<File>,
    temporary: TempPath,
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
        let (file, temporary) = tempfile::Builder::new().prefix(".tandem-").tempfile_in(dir)?.into_parts();
        Ok(Output { path: path.to_owned(), file: io::BufWriter::new(file), temporary })
    }

    /// The same, with an error for the user.
    pub(crate) fn create_for(path: &Path, messages: &Messages) -> Result<Output, Failure> {
        Output::create(path).map_err(|error| {
            Failure::usage(messages.with("cannot-write", &[("path", &path.display()), ("reason", &error)]))
        })
    }

    pub(crate) fn writer(&mut self) -> &mut impl Write {
        &mut self.file
    }

    pub(crate) fn finish(mut self) -> io::Result<PathBuf> {
        // Here and not when it is dropped, where nobody would hear that the disk is full.
        self.file.flush()?;
        // A temporary file is private; what the user asked for has the usual permissions.
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            self.file.get_ref().set_permissions(std::fs::Permissions::from_mode(0o644))?;
        }
        self.temporary.persist(&self.path).map_err(|error| error.error)?;
        Ok(self.path)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for Output {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}
