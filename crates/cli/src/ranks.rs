//! This process as one of several that train together (`mpirun`, `srun`): who speaks, who goes first, and how all end.

use std::fs::File;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::{Value, json};
use tandem_device::Inventory;
use tandem_train::reduce::mpi::{LibraryError, Session};
use tandem_train::reduce::{Launched, RankFacts, Reduce, ReduceError};

use crate::args::LaneArgs;
use crate::errors::Explain;
use crate::failure::{FAILED, Failure, USAGE};
use crate::messages::Messages;

/// The other processes of a run, if there are any.
#[derive(Debug, Default)]
pub(crate) struct Ranks {
    session: Option<Session>,
    /// Where errors go, when everything else goes nowhere.
    errors: Option<File>,
}

impl Ranks {
    /// Joins the job that this process was started for. All but rank 0 are silent from now on if they are to be `quiet`.
    pub(crate) fn join(quiet: bool, messages: &Messages) -> Result<Ranks, Failure> {
        let Some(launched) = Launched::from_env(|name| std::env::var(name).ok()) else { return Ok(Ranks::default()) };
        if !cfg!(feature = "mpi") {
            // So many processes would train the same, each for itself.
            let values: &[(&str, &dyn std::fmt::Display)] =
                &[("world", &launched.world), ("launcher", &launched.launcher)];
            let failure = Failure::usage(messages.with("ranks-not-built", values));
            return Err(failure.hint(messages.get("ranks-hint-build")));
        }
        let session = Session::start(launched).map_err(|error| {
            let failure = Failure::of(USAGE, &error);
            match error {
                LibraryError::Missing(..) => failure.hint(messages.get("ranks-hint-library")),
                LibraryError::OtherWorld { .. } => failure.hint(messages.get("ranks-hint-world")),
                _ => failure,
            }
        })?;
        let errors = if quiet && session.rank() > 0 { silence().ok() } else { None };
        Ok(Ranks { session: Some(session), errors })
    }

    /// Whether this is the one that prints and writes.
    pub(crate) fn is_first(&self) -> bool {
        self.session.as_ref().is_none_or(|session| session.rank() == 0)
    }

    /// The sums of a run over all ranks, with the name of this host.
    pub(crate) fn reduce(&self) -> Option<(Box<dyn Reduce>, &str)> {
        self.session.as_ref().map(|session| (Box::new(session.clone()) as Box<dyn Reduce>, session.host()))
    }

    /// Work that rank 0 does before the others: what it writes to a shared folder they find there.
    pub(crate) fn first_alone<R>(&self, work: impl FnOnce() -> Result<R, Failure>) -> Result<R, Failure> {
        let Some(session) = &self.session else { return work() };
        let meet = || session.meet().map_err(|error| reduce_failure(&error));
        if session.rank() > 0 {
            meet()?;
            return work();
        }
        let result = work()?;
        meet()?;
        Ok(result)
    }

    /// This rank among those of its host, and how many they are.
    fn place(&self) -> Option<(usize, usize)> {
        let session = self.session.as_ref()?;
        Some((session.local_rank(), session.hosts().iter().filter(|host| *host == session.host()).count()))
    }

    /// Devices of this rank when none is named.
    pub(crate) fn pair(&self, lanes: LaneArgs, inventory: &Inventory) -> LaneArgs {
        let real = inventory.gpus.iter().filter(|gpu| gpu.is_real()).count();
        self.place().map_or(lanes.clone(), |(place, ranks)| lanes.paired(real, place, ranks))
    }

    /// The devices of this rank: of `--data-gpu 0,2 --model-gpu 1,3` those at its place among the ranks of its host.
    pub(crate) fn lanes(&self, lanes: LaneArgs, messages: &Messages) -> Result<LaneArgs, Failure> {
        let (Some(session), Some((place, here))) = (&self.session, self.place()) else { return Ok(lanes) };
        lanes.of_rank(place, here).map_err(|(flag, devices)| {
            let values: &[(&str, &dyn std::fmt::Display)] =
                &[("flag", &flag), ("devices", &devices), ("ranks", &here), ("host", &session.host())];
            Failure::usage(messages.with("ranks-few-devices", values))
        })
    }

    /// Who they are, for the manifest.
    pub(crate) fn manifest(&self, ranks: &[RankFacts]) -> Option<Value> {
        let session = self.session.as_ref()?;
        let one = |rank: &RankFacts| {
            let RankFacts { rank, host, data_device, model_device, .. } = rank;
            json!({"rank": rank, "host": host, "data_device": data_device, "model_device": model_device})
        };
        Some(json!({"library": session.version(), "ranks": ranks.iter().map(one).collect::<Vec<_>>()}))
    }

    /// A line about them; none for one process.
    pub(crate) fn describe(&self, messages: &Messages) -> Option<String> {
        let session = self.session.as_ref()?;
        let mut hosts = session.hosts().to_vec();
        hosts.sort_unstable();
        hosts.dedup();
        let (world, hosts, library) = (session.world(), hosts.join(", "), session.version());
        Some(messages.with("train-ranks", &[("world", &world), ("hosts", &hosts), ("library", &library)]))
    }

