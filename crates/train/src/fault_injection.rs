//! What goes wrong on purpose in the data lane of a run: for tests, and to see what a slow disk would do.

use std::time::Duration;

use tandem_device::{FaultKind, FaultPlan};
use tandem_flow::{Context, Cursor, Fault, Lane, Stage};

/// A fault on purpose in the data lane; the number is a batch of the first epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LaneFault {
    /// Every batch takes this much longer to read: a slow disk.
    SlowDisk(Duration),
    /// From this batch on, preparing takes this much longer.
    Slow(Duration, u64),
    /// The lane fails.
    Error(u64),
    /// The lane panics.
    Panic(u64),
    /// The lane never returns, until the run is given up.
    Hang(u64),
    /// The lane finds no memory.
    OutOfMemory(u64),
}

impl LaneFault {
    /// `load:slowSECONDS@0` or `data:KIND@BATCH`; none when the plan is for another stage.
    pub fn of(plan: &FaultPlan) -> Option<LaneFault> {
        let at = plan.at;
        let delay = |seconds| Duration::try_from_secs_f64(seconds).ok();
        match plan.kind {
            FaultKind::Slow(seconds) if plan.stage == Stage::Load.name() => delay(seconds).map(LaneFault::SlowDisk),
            _ if plan.stage != Lane::Data.name() => None,
            FaultKind::Slow(seconds) => Some(LaneFault::Slow(delay(seconds)?, at)),
            FaultKind::Error => Some(LaneFault::Error(at)),
            FaultKind::Panic => Some(LaneFault::Panic(at)),
            FaultKind::Hang => Some(LaneFault::Hang(at)),
            FaultKind::OutOfMemory => Some(LaneFault::OutOfMemory(at)),
        }
    }

    /// How much longer reading a batch takes.
    pub(crate) fn disk_delay(self) -> Option<Duration> {
        match self {
            LaneFault::SlowDisk(by) => Some(by),
            _ => None,
        }
    }

    /// What happens when this batch is prepared. Who is slow stays slow; everything else happens once.
    pub(crate) fn inject(self, cursor: Cursor, context: &Context) -> Result<(), Fault> {
        let now = |batch| cursor == Cursor { epoch: 0, batch };
        let fatal = |why: &str| Err(Fault::new(format!("the data lane {why} (on purpose)")).fatal());
        match self {
            LaneFault::Slow(by, batch) if cursor >= (Cursor { epoch: 0, batch }) => {
                context.clock.sleep(by);
                Ok(())
            }
            LaneFault::Error(at) if now(at) => fatal("failed"),
            LaneFault::OutOfMemory(at) if now(at) => fatal("is out of memory"),
            LaneFault::Panic(at) if now(at) => panic!("the data lane panicked (on purpose)"),
            LaneFault::Hang(at) if now(at) => {
                context.stop.wait(&context.clock);
                fatal("hung")
            }
            _ => Ok(()),
        }
    }
}
