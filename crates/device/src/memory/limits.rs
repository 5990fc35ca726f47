//! What each lane may take of its device, and the error when it asks for more.

use std::fmt;

use serde::{Deserialize, Serialize};
use tandem_flow::Lane;

/// One MB as GPUs and the flags count it: 8192 MB are 8 GB.
pub const MB: u64 = 1 << 20;

/// Limits when the memory of the device is not known.
const UNKNOWN_DATA_MB: u64 = 8192;
const UNKNOWN_MODEL_MB: u64 = 16384;
/// Shares of a device that is larger than the table, in percent.
const DATA_PERCENT: u64 = 33;
const MODEL_PERCENT: u64 = 67;
/// What driver, context and display keep: this much, or this share of the device if that is more.
const RESERVE_BYTES: u64 = 512 * MB;
const RESERVE_PERCENT: u64 = 5;

/// A class of devices and its limits.
struct Row {
    class: &'static str,
    /// Only devices with this in their name.
    named: Option<&'static str>,
    /// Devices from this much memory on ...
    from_mb: u64,
    /// ... and below this much.
    below_mb: u64,
    data_mb: u64,
    model_mb: u64,
}

/// The first row that matches counts. The borders lie between the sizes that are sold, because a device reports a
/// little less than its nominal size (a 12 GB RTX 4070 has 12282 MB, a 24 GB A10 has 23028 MB).
#[rustfmt::skip]
const TABLE: [Row; 5] = [
    Row { class: "RTX 3090", named: Some("3090"), from_mb: 21504, below_mb: 26624, data_mb: 8192, model_mb: 14336 },
    Row { class: "24 GB", named: None, from_mb: 21504, below_mb: 26624, data_mb: 8192, model_mb: 16384 },
    Row { class: "10 GB", named: None, from_mb: 9728, below_mb: 10752, data_mb: 4096, model_mb: 8192 },
    Row { class: "small", named: None, from_mb: 0, below_mb: 11776, data_mb: 4096, model_mb: 8192 },
    Row { class: "medium", named: None, from_mb: 11776, below_mb: 21504, data_mb: 6144, model_mb: 12288 },
];

/// A lane asked for more than it may take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryLimitExceeded {
    /// Which lane.
    pub lane: Lane,
    /// What it may take.
    pub limit_bytes: u64,
    /// What it had taken.
    pub used_bytes: u64,
    /// What it asked for on top.
    #[serde(rename = "asked_bytes")]
    pub requested_bytes: u64,
    /// What for, as in "the optimizer".
    pub what: String,
}

impl fmt::Display for MemoryLimitExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "memory limit of the {} exceeded: limit {}, used {}, asked {} for {}",
            self.lane,
            size(self.limit_bytes),
            size(self.used_bytes),
            size(self.requested_bytes),
            self.what
        )
    }
}

impl std::error::Error for MemoryLimitExceeded {}

/// A size for people: whole MB, one decimal below 10 MB, KB below one MB.
fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 10 * MB || (bytes >= MB && bytes.is_multiple_of(MB)) => {
            format!("{} MB", (bytes as f64 / MB as f64).round())
        }
        _ if bytes >= MB => format!("{:.1} MB", bytes as f64 / MB as f64),
        _ => format!("{} KB", bytes.div_ceil(1024)),
    }
}

/// A device as far as its limit depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory<'a> {
    /// As the driver names it.
    pub name: &'a str,
    /// All of its memory, if known.
    pub total_bytes: Option<u64>,
}

/// The limits of both lanes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// What the data lane may take.
    pub data_bytes: u64,
    /// What the model lane may take.
    pub model_bytes: u64,
    /// Where the figures come from.
    pub why: String,
}

