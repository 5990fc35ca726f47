//! Promises about synthesis for people with many or long texts (SPEC V7, V8), and about alignments.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::{SoftwareGpus, Workplace, after_the_first, interrupt, last_json, run, stderr, stdout, tandem};

/// A run with a checkpoint that is the best and others after it.
fn trained(speakers: usize) -> Workplace {
    let work = Workplace::new(24, speakers);
    work.trained("run", "--batch-size 4 --max-steps 6 --checkpoint-every 2 --validate-every 2 --flow");
    work
}

fn synth(work: &Workplace, more: &[&str]) -> Command {
    let mut command = tandem();
    command.args(["synth", "--checkpoint"]).arg(work.path("run")).args(more).current_dir(work.path(""));
    command
}

fn done(mut command: Command) -> Output {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{}", stderr(&output));
    output
}

fn refused(mut command: Command, words: &[&str]) {
    let output = command.output().expect("it starts");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    words.iter().for_each(|word| assert!(stderr(&output).contains(word), "{word}: {}", stderr(&output)));
}

fn manifest(dir: &Path) -> Vec<Value> {
    let text = fs::read_to_string(dir.join("manifest.jsonl")).expect("a manifest");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The samples of a 16-bit WAV file, whose header has to say how many there are.
fn samples(path: &Path) -> Vec<i16> {
    let bytes = fs::read(path).expect("a WAV file");
    let length = u32::from_le_bytes(bytes[40..44].try_into().expect("four")) as usize;
    assert_eq!((&bytes[..4], length), (&b"RIFF"[..], bytes.len() - 44), "{}", path.display());
    bytes[44..].chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect()
}

fn wavs(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a folder").flatten().map(|entry| entry.file_name());
    let mut names: Vec<String> = entries.map(|name| name.to_string_lossy().into_owned()).collect();
    names.retain(|name| name != "manifest.jsonl");
    names.sort();
    names
}

/// The flow decoder is trained when it is requested; a temperature without one is refused, not ignored.
#[test]
fn a_voice_without_a_flow_decoder_refuses_a_temperature() {
    let work = trained(1);
    work.trained("mean", "--batch-size 4 --max-steps 2");
    let tensors = |run: &str| {
        let bytes = fs::read(
            work.path(&format!("{run}/checkpoints/step-{:08}/model.safetensors", if run == "run" { 6 } else { 2 })),
        );
        String::from_utf8_lossy(&bytes.expect("weights")).contains("decoder.blocks.0")
    };
    assert!(tensors("run") && !tensors("mean"));
    let log = |run: &str| fs::read_to_string(work.path(run).join("log.jsonl")).expect("a log");
    assert!(log("run").contains("\"flow\"") && !log("mean").contains("\"flow\""));
    let speak = |run: &str, temperature: &str| {
        let mut command = tandem();
        command
            .args(["synth", "Banana.", "--temperature", temperature, "-o", "x.wav", "--checkpoint"])
            .arg(work.path(run));
        command.current_dir(work.path(""));
        command
    };
    refused(speak("mean", "0.5"), &["no flow-matching decoder", "--flow"]);
    let output =
        tandem().args(["evaluate", "--temperature", "0.5"]).arg(work.path("mean")).output().expect("it starts");
    assert!(!output.status.success() && stderr(&output).contains("no flow-matching decoder"), "{}", stderr(&output));
    done(speak("mean", "0"));
    let flat = samples(&work.path("x.wav"));
    done(speak("run", "0.5"));
    assert!(!flat.is_empty() && flat != samples(&work.path("x.wav")));
}

/// SPEC N3.
#[test]
fn a_run_that_has_a_vocoder_speaks_with_it_and_says_so() {
    let work = trained(1);
    let speak = |name: &str, more: &[&str]| -> (String, Vec<i16>) {
        let output = done(synth(&work, &[&["Banana piano.", "-o", name], more].concat()));
        (stderr(&output), samples(&work.path(name)))
    };
    let (said, plain) = speak("plain.wav", &[]);
    assert!(!said.contains("vocoder"), "{said}");
    work.trained("run-vocoder", "--part vocoder --batch-size 4 --max-steps 2");
    let (said, own) = speak("own.wav", &[]);
    assert!(said.contains("run-vocoder`, that of this run"), "{said}");
    let (said, requested) = speak("requested.wav", &["--vocoder", "run-vocoder"]);
    assert!(!said.contains("of this run"), "{said}");
    assert_eq!(own, requested);
    let (said, without) = speak("without.wav", &["--vocoder", "griffin-lim"]);
    assert!(!said.contains("of this run"), "{said}");
    assert_eq!(without, plain);
    assert_ne!(own, plain);
    // One for other mels is an error, never silently something else.
    fs::remove_dir_all(work.path("run-vocoder")).expect("it is there");
    work.trained("run-vocoder", "--part vocoder --batch-size 4 --max-steps 2 --n-mels 40");
    refused(synth(&work, &["Banana piano.", "-o", "no.wav"]), &["n_mels: 80 here, 40 there", "--vocoder griffin-lim"]);
}

#[test]
fn a_long_text_becomes_one_file_sentence_by_sentence() {
    let work = trained(1);
    let text = "Banana piano. Tomato salad. A metal basket. Banana";
    let speak = |name: &str, more: &[&str]| -> (Value, Vec<i16>) {
        let output = done(synth(&work, &[&[text, "--json", "-o", name], more].concat()));
        (last_json(&output), samples(&work.path(name)))
    };
    let (shown, whole) = speak("a.wav", &[]);
    let rate = 22_050.0;
    let sentences = shown["sentences"].as_array().expect("sentences");
    let texts: Vec<&str> = sentences.iter().filter_map(|sentence| sentence["text"].as_str()).collect();
    assert_eq!(texts, ["Banana piano.", "Tomato salad.", "A metal basket.", "Banana"]);
    assert_eq!(shown["seconds"].as_f64().map(|seconds| (seconds * rate).round() as usize), Some(whole.len()));
    // The pauses are silent, and as long as the default says.
    for pair in sentences.windows(2) {
        let (end, start) = (pair[0]["end"].as_f64().expect("s"), pair[1]["start"].as_f64().expect("s"));
        assert!((start - end - 0.2).abs() < 1e-3, "{pair:?}");
        let silent = &whole[(end * rate).round() as usize..(start * rate).round() as usize];
        assert!(silent.iter().all(|&sample| sample == 0), "{pair:?}");
    }
    // SPEC V7: the batch changes nothing that could be heard, the pause and the speed what they say.
    let (_, single) = speak("b.wav", &["--batch-size", "1"]);
    assert_eq!(single.len(), whole.len());
    let off = single.iter().zip(&whole).map(|(a, b)| (i32::from(*a) - i32::from(*b)).abs()).max();
    assert!(off <= Some(33), "{off:?} of 32767");
    let (_, paused) = speak("c.wav", &["--pause", "1.2"]);
    assert_eq!(paused.len(), whole.len() + 3 * 22_050);
    let (_, tight) = speak("d.wav", &["--pause", "0"]);
    let (_, slow) = speak("e.wav", &["--pause", "0", "--speed", "0.5"]);
    let ratio = slow.len() as f64 / tight.len() as f64;
    assert!((1.9..2.1).contains(&ratio), "{ratio}");
    // The same lines from a file or from standard input are the same speech.
    fs::write(work.path("texts.txt"), "Banana piano. Tomato salad.\n\nx|A metal basket.\nBanana\n").expect("written");
    done(synth(&work, &["--file", "texts.txt", "-o", "f.wav"]));
    assert_eq!(samples(&work.path("f.wav")), whole);
    let mut command = synth(&work, &["-", "-o", "g.wav"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts");
    child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("read");
    assert!(child.wait().expect("it ends").success());
    assert_eq!(samples(&work.path("g.wav")), whole);
}

#[test]
fn many_texts_become_files_and_a_manifest_and_nothing_is_overwritten_silently() {
    let work = trained(1);
    let (file, dir) = (work.path("texts.txt"), work.path("spoken"));
    fs::write(&file, "one|Banana piano. Tomato.\ntwo|Metal basket.\nBanana.\n").expect("written");
    let many =
        |more: &[&str]| synth(&work, &[&["--file", "texts.txt", "--out-dir", "spoken", "--json"], more].concat());
    let end = last_json(&done(many(&[])));
    assert_eq!((end["made"].as_u64(), end["there"].as_u64()), (Some(3), Some(0)), "{end}");
    assert_eq!(wavs(&dir), ["0003.wav", "one.wav", "two.wav"]);
    let lines = manifest(&dir);
    let ids: Vec<&str> = lines.iter().filter_map(|line| line["id"].as_str()).collect();
    assert_eq!(ids, ["one", "two", "0003"]);
    assert_eq!((&lines[0]["text"], &lines[0]["file"]), (&"Banana piano. Tomato.".into(), &"one.wav".into()));
    let sentences = lines[0]["sentences"].as_array().expect("sentences");
    assert_eq!(sentences.len(), 2, "{}", lines[0]);
    for line in &lines {
        let heard = samples(&dir.join(line["file"].as_str().expect("a name"))).len() as f64 / 22_050.0;
        let last = line["sentences"].as_array().and_then(|all| all.last()?["end"].as_f64());
        assert!(
            (line["seconds"].as_f64().expect("s") - heard).abs() < 1e-6 && last == line["seconds"].as_f64(),
            "{line}"
        );
    }
    // What is there is not made again; what is new is.
    let before = fs::metadata(dir.join("one.wav")).and_then(|file| file.modified()).expect("there");
    fs::write(&file, "one|Banana piano. Tomato.\ntwo|Metal basket.\nBanana.\nnew|Solo.\n").expect("written");
    let end = last_json(&done(many(&[])));
    assert_eq!((end["made"].as_u64(), end["there"].as_u64()), (Some(1), Some(3)), "{end}");
    assert_eq!(fs::metadata(dir.join("one.wav")).and_then(|file| file.modified()).expect("there"), before);
    // Another text, another way, or a file that nobody knows: refused before anything is written.
    let kept = fs::read(dir.join("manifest.jsonl")).expect("there");
    refused(many(&["--speed", "2"]), &["was made in another way: speed: 1.0 → 2.0", "--overwrite"]);
    fs::write(&file, "one|Another text.\n").expect("written");
    refused(many(&[]), &["one.wav` was made from another text", "--overwrite"]);
    fs::write(&file, "mine|Banana.\n").expect("written");
    fs::write(dir.join("mine.wav"), "mine").expect("written");
    refused(many(&[]), &["mine.wav` exists, and no line of the manifest belongs to it"]);
    assert_eq!(fs::read(dir.join("manifest.jsonl")).expect("there"), kept);
    assert_eq!(fs::read(dir.join("mine.wav")).expect("there"), b"mine");
    done(many(&["--overwrite"]));
    assert!(samples(&dir.join("mine.wav")).len() > 1000);
    // A text that cannot be spoken does not keep the others waiting, and is named.
    fs::write(&file, "Banana.\nпривет\nPiano.\n").expect("written");
    let output = synth(&work, &["--file", "texts.txt", "--out-dir", "some"]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("texts.txt:2: the voice was never trained on these symbols"),
        "{}",
        stderr(&output)
    );
    assert!(stderr(&output).contains("1 of 3 texts could not be spoken"), "{}", stderr(&output));
    assert_eq!(wavs(&work.path("some")), ["0001.wav", "0003.wav"]);
}

#[test]
fn wrong_texts_are_refused_before_anything_is_written() {
    let work = trained(1);
    let file = work.path("texts.txt");
    let one = || synth(&work, &["--file", "texts.txt", "-o", "x.wav"]);
    let many = || synth(&work, &["--file", "texts.txt", "--out-dir", "spoken"]);
    refused(one(), &["`texts.txt` cannot be read"]);
    for (bytes, words) in [
        (&b"a|b|c\n"[..], "texts.txt:1: more than one `|`"),
        (b"a|x\na|y\n", "texts.txt:2: the id `a` is there twice"),
        (b"../up|x\n", "texts.txt:1: the id `../up` cannot be the name of a file"),
        (b"x\n\xff\n", "texts.txt:2: this is not UTF-8 text"),
        (b"\n \n", "`texts.txt` has no text"),
        ("Banana.\nпривет\n".as_bytes(), "texts.txt:2: the voice was never trained"),
    ] {
        fs::write(&file, bytes).expect("written");
        refused(one(), &[words]);
        if !bytes.starts_with(b"Banana") {
            refused(many(), &[words]);
        }
    }
    assert!(!work.path("x.wav").exists() && !work.path("spoken").exists());
    refused(synth(&work, &[]), &["required"]);
    refused(synth(&work, &["Banana.", "--pause", "-1"]), &["--pause"]);
    fs::create_dir_all(work.path("spoken")).expect("a folder");
    fs::write(&file, "Banana.\n").expect("written");
    fs::write(work.path("spoken/manifest.jsonl"), "nonsense\n").expect("written");
    refused(many(), &["manifest.jsonl`, line 1: this is not a line of a manifest"]);
}

/// Ctrl-C, and a kill: what is finished stays, and the same command makes the rest.
#[cfg(target_os = "linux")]
#[test]
fn an_interrupted_synthesis_loses_nothing_that_is_finished() {
    let work = trained(1);
    let texts: String = (0..400).map(|n| format!("t{n}|Banana piano tomato salad. Metal basket.\n")).collect();
    fs::write(work.path("texts.txt"), texts).expect("written");
    let many = || {
        synth(&work, &["--file", "texts.txt", "--out-dir", "spoken", "--json", "--steps", "40", "--temperature", "1"])
    };
    let dir = work.path("spoken");
    let finished = |code: Option<i32>, output: &Output| {
        assert_eq!(output.status.code(), code, "{}", stderr(output));
        let lines = manifest(&dir);
        // Every line has its file and every file its line; nothing half-made lies around.
        let mut named: Vec<String> =
            lines.iter().map(|line| line["file"].as_str().expect("a name").to_owned()).collect();
        named.sort();
        assert_eq!(wavs(&dir), named);
        named.iter().for_each(|name| drop(samples(&dir.join(name))));
        named.len()
    };
    let mut child = many().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let rest = after_the_first(&mut child, "text");
    interrupt(&child);
    let output = child.wait_with_output().expect("it ends");
    drop(rest); // not before: a closed pipe ends the program
    let first = finished(Some(130), &output);
    assert!((1..400).contains(&first), "{first} of 400");
    assert!(stderr(&output).contains("the same command makes the others"), "{}", stderr(&output));
    // Killed in the middle: at worst a temporary file and half a line.
    let mut child = many().stdout(Stdio::piped()).spawn().expect("it starts");
    drop(after_the_first(&mut child, "text"));
    child.kill().and_then(|()| child.wait()).expect("killed");
    fs::write(
        work.path("texts.txt"),
        (0..first + 20).map(|n| format!("t{n}|Banana piano tomato salad. Metal basket.\n")).collect::<String>(),
    )
    .expect("written");
    for entry in fs::read_dir(&dir).expect("a folder").flatten() {
        if entry.file_name().to_string_lossy().starts_with(".tandem-") {
            fs::remove_file(entry.path()).expect("removed");
        }
    }
    let output = done(many());
    assert!(finished(Some(0), &output) >= first + 20);
    let end = last_json(&output);
    assert_eq!(end["made"].as_u64().expect("n") + end["there"].as_u64().expect("n"), first as u64 + 20, "{end}");
    assert!(end["there"].as_u64().expect("n") > first as u64, "{end}");
    // One file: the sentences so far are in it.
    let text = "Banana piano. ".repeat(400);
    let mut command = synth(&work, &[&text, "-o", "one.wav", "--steps", "40", "--temperature", "1"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    // Before the first sentence there is nothing to keep. What is written so far is beside the file that it will be.
    let begun = || {
        let files = fs::read_dir(work.path("")).expect("a folder").flatten();
        let written = files.filter(|file| file.file_name().to_string_lossy().starts_with(".tandem-"));
        written.filter_map(|file| file.metadata().ok()).any(|file| file.len() > 1000)
    };
    while !begun() {
        assert!(child.try_wait().expect("it can be asked").is_none(), "it ended before it spoke");
        std::thread::yield_now();
    }
    interrupt(&child);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(stderr(&output).contains("of speech are in") && samples(&work.path("one.wav")).len() > 1000);
}

#[test]
fn a_run_means_its_last_checkpoint_and_says_so() {
    let work = trained(1);
    // Whatever was best in so short a run: note another than the last.
    fs::write(work.path("run/checkpoints/best"), "step-00000002\n").expect("written");
    let step = |checkpoint: &str| -> (u64, String) {
        let mut command = tandem();
        command
            .args(["synth", "Banana.", "--json", "-o", "x.wav", "--checkpoint", checkpoint])
            .current_dir(work.path(""));
        let output = done(command);
        (last_json(&output)["step"].as_u64().expect("a step"), stderr(&output))
    };
    let (last, said) = step("run");
    assert_eq!(last, 6);
    assert!(said.contains("checkpoint: step 6, the last of the run; the validation loss was best at step 2"), "{said}");
    let (best, said) = step("run/checkpoints/best");
    assert_eq!(best, 2);
    assert!(said.contains("step 2, that of the best validation loss"), "{said}");
    assert_eq!(step("run/checkpoints/step-00000004"), (4, String::new()));
    let output = run(&format!("evaluate {} --json", work.path("run").display()));
    assert_eq!(last_json(&output)["step"], 6, "{}", stderr(&output));
}

/// SPEC V8: on a device what the CPU says, and no other device than was asked for.
#[test]
fn synthesis_runs_on_the_device_that_was_asked_for() {
    let work = trained(2);
    let text = "Banana piano. Tomato.";
    let speak = |mut command: Command, more: &[&str]| -> Output {
        command.args(["synth", text, "--json", "-o", "x.wav", "--checkpoint", "run"]).args(more);
        command.current_dir(work.path("")).output().expect("it starts")
    };
    // Without such a device it is an error, whatever else there is.
    let without = || {
        let mut command = tandem();
        command.env("VK_ICD_FILENAMES", "/none");
        command
    };
    for (flags, words) in [
        (&["--backend", "vulkan"][..], "--backend vulkan: there is no such device here"),
        (&["--device", "nothing like it"], "--device nothing like it: no device has this name"),
        (&["--backend", "metal"], "--backend metal: not built in"),
        (&["--backend", "vulkan", "--device", "cpu"], "--device cpu"),
    ] {
        let output = speak(without(), flags);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {}", stderr(&output));
        println!("{flags:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(words), "{flags:?}: {}", stderr(&output));
    }
    assert!(!work.path("x.wav").exists());
    let cpu = speak(without(), &[]);
    assert!(cpu.status.success(), "{}", stderr(&cpu));
    let on_cpu = samples(&work.path("x.wav"));
    assert!(speak(without(), &["--device", "cpu"]).status.success());
    assert_eq!(samples(&work.path("x.wav")), on_cpu);
    let Some(gpus) = SoftwareGpus::find() else { return };
    let on_gpu = speak(gpus.tandem(1, false).expect("lavapipe"), &["--device", "0"]);
    assert!(on_gpu.status.success(), "{}", stderr(&on_gpu));
    assert!(stderr(&on_gpu).contains("GPU 0"), "it is tried before it is trusted: {}", stderr(&on_gpu));
    assert_eq!(last_json(&on_gpu)["durations"], last_json(&cpu)["durations"]);
    let heard = samples(&work.path("x.wav"));
    let energy = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>();
    let off = energy(&mut heard.iter().zip(&on_cpu).map(|(a, b)| f64::from(*a) - f64::from(*b)));
    let whole = energy(&mut on_cpu.iter().map(|a| f64::from(*a)));
    assert!(heard.len() == on_cpu.len() && off < 1e-3 * whole, "{off} of {whole}");
    // The evaluation of the same voice there.
    let mel = |mut command: Command, more: &[&str]| {
        let output = command.args(["evaluate", "run", "--json"]).args(more).current_dir(work.path("")).output();
        let output = output.expect("it starts");
        assert!(output.status.success(), "{}", stderr(&output));
        last_json(&output)["mel_l1"].as_f64().expect("a distance")
    };
    let (wanted, found) =
        (mel(without(), &[]), mel(gpus.tandem(1, false).expect("lavapipe"), &["--backend", "vulkan"]));
    assert!((wanted - found).abs() < 1e-3 * wanted, "{wanted} {found}");
}

#[test]
fn alignments_are_written_for_every_clip_and_fill_it() {
    let work = trained(2);
    let out = work.path("alignments");
    let align = |more: &str| run(&format!("align {} --out {} {more}", work.path("run").display(), out.display()));
    let output = align("--json");
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(last_json(&output)["clips"], 24, "{}", stdout(&output));
    let ids: Vec<PathBuf> = fs::read_dir(&out).expect("a folder").flatten().map(|entry| entry.path()).collect();
    assert_eq!(ids.len(), 24);
    for path in ids {
        let grid = fs::read_to_string(&path).expect("a TextGrid");
        let id = path.file_stem().expect("an id").to_string_lossy().into_owned();
        let seconds = samples(&work.path(&format!("corpus/wavs/{id}.wav"))).len() as f64 / 22_050.0;
        let numbers = |key: &str| -> Vec<f64> {
            let tier = grid.split("name = \"tokens\"").nth(1).expect("a tier");
            tier.lines().filter_map(|line| line.trim().strip_prefix(key)?.parse().ok()).collect()
        };
        let (starts, ends) = (numbers("xmin = "), numbers("xmax = "));
        // The first of each is the tier's own.
        assert!(starts.len() > 5 && (ends[0] - seconds).abs() < 1e-3, "{id}: {ends:?}, {seconds}");
        assert!(starts[1] == 0.0 && ends.last() == ends.first(), "{id}");
        assert!(starts[2..].iter().zip(&ends[1..]).all(|(start, end)| start == end), "{id}: no gaps");
        assert!(starts[1..].iter().zip(&ends[1..]).all(|(start, end)| start < end), "{id}: in order");
    }
    let output = align("");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("exists") && stderr(&output).contains("--overwrite"), "{}", stderr(&output));
    assert!(align("--overwrite").status.success());
}

#[test]
fn alignments_of_one_run_are_the_durations_of_another() {
    let work = trained(1);
    let grids = work.path("alignments");
    let align =
        |run_name: &str, out: &Path| run(&format!("align {} --out {}", work.path(run_name).display(), out.display()));
    assert!(align("run", &grids).status.success());
    let ids: Vec<PathBuf> = fs::read_dir(&grids).expect("a folder").flatten().map(|entry| entry.path()).collect();
    // A file that does not fit is named before anything is written.
    let (first, whole) = (&ids[0], fs::read_to_string(&ids[0]).expect("a TextGrid"));
    let longer = whole.replace("name = \"tokens\"", "name = \"words\"");
    fs::write(first, longer).expect("writable");
    let arguments = format!("--batch-size 4 --max-steps 2 --seed 9 --alignments {}", grids.display());
    let output = work.train("other", &arguments);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let name = first.file_name().expect("a name").to_string_lossy().into_owned();
    for word in ["alignments do not fit their clips", name.as_str(), "no interval tier `tokens`", "tandem align"] {
        assert!(stderr(&output).contains(word), "{word}: {}", stderr(&output));
    }
    assert!(!work.path("other").exists(), "nothing is written");
    fs::write(first, whole).expect("writable");
    work.trained("other", &arguments);
    let manifest: Value =
        serde_json::from_slice(&fs::read(work.path("other/manifest.json")).expect("written")).expect("JSON");
    let settings = manifest["starts"][0]["settings"].as_array().expect("a list");
    let given = settings.iter().find(|one| one["name"] == "--alignments").expect("it is listed");
    assert_eq!(given["value"], grids.display().to_string());
    // Kept in the run: without the directory it does not resume.
    work.trained("other", "--max-steps 3");
    fs::rename(&grids, work.path("elsewhere")).expect("moved");
    let output = work.train("other", "--max-steps 4");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("cannot read") && stderr(&output).contains("--alignments"), "{}", stderr(&output));
    work.trained("other", &format!("--max-steps 4 --alignments {}", work.path("elsewhere").display()));
}
