//! [`IndexEntry`]: what is kept of a clip in memory, and [`RowPlace`]: what is read from the file when the clip is.

pub(super) const ENTRY_BYTES: usize = 20;
pub(super) const PLACE_BYTES: usize = 24;
/// In the last byte of an entry, beside the channels.
const OTHER_LETTERS: u8 = 1 << 7;

/// What is known of a clip. A clip with zero samples has a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexEntry {
    /// Samples per channel that are used, at the file's own sample rate.
    pub samples: u32,
    /// Samples before them that are not: silence that is trimmed.
    pub start: u32,
    /// The file's sample rate.
    pub rate: u32,
    /// Tokens of its text.
    pub tokens: u32,
    /// Who speaks.
    pub speaker: u16,
    /// The language of its text, a number in the index's list.
    pub language: u8,
    /// Channels, and [`OTHER_LETTERS`].
    pub(crate) flags: u8,
}

impl IndexEntry {
    /// Seconds of audio that are used.
    pub fn seconds(&self) -> f64 {
        f64::from(self.samples) / f64::from(self.rate.max(1))
    }

    /// Whether it can be used.
    pub fn is_good(&self) -> bool {
        self.samples > 0
    }

    /// Channels of the file; more than anybody has are 127.
    pub fn channels(&self) -> u16 {
        u16::from(self.flags & !OTHER_LETTERS)
    }

    /// Whether its text has letters that the language does not have.
    pub fn has_other_letters(&self) -> bool {
        self.flags & OTHER_LETTERS != 0
    }

    /// The same with channels and letters of its own.
    pub(crate) fn with(self, channels: u16, other_letters: bool) -> IndexEntry {
        let channels = channels.min(u16::from(OTHER_LETTERS - 1)) as u8;
        IndexEntry { flags: channels | if other_letters { OTHER_LETTERS } else { 0 }, ..self }
    }

    pub(super) fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[0..4].copy_from_slice(&self.samples.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.start.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.rate.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.tokens.to_le_bytes());
        bytes[16..18].copy_from_slice(&self.speaker.to_le_bytes());
        bytes[18] = self.language;
        bytes[19] = self.flags;
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> IndexEntry {
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        IndexEntry {
            samples: u32_at(0),
            start: u32_at(4),
            rate: u32_at(8),
            tokens: u32_at(12),
            speaker: u16::from_le_bytes([bytes[16], bytes[17]]),
            language: bytes[18],
            flags: bytes[19],
        }
    }
}

/// What of a row is needed only when its clip is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowPlace {
    /// A hash of its id.
    pub(crate) id_hash: u64,
    /// A hash of its text and of its file's path, size and date.
    pub(super) identity: u64,
    /// Where its tokens begin among all tokens.
    pub(super) tokens_at: u64,
}

impl RowPlace {
    pub(super) fn to_bytes(self) -> [u8; PLACE_BYTES] {
        let mut bytes = [0; PLACE_BYTES];
        for (bytes, number) in bytes.chunks_exact_mut(8).zip([self.id_hash, self.identity, self.tokens_at]) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> RowPlace {
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        RowPlace { id_hash: u64_at(0), identity: u64_at(8), tokens_at: u64_at(16) }
    }
}
