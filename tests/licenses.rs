//! Nothing is linked that our license, MIT OR Apache-2.0, cannot live with. (Advisories need a database from the
//! network and are not checked here.)

use std::collections::BTreeSet;
use std::process::Command;

use spdx::{Expression, LicenseReq};

const ALLOWED: [&str; 13] = [
    "MIT",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "0BSD",
    "Unlicense",
    "CC0-1.0",
    "Unicode-3.0",
    "BSL-1.0",
    // Data, not code: root certificates, with the feature `cloud`, on Android alone.
    "CDLA-Permissive-2.0",
    // Weak copyleft per file, fine to link unchanged; nothing of it is copied into our files.
    "MPL-2.0",
];

fn is_allowed(requirement: &LicenseReq) -> bool {
    requirement.license.id().is_some_and(|id| ALLOWED.contains(&id.name))
}

#[test]
fn every_dependency_has_a_licence_we_can_ship() {
    // Asked for when it runs: the folder may have moved since it was built.
    let dir = std::env::var("CARGO_MANIFEST_DIR").expect("run by cargo");
    let manifest = format!("{dir}/../../Cargo.toml");
    // What can end up in a build, on any platform; optional parts of dependencies that nobody switches on do not count.
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--workspace", "--edges", "normal,build", "--target", "all", "--prefix", "none"])
        .args(["--features", "tandem-cli/cloud,tandem-cli/parquet,tandem-cli/mpi,tandem-cli/cuda"])
        .args(["--format", "{p}|{l}", "--locked", "--manifest-path", &manifest])
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let packages: BTreeSet<&str> =
        text.lines().map(|line| line.trim_end_matches(" (*)")).filter(|line| !line.is_empty()).collect();
    assert!(packages.len() > 100, "{}", packages.len());
    let refused: Vec<&str> = (packages.into_iter())
        .filter(|package| {
            let license = package.rsplit('|').next().unwrap_or("none").replace('/', " OR ");
            !Expression::parse(&license).is_ok_and(|expression| expression.evaluate(is_allowed))
        })
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

/// `cargo deny` is told the same.
#[test]
fn deny_toml_allows_the_same_licenses() {
    let dir = std::env::var("CARGO_MANIFEST_DIR").expect("run by cargo");
    let text = std::fs::read_to_string(format!("{dir}/../../deny.toml")).expect("there");
    let list = text.split("allow = [").nth(1).and_then(|rest| rest.split(']').next()).expect("a list");
    let entries = list.lines().map(str::trim).filter(|line| line.starts_with('"'));
    let allowed: Vec<&str> = entries.map(|line| line.trim_matches(['"', ','])).collect();
    assert_eq!(allowed, ALLOWED);
}

#[test]
fn the_check_can_fail() {
    for (license, fine) in [("GPL-3.0-only", false), ("MIT OR GPL-3.0-only", true), ("MIT AND LGPL-2.1-only", false)] {
        assert_eq!(Expression::parse(license).expect("valid").evaluate(is_allowed), fine, "{license}");
    }
}
