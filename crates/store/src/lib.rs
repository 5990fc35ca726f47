//! Corpora in buckets and in parquet files, as [`Extension`]s of [`tandem_data`]. A crate of its own, so that turning a feature on
//! builds this and the program again, and nothing of the trainer.
//!
//! | file | what it is responsible for |
//! |---|---|
//! | `lib.rs` | [`Stores`]: what a program hands to [`tandem_data::CorpusSettings`] |
//! | `bucket.rs` | objects read by range, many at once, with retries; the only place with an async runtime |
//! | `fault.rs` | what is wrong with a request, without a word that could be a secret |
//! | `sketch.rs` | the directory that stands for a bucket: copies of lists, stand-ins for audio |
//! | `object_cache.rs` | what was read, on the local disk, up to a number of bytes |
//! | `parquet.rs` | Hugging Face's parquet files, read at random |
//!
//! ```
//! use tandem_data::{CorpusSettings, open_source, Part};
//!
//! let settings = CorpusSettings { extensions: tandem_store::extensions(), ..CorpusSettings::default() };
//! let error = open_source("ftp://host/voice".as_ref(), Part::All, &settings).expect_err("not a bucket");
//! assert!(error.to_string().contains("s3://BUCKET/PREFIX"));
//! ```

#![forbid(unsafe_code)]

#[cfg(feature = "cloud")]
mod bucket;
#[cfg(feature = "cloud")]
mod fault;
#[cfg(feature = "cloud")]
mod object_cache;
#[cfg(feature = "parquet")]
mod parquet;
#[cfg(feature = "cloud")]
mod sketch;

use std::path::Path;
use std::sync::Arc;

use tandem_data::{Extension, Extensions, Files, MetadataError, ParquetFile};

/// Opens what the features of this crate are for; anything else is an error that names the feature.
#[derive(Debug, Default)]
pub struct Stores {
    #[cfg(feature = "cloud")]
    opened: bucket::Opened,
}

/// What [`tandem_data::CorpusSettings`] takes.
pub fn extensions() -> Extensions {
    Extensions(Some(Arc::new(Stores::default())))
}

impl Extension for Stores {
    #[cfg(feature = "cloud")]
    fn open_url(&self, url: &str) -> Result<Files, MetadataError> {
        self.opened.open(url)
    }

    #[cfg(not(feature = "cloud"))]
    fn open_url(&self, url: &str) -> Result<Files, MetadataError> {
        Err(MetadataError::NotBuilt(url.to_owned(), "cloud"))
    }

    #[cfg(feature = "parquet")]
    fn open_parquet(&self, files: &Files, path: &Path) -> Result<Arc<dyn ParquetFile>, MetadataError> {
        parquet::open(files, path)
    }

    #[cfg(not(feature = "parquet"))]
    fn open_parquet(&self, files: &Files, _: &Path) -> Result<Arc<dyn ParquetFile>, MetadataError> {
        Err(MetadataError::NotBuilt(files.name().display().to_string(), "parquet"))
    }
}
