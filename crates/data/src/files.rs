//! Files that are there whole or not at all, what tells a file from another version of it, and where a corpus keeps its own.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use xxhash_rust::xxh3::Xxh3;

use crate::remote::user_cache;

/// What the names of temporary files begin with.
const TEMPORARY: &str = ".tmp";
/// After so long a temporary file in a folder that others may write to as well belongs to nobody.
pub const FORGOTTEN: Duration = Duration::from_secs(3600);

/// Writes a small file so that it is there whole or not at all.
///
/// # Errors
///
/// Of the system; what was there before is then still there.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(TEMPORARY).tempfile_in(dir)?;
    // The file itself: errors of a `NamedTempFile` name the temporary file, which no user knows.
    file.as_file_mut().write_all(bytes)?;
    make_readable(file.path(), 0o644)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    sync_dir(dir)
}

/// Takes away temporary files that a kill left in a folder, if they are at least so old: a younger one may be in use.
pub fn remove_leftovers(dir: &Path, age: Duration) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let temporary = entry.file_name().as_encoded_bytes().starts_with(TEMPORARY.as_bytes());
        let old = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        if temporary && (age.is_zero() || old().is_some_and(|old| old >= age)) {
            let _ = fs::remove_file(entry.path());
        }
    }
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

/// A file's size and date as one number, and whether it is there at all.
pub(crate) fn file_identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::metadata(path)?;
    let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Ok((metadata.len(), modified.map_or(0, |time| time.as_nanos() as u64)))
}

/// A stable hash of several parts.
pub(crate) fn hash_parts(parts: &[&[u8]]) -> u64 {
    let mut hasher = Xxh3::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.digest()
}

/// The folder of index and cache beside the data.
pub(crate) const WORK_DIR: &str = ".tandem";

/// Where a corpus keeps its index and cache: beside the data if that can be written, else in the user's cache.
pub(crate) fn work_dir(corpus: &Path) -> PathBuf {
    let beside = corpus.join(WORK_DIR);
    let writable = fs::create_dir_all(&beside).is_ok() && tempfile::tempfile_in(&beside).is_ok();
    if writable {
        return beside;
    }
    let absolute = fs::canonicalize(corpus).unwrap_or_else(|_| corpus.to_owned());
    user_cache().join(format!("{:016x}", hash_parts(&[absolute.as_os_str().as_encoded_bytes()])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_temporary_files_that_are_old_enough_are_taken_away() {
        let dir = tempfile::tempdir().expect("a folder");
        for name in [".tmpYoung", ".tmpOld", "kept"] {
            let file = fs::File::create(dir.path().join(name)).expect("made");
            let age = if name == ".tmpYoung" { Duration::ZERO } else { 2 * FORGOTTEN };
            file.set_modified(std::time::SystemTime::now() - age).expect("set");
        }
        let there = |name: &str| dir.path().join(name).exists();
        remove_leftovers(dir.path(), FORGOTTEN);
        assert!(there(".tmpYoung") && !there(".tmpOld") && there("kept"));
        remove_leftovers(dir.path(), Duration::ZERO);
        assert!(!there(".tmpYoung") && there("kept"));
        write_atomically(&dir.path().join("kept"), b"new").expect("written");
        assert_eq!(fs::read_dir(dir.path()).expect("there").count(), 1, "and writing leaves none");
    }
}
