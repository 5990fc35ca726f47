//! Every library that a crate of ours names is explained in `docs/reference/dependencies.md`, and nothing else is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The name of a library → its version, and the crates that name it.
type Libraries = BTreeMap<String, (String, BTreeSet<String>)>;

fn root() -> PathBuf {
    // Asked for when it runs: the folder may have moved since it was built.
    PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("run by cargo")).join("../..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The lines `name = …` and `name.workspace = …` of tables with such a name; crates of our own are skipped.
fn entries(manifest: &str, is_table: impl Fn(&str) -> bool) -> Vec<(&str, &str)> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            assert!(!line.contains("dependencies."), "a table for one library is not read here: {line}");
            inside = is_table(line.trim_matches(['[', ']']));
        } else if inside && line.starts_with(|first: char| first.is_alphabetic()) && !line.starts_with("tandem-") {
            found.extend(line.split_once(['.', ' ', '=']));
        }
    }
    found
}

fn versions(workspace: &str) -> BTreeMap<&str, &str> {
    let entries = entries(workspace, |table| table == "workspace.dependencies").into_iter();
    entries.map(|(name, value)| (name, value.split('"').nth(1).expect("a version in quotes"))).collect()
}

/// What the crates name, for the program or only for tests.
fn named(for_tests: bool) -> Libraries {
    let workspace = read(&root().join("Cargo.toml"));
    let versions = versions(&workspace);
    let mut libraries = Libraries::new();
    for entry in fs::read_dir(root().join("crates")).expect("a folder").flatten() {
        let user = entry.file_name().to_string_lossy().into_owned();
        let is_table =
            |table: &str| table.ends_with("dependencies") && table.ends_with("dev-dependencies") == for_tests;
        for (name, value) in entries(&read(&entry.path().join("Cargo.toml")), is_table) {
            assert!(value.contains("workspace"), "{user}: the version of `{name}` belongs into the workspace");
            let new = || (versions[name].to_owned(), BTreeSet::new());
            libraries.entry(name.to_owned()).or_insert_with(new).1.insert(user.clone());
        }
    }
    libraries
}

/// What a part of the page says, in rows: `name` version, crates, what for, license.
fn explained(part: &str) -> Libraries {
    let mut libraries = Libraries::new();
    for row in part.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert!(cells.len() == 4 && cells.iter().all(|cell| !cell.is_empty()), "four cells: {row}");
        let (name, version) = cells[0].split_once(' ').expect("a name and a version");
        let users = cells[1].split(", ").map(str::to_owned).collect();
        let twice = libraries.insert(name.trim_matches('`').to_owned(), (version.to_owned(), users));
        assert!(twice.is_none(), "explained twice: {row}");
    }
    libraries
}

#[test]
fn every_library_is_explained_and_nothing_else_is() {
    let page = read(&root().join("docs/reference/dependencies.md"));
    let (program, tests) = page.split_once("## Only in tests").expect("two tables");
    for (for_tests, part, least) in [(false, program, 20), (true, tests, 3)] {
        let named = named(for_tests);
        assert!(named.len() >= least, "{named:?}");
        assert_eq!(explained(part), named, "the page, and what the Cargo.toml files say");
    }
}

#[test]
fn every_library_of_the_workspace_is_used() {
    let workspace = read(&root().join("Cargo.toml"));
    let used: BTreeSet<String> = named(false).into_keys().chain(named(true).into_keys()).collect();
    let listed: BTreeSet<String> = versions(&workspace).into_keys().map(str::to_owned).collect();
    assert_eq!(listed, used);
}
