//! Corpora that lie elsewhere: what this crate asks of a bucket, and how it is told that one cannot be read.
//!
//! A bucket is seen as a directory: its lists are copies, its audio files and shards are stand-ins without content (sparse files
//! with the size of the object and a date made of its date and tag). So every layout is detected, listed and kept in the index as
//! if it were local; only the bytes of audio are asked for with [`Remote::read`]. The code that talks to buckets is an
//! [`Extension`], so that this crate builds without its dependencies.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::corpus::CorpusSettings;
use crate::fault::ClipFault;
use crate::files::{WORK_DIR, work_dir};
use crate::sources::{AudioBytes, MetadataError, ParquetFile, read_at};

/// What the addresses of buckets begin with.
const SCHEMES: [&str; 5] = ["s3", "gs", "az", "https", "http"];

/// A part of an object, or all of it: its name below the prefix, and which bytes.
pub type Piece = (String, Option<Range<u64>>);

/// Files that lie elsewhere, named from the address that was opened. May be called from many threads at once.
pub trait Remote: fmt::Debug + Send + Sync {
    /// The address, for messages and manifests; it has no credentials.
    fn url(&self) -> &str;

    /// The bytes of a file, or some of them; retried before it is an error.
    ///
    /// # Errors
    ///
    /// [`RemoteError`] if they cannot be read.
    fn read(&self, piece: &Piece) -> Result<Vec<u8>, RemoteError>;

    /// The same for several at once, so that they wait together.
    fn read_all(&self, pieces: &[Piece]) -> Vec<Result<Vec<u8>, RemoteError>>;
}

/// What reads corpora that this crate has no code for.
pub trait Extension: fmt::Debug + Send + Sync {
    /// Opens the address of a bucket ([`Files::remote`]).
    ///
    /// # Errors
    ///
    /// [`MetadataError`] if it cannot be listed, or if the code for it is not built in.
    fn open_url(&self, url: &str) -> Result<Files, MetadataError>;

    /// Opens a parquet file.
    ///
    /// # Errors
    ///
    /// [`MetadataError`] if it cannot be read, or if the code for it is not built in.
    fn open_parquet(&self, files: &Files, path: &Path) -> Result<Arc<dyn ParquetFile>, MetadataError>;
}

/// The [`Extension`] that a program has, if any. Settings with different ones are equal: it changes what can be read, not how.
#[derive(Clone, Debug, Default)]
pub struct Extensions(pub Option<Arc<dyn Extension>>);

impl PartialEq for Extensions {
    fn eq(&self, _: &Extensions) -> bool {
        true
    }
}

/// Where the files of a corpus are: in a directory, or in a bucket that the directory stands for.
#[derive(Clone, Debug)]
pub struct Files {
    dir: PathBuf,
    remote: Option<Arc<dyn Remote>>,
    /// Where what is kept of a bucket belongs.
    kept: PathBuf,
}

impl Files {
    /// Those of a directory.
    pub fn local(dir: &Path) -> Files {
        Files { dir: dir.to_owned(), remote: None, kept: PathBuf::new() }
    }

    /// Those of a bucket, with the directory that stands for it and the one where its index and its cache are kept.
    pub fn remote(dir: PathBuf, kept: PathBuf, remote: Arc<dyn Remote>) -> Files {
        Files { dir, remote: Some(remote), kept }
    }

    /// The files at a path or an address.
    ///
    /// # Errors
    ///
    /// [`MetadataError`] if it is an address that cannot be read.
    pub fn open(at: &Path, settings: &CorpusSettings) -> Result<Files, MetadataError> {
        let Some(url) = url(at)? else { return Ok(Files::local(at)) };
        let not_built = || MetadataError::NotBuilt(url.clone(), "cloud");
        settings.extensions.0.as_ref().ok_or_else(not_built)?.open_url(&url)
    }

    /// Whether something was kept of them before.
    pub(crate) fn is_known(&self) -> bool {
        match self.remote {
            Some(_) => self.kept.exists(),
            None => self.dir.join(WORK_DIR).exists(),
        }
    }

    /// Where index and cache of the corpus belong.
    pub fn work_dir(&self) -> PathBuf {
        match self.remote {
            Some(_) => self.kept.clone(),
            None => work_dir(&self.dir),
        }
    }

    /// The directory of the files, or of what stands for them.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What the user calls it: the directory, or the address.
    pub fn name(&self) -> &Path {
        self.remote.as_ref().map_or(&self.dir, |remote| Path::new(remote.url()))
    }

