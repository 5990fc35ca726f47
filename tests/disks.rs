//! Promises about full disks: the file is named, what was written holds, the run resumes.

use std::process::Command;

use crate::support::{Workplace, last_step, run, stderr, stdout};

#[cfg(unix)]
#[test]
fn a_full_disk_costs_steps_but_never_a_checkpoint() {
    let work = Workplace::new(16, 1);
    let settings = |steps: u64| format!("--batch-size 4 --max-steps {steps} --checkpoint-every 2");
    work.trained("whole", &settings(8));
    work.trained("full", &settings(4));
    // Files may not grow beyond 1 MB: weights do not fit, like on a disk that is full.
    let arguments = work.arguments("full", &settings(8)).join(" ");
    let program = env!("CARGO_BIN_EXE_tandem");
    let output = Command::new("bash")
        .args(["-c", &format!("trap '' XFSZ; ulimit -f 1024; exec {program} {arguments}")])
        .env("LC_ALL", "C.UTF-8")
        .output()
        .expect("bash");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("step-00000008"), "{}", stderr(&output));
    assert!(stderr(&output).contains("what was learned up to step 4 is saved"), "{}", stderr(&output));
    assert!(stdout(&output).contains("checkpoint_failed"));
    assert_eq!(last_step(&work.path("full")), Some(4));
    assert!(run(&format!("inspect {}", work.path("full").display())).status.success());
    work.trained("full", &settings(8));
    assert_eq!(work.losses("full"), work.losses("whole"));
    assert_eq!(work.weights("full", 8), work.weights("whole", 8));
}

#[cfg(unix)]
#[test]
fn a_full_disk_is_named_with_the_file_that_was_asked_for() {
    let work = Workplace::new(12, 1);
    work.trained("run", "--batch-size 4 --max-steps 1");
    let (out, picture) = (work.path("said.wav"), work.path("said.png"));
    // Files may not grow beyond 1 kB, like on a disk that is full.
    for (more, named) in [(String::new(), &out), (format!("--picture {}", picture.display()), &out)] {
        let synth = format!(
            "trap '' XFSZ; ulimit -f 1; exec {} synth banana --checkpoint {} -o {} {more}",
            env!("CARGO_BIN_EXE_tandem"),
            work.path("run").display(),
            out.display()
        );
        let output = Command::new("bash").args(["-c", &synth]).env("LC_ALL", "C.UTF-8").output().expect("bash");
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let text = stderr(&output);
        assert!(text.contains(&named.display().to_string()) && !text.contains(".tandem-"), "{text}");
        assert!(!out.exists() && !picture.exists(), "nothing half-written");
    }
}

/// Training on a disk that is full ends in an error that names the file and what to do, and goes on when there is room.
#[cfg(unix)]
#[test]
fn a_run_on_a_full_disk_says_what_to_do_and_resumes() {
    let work = Workplace::new(12, 1);
    let settings = "--batch-size 4 --max-steps 4 --checkpoint-every 2 --log-every 1 --backend cpu";
    work.trained("whole", settings);
    // Files may not grow beyond 64 kB, like on a disk that is full: the log fits, no checkpoint does.
    let arguments = work.arguments("run", settings).join(" ");
    let train = format!("trap '' XFSZ; ulimit -f 64; exec {} {arguments}", env!("CARGO_BIN_EXE_tandem"));
    let output = Command::new("bash").args(["-c", &train]).env("LC_ALL", "C.UTF-8").output().expect("bash");
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let place = work.path("run/checkpoints/step-00000004").display().to_string();
    assert!(text.contains(&place) && text.contains("hint: make room on that disk"), "{text}");
    assert!(stdout(&output).contains("\"checkpoint_failed\""), "said as soon as it was known");
    work.trained("run", settings);
    assert_eq!(work.losses("run"), work.losses("whole"));
    assert_eq!(work.weights("run", 4), work.weights("whole", 4));
}

#[test]
fn which_checkpoint_is_the_best_cannot_be_noted_and_that_is_said() {
    let work = Workplace::new(12, 1);
    let settings = "--batch-size 4 --max-steps 4 --checkpoint-every 2 --validate-every 2 --keep 1 --backend cpu";
    let best = work.path("run/checkpoints/best");
    std::fs::create_dir_all(best.join("in the way")).expect("a folder");
    let output = run(&work.arguments("run", settings).join(" "));
    assert!(output.status.success(), "the checkpoints themselves are whole: {}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("\"checkpoint_failed\"") && text.contains("checkpoints/best"), "{text}");
    assert_eq!(last_step(&work.path("run")), Some(4));
}
