//! What the environment says about the other processes of a job, before any library is asked.

use std::fmt;

/// Who starts the processes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// `mpiexec` of MPICH and of what is made of it: Intel MPI, MVAPICH, Cray MPICH.
    Mpich,
    /// `srun`.
    Slurm,
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Launcher::OpenMpi => "Open MPI",
            Launcher::Mpich => "MPICH",
            Launcher::Slurm => "Slurm",
        })
    }
}

/// A process that was started as one of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launched {
    /// By whom.
    pub launcher: Launcher,
    /// How many.
    pub world: usize,
}

impl Launched {
    /// What these variables say; `None` if this process is the only one.
    pub fn from_env(variable: impl Fn(&str) -> Option<String>) -> Option<Launched> {
        let number = |name: &str| variable(name).and_then(|text| text.trim().parse::<usize>().ok());
        let found = [
            (Launcher::OpenMpi, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
            (Launcher::Mpich, "PMI_SIZE", "PMI_RANK"),
            // Of a step, that is of `srun`: a batch script alone is one process, however many tasks its job has.
            (Launcher::Slurm, "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
        ];
        found.into_iter().find_map(|(launcher, size, rank)| {
            let world = number(size).filter(|world| *world > 1)?;
            number(rank).map(|_| Launched { launcher, world })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_one_process_is_recognized_whoever_started_it() {
        let launched = |variables: &[(&str, &str)]| {
            let found =
                |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
            Launched::from_env(found).map(|launched| (launched.launcher, launched.world))
        };
        for (variables, expected) in [
            (&[][..], None),
            (&[("OMPI_COMM_WORLD_SIZE", "1"), ("OMPI_COMM_WORLD_RANK", "0")], None),
            (&[("OMPI_COMM_WORLD_SIZE", "4"), ("OMPI_COMM_WORLD_RANK", "3")], Some((Launcher::OpenMpi, 4))),
            (&[("PMI_SIZE", "2"), ("PMI_RANK", "0")], Some((Launcher::Mpich, 2))),
            (&[("SLURM_STEP_NUM_TASKS", "8"), ("SLURM_PROCID", "7")], Some((Launcher::Slurm, 8))),
            // A batch script of a job of eight tasks, before `srun`.
            (&[("SLURM_NTASKS", "8"), ("SLURM_PROCID", "0")], None),
            (&[("PMI_SIZE", "two"), ("PMI_RANK", "0")], None),
        ] {
            assert_eq!(launched(variables), expected, "{variables:?}");
        }
    }
}