/// The best limits for two devices, each from its own memory: by the table up to 26 GB, beyond that 33 % (data) or
/// 67 % (model) of the memory without a reserve (5 %, at least 512 MB). No limit is above the memory without the
/// reserve. When both lanes share a device, the sum of both limits can be above that: only the caller knows.
pub fn optimal_limits(data: DeviceMemory<'_>, model: DeviceMemory<'_>) -> Limits {
    let (data_bytes, data_why) = limit(Lane::Data, data);
    let (model_bytes, model_why) = limit(Lane::Model, model);
    Limits { data_bytes, model_bytes, why: format!("{data_why}; {model_why}") }
}

/// The limit of one lane, and why.
fn limit(lane: Lane, device: DeviceMemory<'_>) -> (u64, String) {
    let pick = |data, model| if lane == Lane::Data { data } else { model };
    let Some(total) = device.total_bytes else {
        let mb = pick(UNKNOWN_DATA_MB, UNKNOWN_MODEL_MB);
        return (mb * MB, format!("{lane} {mb} MB: memory of the device unknown, default"));
    };
    let free_mb = without_reserve(total) / MB;
    let row = TABLE.iter().find(|row| {
        (row.from_mb * MB..row.below_mb * MB).contains(&total)
            && row.named.is_none_or(|part| device.name.contains(part))
    });
    let (mb, from) = match row {
        Some(row) => (pick(row.data_mb, row.model_mb), format!("class {}", row.class)),
        None => {
            let percent = pick(DATA_PERCENT, MODEL_PERCENT);
            (free_mb * percent / 100, format!("{percent} % of {free_mb} MB without the reserve"))
        }
    };
    let total_mb = total / MB;
    if mb > free_mb {
        return (free_mb * MB, format!("{lane} {free_mb} MB: all of {total_mb} MB but the reserve"));
    }
    (mb * MB, format!("{lane} {mb} MB: device of {total_mb} MB, {from}"))
}

