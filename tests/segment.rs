//! Promises of `tandem segment` and of `--balance speaker`, on the real program.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tandem_audio::{Decoder, WavWriter};

use crate::support::{Workplace, last_json, stderr, stdout, tandem};

const RATE: u32 = 22_050;

/// The clips of a corpus with pauses between them, many times over, as one recording with captions; the number of captions.
fn lecture(corpus: &Path, recording: &Path, times: usize) -> usize {
    let mut writer = WavWriter::new(File::create(recording).expect("made"), RATE).expect("writable");
    let list = fs::read_to_string(corpus.join("metadata.csv")).expect("a list");
    let (mut srt, mut number, pause) = (String::new(), 0, vec![0.0; RATE as usize]);
    let time = |samples: u64| {
        let ms = samples * 1000 / u64::from(RATE);
        format!("{:02}:{:02}:{:02},{:03}", ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60, ms % 1000)
    };
    writer.append(&pause).expect("writable");
    for row in (0..times).flat_map(|_| list.lines()) {
        let fields: Vec<&str> = row.split('|').collect();
        let mut samples = Vec::new();
        let mut file = File::open(corpus.join(format!("wavs/{}.wav", fields[0]))).expect("a clip");
        Decoder::new().decode(&mut file, &mut samples).expect("whole");
        let start = writer.samples();
        writer.append(&samples).expect("writable");
        number += 1;
        srt += &format!("{number}\n{} --> {}\n{}\n\n", time(start), time(writer.samples()), fields[1]);
        writer.append(&pause).expect("writable");
    }
    writer.finish().expect("writable");
    fs::write(recording.with_extension("srt"), srt).expect("written");
    number
}

/// Everything in a directory but what is remembered for resuming.
fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for part in ["", "wavs"] {
        for entry in fs::read_dir(dir.join(part)).into_iter().flatten().flatten().filter(|entry| entry.path().is_file())
        {
            found.insert(format!("{part}/{}", entry.file_name().display()), fs::read(entry.path()).expect("readable"));
        }
    }
    found
}

#[test]
fn a_recording_with_captions_becomes_a_corpus_that_every_command_reads() {
    let work = Workplace::new(10, 2);
    let (recording, out) = (work.path("lecture.wav"), work.path("voice"));
    let captions = lecture(&work.path("corpus"), &recording, 1);
    let segment = |more: &[&str]| {
        tandem().arg("segment").arg(&recording).args(more).args(["--min-seconds", "0.3"]).output().expect("it starts")
    };
    let dry = segment(&["--dry-run"]);
    assert!(dry.status.success() && !out.exists(), "{}", stderr(&dry));
    assert_eq!(stdout(&dry).lines().filter(|line| line.contains("lecture-00")).count(), captions, "{}", stdout(&dry));
    let page = work.path("cuts.html");
    let name = out.display().to_string();
    let made = segment(&[&name, "--json", "--html", &page.display().to_string()]);
    assert!(made.status.success(), "{}", stderr(&made));
    let made = last_json(&made);
    assert_eq!(
        (made["clips"].as_array().map(Vec::len), made["written"].as_u64()),
        (Some(captions), Some(captions as u64))
    );
    let texts = |path: &Path| -> Vec<String> {
        let list = fs::read_to_string(path.join("metadata.csv")).expect("a list");
        list.lines().map(|row| row.split('|').nth(1).expect("a text").to_owned()).collect()
    };
    assert_eq!(texts(&out), texts(&work.path("corpus")));
    let page = fs::read_to_string(page).expect("a page");
    assert_eq!(page.matches("<audio ").count(), captions);
    assert!(page.contains("src=\"voice/wavs/lecture-0001.wav\"") && !page.contains("<script"), "{page}");
    let again = segment(&[&name]);
    assert!(again.status.success() && stdout(&again).contains("; 0 of them written now"), "{}", stdout(&again));
    let other = segment(&[&name, "--audio", "flac"]);
    assert_eq!(other.status.code(), Some(2), "{}", stderr(&other));
    assert!(stderr(&other).contains("is there already and was not begun with this command"), "{}", stderr(&other));
    let doctor =
        tandem().arg("doctor").arg(&out).args(["--units", "characters", "--json"]).output().expect("it starts");
    assert!(doctor.status.success(), "{}", stderr(&doctor));
    let found = last_json(&doctor);
    assert_eq!((found["usable"].as_u64(), found["rows"].as_u64()), (Some(captions as u64), Some(captions as u64)));
}

