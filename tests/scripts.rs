//! Promises about the scripts that build and run the program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// A checkout of a program of the same name as ours that says a word; its files are `age` old.
fn checkout(path: PathBuf, word: &str, age: Duration) -> PathBuf {
    let scripts = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts"));
    let (package, lock) = ("name = \"tandem-cli\"\nversion = \"0.1.0\"\n", "version = 4\n\n[[package]]\n");
    let bin = "[[bin]]\nname = \"tandem\"\npath = \"src/main.rs\"\n";
    let files = [
        ("Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\n".to_owned()),
        ("Cargo.lock", format!("{lock}{package}")),
        ("crates/cli/Cargo.toml", format!("[package]\n{package}edition = \"2024\"\n\n{bin}")),
        ("crates/cli/src/main.rs", format!("fn main() {{\n    println!(\"{word}\");\n}}\n")),
    ];
    for name in ["tandem", "common.sh"] {
        fs::create_dir_all(path.join("scripts")).expect("a folder");
        fs::copy(scripts.join(name), path.join("scripts").join(name)).expect("copied");
    }
    for (name, text) in files {
        let file = path.join(name);
        fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        fs::write(&file, text).expect("written");
        let file = fs::File::options().write(true).open(&file).expect("there");
        file.set_modified(SystemTime::now() - age).expect("Linux and macOS do");
    }
    path
}

/// What a script's function prints in a machine with these device nodes and this output of `ldconfig`.
fn features(nodes: &str, libraries: &str, build: Option<&str>, target: &Path) -> (String, bool) {
    let common = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/common.sh"));
    let script = format!(". {}; gpu_nodes='{nodes}'; ldconfig() {{ echo '{libraries}'; }}; features", common.display());
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]).env("CARGO_TARGET_DIR", target).env_remove("TANDEM_BUILD");
    let output = bash.envs(build.map(|build| ("TANDEM_BUILD", build))).output().expect("bash");
    (String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned(), output.status.success())
}

#[cfg(target_os = "linux")]
#[test]
fn a_machine_without_a_gpu_gets_the_shorter_build_unless_it_has_the_other() {
    let target = tempfile::tempdir().expect("a folder");
    let (node, none) = (target.path().join("renderD128"), target.path().join("renderD*"));
    let on = |nodes: &Path, libraries, build| features(&nodes.display().to_string(), libraries, build, target.path());
    let (gpu, cpu) = ((String::new(), true), ("--no-default-features".to_owned(), true));
    assert_eq!(on(&none, "libc.so.6", None), cpu);
    assert_eq!(on(&none, "libvulkan.so.1 (libc6)", None), gpu, "a driver may come at any time");
    assert_eq!(on(&none, "libc.so.6", Some("gpu")), gpu);
    assert_eq!(on(&none, "libvulkan.so.1", Some("cpu")), cpu);
    assert!(!on(&none, "", Some("tpu")).1, "not a kind of build");
    fs::write(&node, "").expect("written");
    assert_eq!(on(&none, "libc.so.6", None), gpu, "a card");
    fs::remove_file(&node).expect("there");
    // The tests have built it already: it is used, and nothing is built twice.
    fs::create_dir_all(target.path().join("release/.fingerprint/burn-wgpu-1")).expect("made");
    assert_eq!(on(&none, "libc.so.6", None), gpu);
}

/// Two checkouts share a target folder; cargo alone would run the newer one's program in both.
#[cfg(unix)]
#[test]
fn each_checkout_runs_its_own_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let hour = Duration::from_secs(3600);
    let new = checkout(folder.path().join("new"), "new", Duration::ZERO);
    let old = checkout(folder.path().join("old"), "old", hour);
    let says = |checkout: &Path| {
        let output = Command::new("bash")
            .arg(checkout.join("scripts/tandem"))
            .env("CARGO_TARGET_DIR", folder.path().join("target"))
            // As from a terminal, not as from `scripts/test`, which runs this.
            .env_remove("TANDEM_TARGET_DIR_TAKEN")
            .output()
            .expect("bash");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let rebuilt = String::from_utf8_lossy(&output.stderr).contains("of another checkout");
        (String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned(), rebuilt)
    };
    assert_eq!(says(&new), ("new".to_owned(), false));
    assert_eq!(says(&old), ("old".to_owned(), true), "its files are older than the other's build");
    assert_eq!(says(&old), ("old".to_owned(), false), "nothing is built twice");
    assert_eq!(says(&new), ("new".to_owned(), true));
    // Moved to the place of the one that built last.
    fs::remove_dir_all(&new).expect("removed");
    fs::rename(&old, &new).expect("moved");
    assert_eq!(says(&new), ("old".to_owned(), true));
}

/// What takes minutes of its own is in CI although the README's command leaves it out: CUDA and the fuzz targets.
#[cfg(unix)]
#[test]
fn ci_runs_what_the_test_command_only_does_when_asked() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, root) = (tempfile::tempdir().expect("a folder"), Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
    };
    let read = |name: &str| fs::read_to_string(root.join(name)).expect(name);
    // The two sections as they are, of a script whose others take the rest of the hour.
    let script = read("scripts/test");
    let start = script.find("say \"every format").expect("the section of the fuzz targets");
    let end = script.find("say \"repeats under").expect("the section after both");
    let head = "#!/usr/bin/env bash\nset -euo pipefail\ncd \"$(dirname \"$0\")/..\"\n. scripts/common.sh\n";
    write("scripts/test", &format!("{head}{}", &script[start..end]));
    write("scripts/common.sh", &read("scripts/common.sh"));
    write("scripts/fuzz", "#!/bin/sh\necho \"fuzz $1\"\n");
    write("bin/cargo", "#!/bin/sh\necho \"DOCS_RS=$DOCS_RS cargo $*\"\n");
    write(".ci/run", &read(".ci/run"));
    let run = |name: &str| {
        let path = format!("{}:{}", folder.path().join("bin").display(), std::env::var("PATH").expect("set"));
        let mut command = Command::new(folder.path().join(name));
        for variable in ["CI", "TANDEM_CUDA", "TANDEM_FUZZ_SECONDS", "DOCS_RS"] {
            command.env_remove(variable);
        }
        let output = command.env("PATH", path).output().expect("bash");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let ci = run(".ci/run");
    assert!(ci.contains("fuzz 15\n"), "{ci}");
    assert!(ci.contains("DOCS_RS=1 cargo check --release --locked -p tandem-cli --features cuda"), "{ci}");
    let test = run("scripts/test");
    assert!(!test.contains("fuzz ") && !test.contains("cargo"), "{test}");
}

/// A wrong word is answered before anything is built.
#[cfg(unix)]
#[test]
fn the_fuzzer_is_told_what_there_is() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/fuzz");
    for (arguments, words) in [
        (&["soon"][..], "`soon` is no number of seconds"),
        (&["5", "no-such"], "no target `no-such`"),
        (&["5", "--record"], "--record needs a file"),
    ] {
        let output = Command::new("bash").arg(&script).args(arguments).output().expect("bash");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(words) && text.contains("checkpoint") && text.contains("voice"), "{text}");
    }
}