/// The memory of a device without the reserve.
fn without_reserve(total: u64) -> u64 {
    total.saturating_sub(RESERVE_BYTES.max(total / 100 * RESERVE_PERCENT))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn device(name: &str, mb: u64) -> DeviceMemory<'_> {
        DeviceMemory { name, total_bytes: Some(mb * MB) }
    }

    /// Both limits in MB on two devices of this name and memory.
    fn pair(name: &str, mb: u64) -> (u64, u64) {
        let limits = optimal_limits(device(name, mb), device(name, mb));
        (limits.data_bytes / MB, limits.model_bytes / MB)
    }

    #[test]
    fn every_row_of_the_table() {
        assert_eq!(pair("NVIDIA GeForce RTX 4090", 24564), (8192, 16384));
        assert_eq!(pair("NVIDIA A10", 23028), (8192, 16384));
        assert_eq!(pair("NVIDIA GeForce RTX 3090", 24576), (8192, 14336));
        assert_eq!(pair("NVIDIA GeForce RTX 3080", 10240), (4096, 8192));
        assert_eq!(pair("NVIDIA GeForce RTX 2080 Ti", 11264), (4096, 8192));
        assert_eq!(pair("NVIDIA GeForce RTX 4070", 12282), (6144, 11667), "5 % of 12282 MB are kept");
        assert_eq!(pair("Tesla T4", 15360), (6144, 12288));
        assert_eq!(pair("NVIDIA RTX 4000 Ada", 20475), (6144, 12288));
    }

    #[test]
    fn both_sides_of_every_border() {
        for mb in [9727, 9728, 10751, 10752, 11775] {
            assert_eq!(pair("gpu", mb), (4096, 8192), "{mb}");
        }
        let why = |mb| optimal_limits(device("gpu", mb), device("gpu", mb)).why;
        assert!(why(9727).contains("small") && why(9728).contains("10 GB"));
        assert!(why(10751).contains("10 GB") && why(10752).contains("small"));
        assert_eq!(pair("gpu", 11776), (6144, 11776 - 588 - 1), "5 % are 588.8 MB");
        assert_eq!(pair("gpu", 21503), (6144, 12288));
        assert_eq!(pair("gpu", 21504), (8192, 16384));
        assert_eq!(pair("RTX 3090", 21503), (6144, 12288), "a name alone is not a size");
        assert_eq!(pair("RTX 3090", 21504), (8192, 14336));
        assert_eq!(pair("gpu", 26623), (8192, 16384));
        assert_eq!(pair("gpu", 26624), (8346, 16945), "33 % and 67 % of 25292 MB");
        assert_eq!(pair("RTX 3090", 26624), (8346, 16945));
    }

    #[test]
    fn each_lane_from_its_own_device() {
        let limits = optimal_limits(device("small", 10240), device("large", 81920));
        assert_eq!((limits.data_bytes / MB, limits.model_bytes / MB), (4096, 77824 * 67 / 100));
        assert_eq!(
            limits.why,
            "data lane 4096 MB: device of 10240 MB, class 10 GB; \
             model lane 52142 MB: device of 81920 MB, 67 % of 77824 MB without the reserve"
        );
        let small = optimal_limits(device("d", 2048), device("m", 6144));
        assert_eq!((small.data_bytes / MB, small.model_bytes / MB), (1536, 5632), "never above memory - reserve");
        assert!(small.why.contains("all of 2048 MB but the reserve"), "{}", small.why);
        assert_eq!(pair("tiny", 256), (0, 0));
    }

    #[test]
    fn unknown_memory_gives_the_defaults_and_says_so() {
        let unknown = DeviceMemory { name: "gpu", total_bytes: None };
        let limits = optimal_limits(unknown, unknown);
        assert_eq!((limits.data_bytes, limits.model_bytes), (8192 * MB, 16384 * MB));
        assert_eq!(limits.why.matches("unknown, default").count(), 2, "{}", limits.why);
        let half = optimal_limits(unknown, device("gpu", 10240));
        assert_eq!((half.data_bytes, half.model_bytes), (8192 * MB, 8192 * MB));
    }

    #[test]
    fn the_error_reads_well() {
        let mut error = MemoryLimitExceeded {
            lane: Lane::Model,
            limit_bytes: 512 * MB,
            used_bytes: 480 * MB,
            requested_bytes: 64 * MB,
            what: "the optimizer".to_owned(),
        };
        assert_eq!(
            error.to_string(),
            "memory limit of the model lane exceeded: limit 512 MB, used 480 MB, asked 64 MB for the optimizer"
        );
        error = MemoryLimitExceeded { lane: Lane::Data, limit_bytes: 2 * MB, used_bytes: MB * 3 / 2, ..error };
        error.requested_bytes = 600 * 1024;
        let text = error.to_string();
        assert!(text.contains("data lane exceeded: limit 2 MB, used 1.5 MB, asked 600 KB for"), "{text}");
        assert_eq!((size(0), size(1), size(8192 * MB)), ("0 KB".into(), "1 KB".into(), "8192 MB".into()));
    }

    proptest! {
        #[test]
        fn never_above_memory_without_reserve(data in 0..200u64 << 30, model in any::<u64>(), known: bool) {
            let name = if known { "RTX 3090" } else { "gpu" };
            let limits = optimal_limits(
                DeviceMemory { name, total_bytes: Some(data) },
                DeviceMemory { name, total_bytes: Some(model) },
            );
            prop_assert!(limits.data_bytes <= without_reserve(data));
            prop_assert!(limits.model_bytes <= without_reserve(model));
        }

        #[test]
        fn more_memory_never_means_less_beyond_the_table(a in 26 << 30..200u64 << 30, b in 26 << 30..200u64 << 30) {
            let of = |bytes| {
                let device = DeviceMemory { name: "gpu", total_bytes: Some(bytes) };
                optimal_limits(device, device)
            };
            let (less, more) = (of(a.min(b)), of(a.max(b)));
            prop_assert!(less.data_bytes <= more.data_bytes && less.model_bytes <= more.model_bytes);
        }
    }
}
