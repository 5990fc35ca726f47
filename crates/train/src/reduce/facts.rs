//! What ranks compare before they start: a pure function of what each of them says about itself, so that all come to the same
//! conclusion and nobody waits for one that has left.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tandem_audio::MelStats;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::checkpoint::{Checkpoint, DataIdentity};
use crate::settings::TrainConfig;

/// A rank: where it runs, and on what it would train.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankFacts {
    /// The rank.
    pub rank: usize,
    /// Its host.
    pub host: String,
    /// The data lane's device.
    pub data_device: String,
    /// The model lane's device.
    pub model_device: String,
    /// GPUs that it takes for itself, by number on its host.
    pub gpus: Vec<usize>,
    /// What must be the same on all ranks, by name.
    pub same: Value,
}

/// Why ranks do not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RanksError {
    /// More ranks than clips in a batch.
    TooMany {
        /// Ranks.
        world: usize,
        /// Clips of a batch.
        batch_size: usize,
    },
    /// Ranks would not do the same: what differs, one line each.
    Differ(Vec<String>),
    /// Two ranks on one device.
    SameDevice {
        /// The ranks.
        ranks: [usize; 2],
        /// Their host.
        host: String,
        /// The GPU.
        gpu: usize,
    },
}

impl fmt::Display for RanksError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RanksError::TooMany { world, batch_size } => {
                write!(f, "{world} ranks for a batch of {batch_size} clips: every rank needs one at least")
            }
            RanksError::Differ(lines) => {
                f.write_str("ranks would not train the same")?;
                lines.iter().try_for_each(|line| write!(f, "\n  {line}"))
            }
            RanksError::SameDevice { ranks: [a, b], host, gpu } => {
                write!(f, "ranks {a} and {b} on {host} would both take GPU {gpu}")
            }
        }
    }
}

impl std::error::Error for RanksError {}

/// What has to be the same on all ranks: everything but what a host may have its own of (workers, queues, memory, paths).
pub(crate) fn same(config: &TrainConfig, data: &DataIdentity, start: Option<&Checkpoint>, stats: &MelStats) -> Value {
    let mut settings = json!(config);
    if let Some(groups) = settings.as_object_mut() {
        groups.remove("pipeline");
        groups.remove("memory");
    }
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "settings": settings,
        "training clips": data.clips,
        "validation clips": data.validation_clips,
        "speakers": data.speakers,
        "lengths and texts (hash)": data.hash,
        "features (hash)": format!("{:016x}", xxh3_64(json!(stats).to_string().as_bytes())),
        "resumes after step": start.map(|start| start.state.step),
        "checkpoint (hash)": start.map(|start| format!("{:016x}", checkpoint_hash(start))),
    })
}

/// What a rank would resume with: folders that are not the same one may both have a checkpoint of that step.
fn checkpoint_hash(checkpoint: &Checkpoint) -> u64 {
    let mut hash = Xxh3::new();
    for tensors in [&checkpoint.weights, &checkpoint.ema, &checkpoint.optimizer] {
        for (name, tensor) in tensors {
            hash.update(name.as_bytes());
            for values in tensor.values.chunks(1 << 14) {
                let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                hash.update(&bytes);
            }
        }
    }
    hash.digest()
}

/// Whether these ranks can train together.
pub(crate) fn check(ranks: &[RankFacts], world: usize, batch_size: usize) -> Result<(), RanksError> {
    if world > batch_size {
        return Err(RanksError::TooMany { world, batch_size });
    }
    if ranks.len() < world {
        // Its message is of another form.
        return Err(RanksError::Differ(vec!["not all ranks run the same version of the program".to_owned()]));
    }
    let mut lines = Vec::new();
    for other in &ranks[1..] {
        let who = format!("rank {} ({})", other.rank, other.host);
        differences("", &ranks[0].same, &other.same, &who, &mut lines);
    }
    if !lines.is_empty() {
        return Err(RanksError::Differ(lines));
    }
    for (at, one) in ranks.iter().enumerate() {
        for other in ranks[..at].iter().filter(|other| other.host == one.host) {
            if let Some(&gpu) = one.gpus.iter().find(|gpu| other.gpus.contains(gpu)) {
                return Err(RanksError::SameDevice { ranks: [other.rank, one.rank], host: one.host.clone(), gpu });
            }
        }
    }
    Ok(())
}

/// A line for each value that is not that of rank 0.
fn differences(name: &str, first: &Value, other: &Value, who: &str, lines: &mut Vec<String>) {
    match (first, other) {
        (Value::Object(a), Value::Object(b)) => {
            let missing = b.keys().filter(|key| !a.contains_key(*key));
            for key in a.keys().chain(missing) {
                let name = if name.is_empty() || name == "settings" { key.clone() } else { format!("{name}.{key}") };
                differences(&name, &first[key], &other[key], who, lines);
            }
        }
        _ if first != other => lines.push(format!("{name}: {first} on rank 0, {other} on {who}")),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(rank: usize, gpus: &[usize], same: Value) -> RankFacts {
        let (host, device) = (format!("node{}", rank / 2), "GPU".to_owned());
        RankFacts { rank, host, data_device: device.clone(), model_device: device, gpus: gpus.to_vec(), same }
    }

    #[test]
    fn what_differs_is_named_with_the_rank_that_has_it() {
        let same =
            |batch: u64, clips: u64| json!({"settings": {"data": {"batch_size": batch}}, "training clips": clips});
        let ranks = [rank(0, &[], same(8, 90)), rank(1, &[], same(8, 90)), rank(2, &[], same(4, 91))];
        assert_eq!(check(&ranks[..2], 2, 8), Ok(()));
        let error = check(&ranks, 3, 8).expect_err("they differ").to_string();
        assert!(error.contains("data.batch_size: 8 on rank 0, 4 on rank 2 (node1)"), "{error}");
        assert!(error.contains("training clips: 90 on rank 0, 91 on rank 2 (node1)"), "{error}");
        assert!(!error.contains("rank 1"), "{error}");
    }

    #[test]
    fn a_device_belongs_to_one_rank_of_its_host() {
        let ranks = |gpus: [&[usize]; 4]| -> Vec<RankFacts> {
            gpus.iter().enumerate().map(|(at, gpus)| rank(at, gpus, Value::Null)).collect()
        };
        assert_eq!(check(&ranks([&[0, 1], &[2, 3], &[0, 1], &[2, 3]]), 4, 4), Ok(()), "other hosts have other devices");
        assert_eq!(check(&ranks([&[], &[], &[], &[]]), 4, 4), Ok(()), "the CPU is shared");
        let error = check(&ranks([&[0], &[1], &[0, 1], &[1]]), 4, 4);
        assert_eq!(error, Err(RanksError::SameDevice { ranks: [2, 3], host: "node1".to_owned(), gpu: 1 }));
        assert_eq!(check(&ranks([&[], &[], &[], &[]]), 4, 3), Err(RanksError::TooMany { world: 4, batch_size: 3 }));
    }
}