#[test]
fn texts_that_are_missing_are_said_by_segment_and_by_doctor() {
    let work = Workplace::new(10, 1);
    let (recording, out) = (work.path("lecture.wav"), work.path("voice"));
    let clips = lecture(&work.path("corpus"), &recording, 1);
    fs::remove_file(recording.with_extension("srt")).expect("there");
    let made =
        tandem().arg("segment").args([&recording, &out]).args(["--min-seconds", "0.3"]).output().expect("it starts");
    assert!(made.status.success(), "{}", stderr(&made));
    assert!(
        stdout(&made).contains(&format!("{clips} clips have no text yet: write it behind the |")),
        "{}",
        stdout(&made)
    );
    let doctor = tandem().arg("doctor").arg(&out).args(["--format", "ljspeech", "--json"]).output().expect("it starts");
    let found = last_json(&doctor);
    let kinds: Vec<&str> =
        found["findings"].as_array().expect("a list").iter().filter_map(|one| one["kind"].as_str()).collect();
    assert_eq!(kinds, vec!["empty-text"; clips], "{found}");
}

#[cfg(unix)]
#[test]
fn a_kill_at_any_moment_loses_nothing_of_segment() {
    let work = Workplace::new(10, 2);
    let recording = work.path("lecture.wav");
    let captions = lecture(&work.path("corpus"), &recording, 4);
    let start = |out: &Path| {
        // It gets what the one who looks leaves: on a busy machine that one would come too late otherwise.
        let mut program = Command::new("nice");
        program.args(["-n", "19", env!("CARGO_BIN_EXE_tandem")]).env("LC_ALL", "C.UTF-8");
        program.arg("segment").arg(&recording).arg(out).args(["--min-seconds", "0.3", "--audio", "flac", "--json"]);
        program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    let whole = work.path("whole");
    let done = start(&whole).wait_with_output().expect("it ends");
    assert!(done.status.success(), "{}", stderr(&done));
    let expected = contents(&whole);
    assert_eq!(expected.len(), captions + 1, "clips and a list");
    let mut killed = 0;
    for files in [0, 1, 2, 5, 11, 20, captions - 1] {
        let out = work.path(&format!("out-{files}"));
        let mut child = start(&out);
        let there = || fs::read_dir(out.join("wavs")).map_or(0, Iterator::count);
        // Until so many files are there, or it is over.
        while (files > 0 || !out.join(".segment").exists()) && there() < files {
            if child.try_wait().expect("a child").is_some() {
                break;
            }
            std::thread::yield_now();
        }
        child.kill().expect("it is ours");
        killed += usize::from(child.wait().expect("a child").code().is_none());
        let resumed = start(&out).wait_with_output().expect("it ends");
        assert!(resumed.status.success(), "{files}: {}", stderr(&resumed));
        assert_eq!(contents(&out), expected, "killed with {files} files");
    }
    assert!(killed >= 5, "only {killed} of them were killed before their end");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_named_and_the_same_command_resumes() {
    let work = Workplace::new(10, 1);
    let (recording, out) = (work.path("lecture.wav"), work.path("voice"));
    lecture(&work.path("corpus"), &recording, 1);
    let words = format!("segment {} {} --min-seconds 0.3", recording.display(), out.display());
    // No file may have more than 20 blocks: the signal is ignored, so that writing fails as on a full disk.
    let script = format!("trap '' XFSZ; ulimit -f 20; exec {} {words}", env!("CARGO_BIN_EXE_tandem"));
    let full = Command::new("sh").args(["-c", &script]).env("LC_ALL", "C.UTF-8").output().expect("a shell");
    assert_eq!(full.status.code(), Some(1), "{}", stderr(&full));
    let said = stderr(&full);
    assert!(
        said.contains("cannot write `") && said.contains("lecture-0001.wav") && said.contains("make room"),
        "{said}"
    );
    assert!(!out.join("metadata.csv").exists());
    let resumed = tandem().args(words.split(' ')).output().expect("it starts");
    assert!(resumed.status.success() && out.join("metadata.csv").exists(), "{}", stderr(&resumed));
    assert!(contents(&out).keys().all(|name| !name.contains(".tmp")), "{:?}", contents(&out).keys());
}

/// The most memory that a program had, in kB.
#[cfg(target_os = "linux")]
fn peak_kb(recording: &Path, out: &Path) -> u64 {
    let mut child = tandem()
        .arg("segment")
        .args([recording, out])
        .args(["--min-seconds", "0.3"])
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut most = 0;
    while child.try_wait().expect("a child").is_none() {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kb = line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|kb| kb.trim().parse().ok());
        most = most.max(kb.unwrap_or(0));
        std::thread::yield_now();
    }
    most
}

#[cfg(target_os = "linux")]
#[test]
fn memory_does_not_grow_with_the_length_of_a_recording() {
    let work = Workplace::new(10, 1);
    let (short, long) = (work.path("short.wav"), work.path("long.wav"));
    lecture(&work.path("corpus"), &short, 2);
    // Forty minutes: 53 million samples, 212 MB as they are decoded.
    lecture(&work.path("corpus"), &long, 80);
    let bytes = fs::metadata(&long).expect("there").len();
    let (a, b) = (peak_kb(&short, &work.path("a")), peak_kb(&long, &work.path("b")));
    println!("{a} kB for {} bytes, {b} kB for {bytes} bytes", fs::metadata(&short).expect("there").len());
    assert!(a > 0 && b < a + 12_000 && b * 1000 < bytes, "{a} kB, {b} kB");
}

#[test]
fn speakers_are_balanced_in_a_run_and_counted_in_its_report() {
    let work = Workplace::new(20, 2);
    // One speaker has two clips only.
    let rows: String = (0..20).map(|n| format!("demo_{n:04}|{}|en\n", if n < 17 { "anna" } else { "ben" })).collect();
    fs::write(work.path("corpus/speakers.csv"), rows).expect("written");
    let steps = "--batch-size 4 --max-steps 16 --log-every 1 --checkpoint-every 8";
    work.trained("plain", steps);
    work.trained("balanced", &format!("{steps} --balance speaker"));
    assert_ne!(work.losses("plain"), work.losses("balanced"), "other clips were heard");
    // Ended in the middle of an epoch and resumed with another number of workers: the same weights.
    work.trained(
        "parts",
        "--batch-size 4 --max-steps 7 --log-every 1 --checkpoint-every 7 --balance speaker --num-workers 0",
    );
    work.trained("parts", "--batch-size 4 --max-steps 16 --log-every 1 --checkpoint-every 16 --num-workers 3");
    assert!(work.weights("parts", 16) == work.weights("balanced", 16), "resumed exactly");
    let manifest: Value =
        serde_json::from_slice(&fs::read(work.path("balanced/manifest.json")).expect("there")).expect("JSON");
    let shares = &manifest["starts"][0]["facts"]["speakers"];
    let clips: Vec<u64> =
        shares.as_array().expect("a list").iter().filter_map(|share| share["clips"].as_u64()).collect();
    assert!(clips.len() == 2 && clips[0] > 4 * clips[1] && shares[0]["seconds"].as_f64() > Some(1.0), "{shares}");
    let report = tandem().arg("report").arg(work.path("balanced")).output().expect("it starts");
    assert!(report.status.success(), "{}", stderr(&report));
    assert!(stdout(&report).contains(&format!("anna {} (", clips[0])), "{}", stdout(&report));
    let refused = work.train("balanced", "--batch-size 4 --max-steps 18 --balance off");
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
}