    /// The work of this rank. With others beside it a panic is a failure that they hear of, and that is reported even if this rank is quiet.
    pub(crate) fn work(&self, work: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
        if self.session.is_none() {
            return work();
        }
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            Err(Failure::new(FAILED, text.unwrap_or("a panic without a message")))
        })
    }

    /// The run is over, on all ranks.
    pub(crate) fn leave(&self) -> Result<(), Failure> {
        let Some(session) = &self.session else { return Ok(()) };
        session.leave().map_err(|error| reduce_failure(&error))
    }

    /// Ends all processes because this one failed; alone it is for the program to say what went wrong.
    pub(crate) fn end(mut self, failure: Failure, is_json: bool, messages: &Messages) -> Failure {
        let Some(session) = &self.session else { return failure };
        if failure.reported_by.is_none_or(|rank| rank == session.rank()) {
            if is_json {
                let _ = writeln!(stdout(), "{}", failure.json());
            }
            let text = failure.render(messages, self.errors.is_none() && stderr().is_terminal());
            let text = match session.rank() {
                0 => format!("{text}\n"),
                rank => {
                    let who = messages.with("ranks-who", &[("rank", &rank), ("host", &session.host())]);
                    format!("{who}: {text}\n")
                }
            };
            let _ = match &mut self.errors {
                Some(errors) => errors.write_all(text.as_bytes()),
                None => stderr().write_all(text.as_bytes()),
            };
        }
        session.fail(failure.message(), failure.code)
    }
}

/// A rank is missing, or failed.
pub(crate) fn reduce_failure(error: &ReduceError) -> Failure {
    let code = if let ReduceError::Failed(_, _, code) = error { *code } else { FAILED };
    // What a rank failed of it says itself, and so does rank 0; when that is the one, rank 1.
    Failure::of(code, error).reported_by(usize::from(error.rank() == Some(0)))
}

/// From now on nothing that is printed is seen. Returns where errors can still be said.
#[cfg(unix)]
fn silence() -> std::io::Result<File> {
    use std::os::fd::{AsFd, AsRawFd};
    let nowhere = File::options().write(true).open("/dev/null")?;
    let errors = File::from(stderr().as_fd().try_clone_to_owned()?);
    for stream in [1, 2] {
        // SAFETY: both are open; whoever prints keeps the number and prints nowhere.
        if unsafe { libc::dup2(nowhere.as_raw_fd(), stream) } < 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(errors)
}

impl Explain for LibraryError {
    fn text(&self) -> crate::errors::Text {
        use crate::errors::{Text, shown};
        match self {
            LibraryError::Missing(launcher, names) => Text::Message(
                "error-mpi-missing",
                vec![("launcher", shown(launcher)), ("names", shown(names.join(", ")))],
            ),
            LibraryError::OtherWorld { launched, found, library } => Text::Message(
                "error-mpi-world",
                vec![("launched", shown(launched)), ("found", shown(found)), ("library", shown(library))],
            ),
            LibraryError::Unknown(library, name) => {
                Text::Message("error-mpi-unknown", vec![("library", shown(library)), ("name", shown(name))])
            }
            LibraryError::Start(reason) => Text::Message("error-mpi-start", vec![("reason", shown(reason))]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(data: Option<&str>, model: Option<&str>) -> LaneArgs {
        let device = |word: &str| word.parse().expect("a device");
        LaneArgs { data_gpu: data.map(device), model_gpu: model.map(device), ..LaneArgs::default() }
    }

    #[test]
    fn each_rank_of_a_host_gets_the_devices_at_its_place() {
        let names = |lanes: LaneArgs| [lanes.data_gpu, lanes.model_gpu].map(|device| device.map(|one| one.to_string()));
        let both = |data: &str, model: &str| [Some(data.to_owned()), Some(model.to_owned())];
        for (place, expected) in [(0, both("0", "1")), (1, both("2", "3"))] {
            let own = lanes(Some("0,2"), Some("1,3")).of_rank(place, 2).expect("enough");
            assert_eq!(names(own), expected);
        }
        let shared = lanes(Some("cpu"), Some("1,3")).of_rank(1, 2).expect("the host prepares for all");
        assert_eq!(names(shared), both("cpu", "3"));
        assert_eq!(names(lanes(None, None).of_rank(1, 2).expect("nothing requested")), [None, None]);
        for (gpus, expected) in [
            (0, [None, None]),
            (1, [None, None]),
            (2, both("cpu", "1")),
            (3, both("cpu", "1")),
            (4, both("2", "3")),
            (8, both("2", "3")),
        ] {
            assert_eq!(names(lanes(None, None).paired(gpus, 1, 2)), expected, "{gpus} GPUs, the second of two ranks");
        }
        assert_eq!(names(lanes(Some("0"), Some("1")).paired(8, 1, 2)), both("0", "1"), "what is named stays");
        let few = lanes(Some("cpu"), Some("1,3")).of_rank(2, 3).expect_err("three ranks, two devices");
        assert_eq!(few, ("--model-gpu", "1,3".to_owned()));
    }
}