    /// A file as the user calls it.
    pub fn shown(&self, path: &Path) -> PathBuf {
        match (&self.remote, path.strip_prefix(&self.dir)) {
            (Some(remote), Ok(inside)) if inside.as_os_str().is_empty() => PathBuf::from(remote.url()),
            (Some(remote), Ok(inside)) => PathBuf::from(format!("{}/{}", remote.url(), inside.display())),
            _ => path.to_owned(),
        }
    }

    /// Whether bytes have to be brought here first.
    pub fn is_remote(&self) -> bool {
        self.remote.is_some()
    }

    /// What to ask a bucket for: a file below the directory, or some bytes of it. None if the files are local.
    pub(crate) fn piece(&self, path: &Path, range: Option<Range<u64>>) -> Result<Option<Piece>, ClipFault> {
        if self.remote.is_none() {
            return Ok(None);
        }
        // A list in a bucket cannot name files of this machine.
        let inside = path.strip_prefix(&self.dir).ok().and_then(Path::to_str).ok_or(ClipFault::Outside)?;
        Ok(Some((inside.to_owned(), range)))
    }

    /// Bytes of a file in a bucket. None if the files are local.
    pub(crate) fn read(&self, path: &Path, range: Option<Range<u64>>) -> Result<Option<Vec<u8>>, ClipFault> {
        let (Some(remote), Some(piece)) = (&self.remote, self.piece(path, range)?) else { return Ok(None) };
        Ok(Some(remote.read(&piece)?))
    }

    /// Bytes of a file, wherever it is.
    ///
    /// # Errors
    ///
    /// As [`Files::reader`].
    pub fn bytes(&self, path: &Path, range: Range<u64>) -> io::Result<Vec<u8>> {
        let piece = self.piece(path, Some(range.clone())).map_err(|_| io::ErrorKind::NotFound)?;
        if let (Some(remote), Some(piece)) = (&self.remote, piece) {
            return remote.read(&piece).map_err(io::Error::other);
        }
        let length = usize::try_from(range.end - range.start).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut bytes = vec![0; length];
        read_at(&File::open(path)?, &mut bytes, range.start)?;
        Ok(bytes)
    }

    /// A file to be read from its beginning to its end, wherever it is.
    ///
    /// # Errors
    ///
    /// Of the system; one that has a [`RemoteError`] inside if it lies elsewhere.
    pub fn reader(&self, path: &Path) -> io::Result<Box<dyn AudioBytes>> {
        let piece = self.piece(path, None).map_err(|_| io::ErrorKind::NotFound)?;
        match (&self.remote, piece) {
            (Some(remote), Some((name, _))) => {
                let length = path.metadata()?.len();
                Ok(Box::new(Blocks { remote: remote.clone(), name, length, at: 0, start: 0, block: Vec::new() }))
            }
            _ => Ok(Box::new(File::open(path)?)),
        }
    }

    /// Brings several pieces here at once.
    pub(crate) fn read_all(&self, pieces: &[Piece]) -> Vec<Result<Vec<u8>, ClipFault>> {
        let read = self.remote.as_ref().map(|remote| remote.read_all(pieces)).unwrap_or_default();
        read.into_iter().map(|bytes| bytes.map_err(ClipFault::from)).collect()
    }
}

/// Bytes that a reader of an object asks for at once.
const BLOCK: u64 = 1 << 20;

/// An object that is read block by block.
struct Blocks {
    remote: Arc<dyn Remote>,
    name: String,
    length: u64,
    at: u64,
    /// Where the block that is here begins.
    start: u64,
    block: Vec<u8>,
}

