//! Files that are there whole or not at all.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Writes a small file so that it is there whole or not at all.
///
/// # Errors
///
/// Of the system; what was there before is then still there.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    // The file itself: errors of a `NamedTempFile` name the temporary file, which no user knows.
    file.as_file_mut().write_all(bytes)?;
    make_readable(file.path(), 0o644)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    sync_dir(dir)
}

/// Temporary files are private; what is left for the user has the usual permissions.
///
/// # Errors
///
/// Of the system.
pub fn make_readable(path: &Path, mode: u32) -> io::Result<()> {
    #[cfg(unix)]
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))?;
    #[cfg(not(unix))]
    let _ = (path, mode);
    Ok(())
}

/// Flushes a directory, so that a file that was renamed into it survives a power cut.
///
/// # Errors
///
/// Of the system.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    // Only Unix lets a directory be opened; elsewhere the rename is all there is.
    #[cfg(unix)]
    fs::File::open(dir)?.sync_all()?;
    #[cfg(not(unix))]
    let _ = dir;
    Ok(())
}
