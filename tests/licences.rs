//! Nothing is linked that our licence, MIT OR Apache-2.0, cannot live with. (Advisories need a database from the
//! network and are not checked here.)

use std::process::Command;

use spdx::{Expression, LicenseReq};

const ALLOWED: [&str; 12] = [
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
    // Weak copyleft per file, fine to link unchanged; nothing of it is copied into our files.
    "MPL-2.0",
];

fn is_allowed(requirement: &LicenseReq) -> bool {
    requirement.license.id().is_some_and(|id| ALLOWED.contains(&id.name))
}

#[test]
fn every_dependency_has_a_licence_we_can_ship() {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--manifest-path", manifest])
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("a list");
    assert!(packages.len() > 10);
    let refused: Vec<String> = packages
        .iter()
        .filter(|package| {
            let licence = package["license"].as_str().unwrap_or("none").replace('/', " OR ");
            !Expression::parse(&licence).is_ok_and(|expression| expression.evaluate(is_allowed))
        })
        .map(|package| format!("{} {}: {}", package["name"], package["version"], package["license"]))
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

#[test]
fn the_check_can_fail() {
    for (licence, fine) in [("GPL-3.0-only", false), ("MIT OR GPL-3.0-only", true), ("MIT AND LGPL-2.1-only", false)] {
        assert_eq!(Expression::parse(licence).expect("valid").evaluate(is_allowed), fine, "{licence}");
    }
}