impl Read for Blocks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at >= self.length || buffer.is_empty() {
            return Ok(0);
        }
        if !(self.start..self.start + self.block.len() as u64).contains(&self.at) {
            let range = self.at..self.length.min(self.at + BLOCK);
            self.block = self.remote.read(&(self.name.clone(), Some(range))).map_err(io::Error::other)?;
            self.start = self.at;
        }
        let there = &self.block[(self.at - self.start) as usize..];
        let count = there.len().min(buffer.len());
        buffer[..count].copy_from_slice(&there[..count]);
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for Blocks {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.length.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

/// The address that a path is, without a slash at its end; none if it is a path.
///
/// # Errors
///
/// [`MetadataError`] if it has something that must not be written down.
fn url(path: &Path) -> Result<Option<String>, MetadataError> {
    let Some((scheme, rest)) = path.to_str().and_then(|text| text.split_once("://")) else { return Ok(None) };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if !SCHEMES.contains(&scheme) || host.is_empty() || host == "@" {
        return Err(MetadataError::NotAnAddress(format!("{scheme}://{}", host.rsplit('@').next().unwrap_or_default())));
    }
    // Passwords and signatures would end up in manifests and messages.
    if host.contains('@') || rest.contains(['?', '#']) {
        let host = host.rsplit('@').next().unwrap_or_default();
        return Err(MetadataError::SecretInAddress(format!("{scheme}://{host}")));
    }
    Ok(Some(format!("{scheme}://{}", rest.trim_end_matches('/'))))
}

/// The folder of this user where things are kept that can be made again.
pub fn user_cache() -> PathBuf {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    base.unwrap_or_else(std::env::temp_dir).join("tandem")
}

/// Why something that lies elsewhere cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteError {
    /// The address of the object, with its bucket.
    pub url: String,
    /// How often it was tried.
    pub attempts: u32,
    /// What was wrong the last time.
    pub reason: RemoteFault,
}

/// What was wrong. Nothing of it is copied from requests or answers but status, code and what the system says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemoteFault {
    /// Nothing in the environment says who asks.
    NoCredentials,
    /// The status and the code of the answer.
    Refused(u16, String),
    /// There is no such bucket.
    NoBucket,
    /// There is no such object.
    NotFound,
    /// The name of the host is not known.
    NoHost,
    /// The host does not answer; what the system says.
    NoConnection(String),
    /// The connection ended in the middle.
    Broken,
    /// No answer in time.
    TimedOut,
    /// The status of an answer that is not about this request.
    Server(u16),
    /// Another number of bytes than were asked for.
    Length,
    /// The address is not understood.
    Address,
    /// Something else.
    Other,
}

impl RemoteError {
    /// Whether only this object is missing, and not the way to all of them.
    pub fn is_missing(&self) -> bool {
        self.reason == RemoteFault::NotFound
    }
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot read `{}` (attempts: {}): {}", self.url, self.attempts, self.reason)
    }
}

impl std::error::Error for RemoteError {}

impl fmt::Display for RemoteFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RemoteFault::NoCredentials => write!(f, "no credentials were found in the environment"),
            RemoteFault::Refused(status, code) => write!(f, "access is refused ({status} {code})"),
            RemoteFault::NoBucket => write!(f, "there is no such bucket"),
            RemoteFault::NotFound => write!(f, "it is not there"),
            RemoteFault::NoHost => write!(f, "the name of the host is not known"),
            RemoteFault::NoConnection(why) => write!(f, "no connection: {why}"),
            RemoteFault::Broken => write!(f, "the connection broke off"),
            RemoteFault::TimedOut => write!(f, "no answer in time"),
            RemoteFault::Server(status) => write!(f, "the server fails (status {status})"),
            RemoteFault::Length => write!(f, "the server sent another number of bytes"),
            RemoteFault::Address => write!(f, "the address is not understood"),
            RemoteFault::Other => write!(f, "the request failed"),
        }
    }
}

impl From<RemoteError> for ClipFault {
    fn from(error: RemoteError) -> Self {
        match error.is_missing() {
            true => ClipFault::Missing,
            false => ClipFault::Unreachable(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_from_paths_and_never_carry_secrets() {
        let of = |text: &str| url(Path::new(text));
        assert_eq!(of("my-voice").ok(), Some(None));
        assert_eq!(of("/data/x").ok(), Some(None));
        assert_eq!(of("s3://bucket/my/voice//").ok(), Some(Some("s3://bucket/my/voice".to_owned())));
        assert_eq!(of("gs://bucket").ok(), Some(Some("gs://bucket".to_owned())));
        for (text, wanted) in [
            ("https://anna:hunter2@host/x", "https://host"),
            ("https://host/x?sig=hunter2", "https://host"),
            ("az://container/x#hunter2", "az://container"),
            ("ftp://anna:hunter2@host/x", "ftp://host"),
            ("s3:///x", "s3://"),
        ] {
            let error = of(text).expect_err(text).to_string();
            assert!(error.contains(&format!("`{wanted}")) && !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn without_the_extension_an_address_is_an_error_that_says_how_to_build_it() {
        let error = Files::open(Path::new("s3://bucket/x"), &CorpusSettings::default()).expect_err("not built");
        assert!(error.to_string().contains("--features cloud"), "{error}");
    }
}
