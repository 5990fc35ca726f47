//! The memory statistics of a lane and the line that shows them.

use serde::{Deserialize, Serialize};

use tandem_flow::Lane;

use super::limits::MB;

/// What a lane takes of its device. What could not be measured is `None`, never zero.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaneMemory {
    /// Which lane.
    pub lane: Lane,
    /// Its device.
    pub device: String,
    /// What it may take.
    pub limit_bytes: Option<u64>,
    /// Batches that are on the device.
    pub batches_bytes: u64,
    /// Parameters of the model.
    pub parameters_bytes: u64,
    /// Optimizer state.
    pub optimizer_bytes: u64,
    /// Gradients.
    pub gradients_bytes: u64,
    /// What the memory pool has handed out.
    pub pool_in_use_bytes: Option<u64>,
    /// What the memory pool holds of the device.
    pub pool_reserved_bytes: Option<u64>,
    /// What all processes use of the device.
    pub device_used_bytes: Option<u64>,
    /// All memory of the device.
    pub device_total_bytes: Option<u64>,
    /// How busy the driver says that the device is, in percent.
    pub device_load_percent: Option<f64>,
    /// Where the figures come from.
    pub source: String,
}

impl LaneMemory {
    /// Sum of what is counted one by one; activations are not in it.
    pub fn counted_bytes(&self) -> u64 {
        [self.batches_bytes, self.parameters_bytes, self.optimizer_bytes, self.gradients_bytes]
            .into_iter()
            .fold(0, u64::saturating_add)
    }

    /// The best figure for what the lane uses: what its pool holds, else what is counted.
    pub fn used_bytes(&self) -> u64 {
        self.pool_reserved_bytes.unwrap_or_else(|| self.counted_bytes())
    }

    /// What the use is measured against: the limit, else all memory of the device.
    pub fn total_bytes(&self) -> Option<u64> {
        self.limit_bytes.or(self.device_total_bytes)
    }

    /// Used share of the total; more than 1 when the limit is exceeded.
    pub fn utilization(&self) -> Option<f64> {
        let total = self.total_bytes().filter(|&total| total > 0)?;
        Some(self.used_bytes() as f64 / total as f64)
    }

    /// `[Step 12] Data GPU 0: 480/8192 MB (5.9%)`, where the role and device are `Data GPU 0`.
    pub fn line(&self, step: u64, role_and_device: &str) -> String {
        let mb = |bytes: u64| (bytes as f64 / MB as f64).round();
        let used = mb(self.used_bytes());
        match (self.total_bytes(), self.utilization()) {
            (Some(total), Some(share)) => {
                format!("[Step {step}] {role_and_device}: {used}/{} MB ({:.1}%)", mb(total), 100.0 * share)
            }
            _ => format!("[Step {step}] {role_and_device}: {used} MB used, total unavailable"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> LaneMemory {
        LaneMemory {
            lane: Lane::Data,
            device: "GPU 0".to_owned(),
            limit_bytes: Some(8192 * MB),
            batches_bytes: 100 * MB,
            parameters_bytes: 20 * MB,
            optimizer_bytes: 40 * MB,
            gradients_bytes: 20 * MB,
            pool_in_use_bytes: Some(300 * MB),
            pool_reserved_bytes: Some(480 * MB),
            device_used_bytes: Some(900 * MB),
            device_total_bytes: Some(24576 * MB),
            device_load_percent: None,
            source: "test".to_owned(),
        }
    }

    #[test]
    fn the_pool_is_better_than_the_sum() {
        assert_eq!(memory().used_bytes(), 480 * MB);
        let counted = LaneMemory { pool_reserved_bytes: None, ..memory() };
        assert_eq!(counted.used_bytes(), 180 * MB);
        assert_eq!(LaneMemory { batches_bytes: u64::MAX, ..counted }.used_bytes(), u64::MAX);
    }

    #[test]
    fn the_line_names_the_limit_or_the_device_or_neither() {
        let mut memory = memory();
        assert_eq!(memory.line(12, "Data GPU 0"), "[Step 12] Data GPU 0: 480/8192 MB (5.9%)");
        memory.limit_bytes = None;
        assert_eq!(memory.line(0, "Model GPU 1"), "[Step 0] Model GPU 1: 480/24576 MB (2.0%)");
        memory.device_total_bytes = None;
        assert_eq!(memory.utilization(), None);
        assert_eq!(memory.line(7, "Data CPU"), "[Step 7] Data CPU: 480 MB used, total unavailable");
        memory.limit_bytes = Some(240 * MB);
        assert_eq!(memory.utilization(), Some(2.0));
        memory.limit_bytes = Some(0);
        assert_eq!(memory.utilization(), None);
    }
}
