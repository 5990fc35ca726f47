//! Promises about the documents: what they name exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    // Asked for when it runs: the folder may have moved since it was built.
    PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("run by cargo")).join("../..")
}

/// The names of all functions in the Rust files below a folder.
fn functions(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            functions(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("UTF-8");
            let after_fn = text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
            names.extend(after_fn.map(str::to_owned));
        }
    }
}

#[test]
fn every_test_in_the_table_of_rows_exists() {
    let mut names = BTreeSet::new();
    functions(&root().join("crates"), &mut names);
    functions(&root().join("tests"), &mut names);
    let table = fs::read_to_string(root().join("docs/reference/rows.md")).expect("the table");
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ") && line.contains('`')).collect();
    assert!(rows.len() > 40, "{}", rows.len());
    for row in rows {
        let test = row.split('|').nth(3).expect("a column").trim().trim_matches('`');
        assert!(names.contains(test), "no test is called {test}");
    }
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut pages = vec![root().join("README.md"), root().join("README.fa.md"), root().join("CONTRIBUTING.md")];
    let mut folders = vec![root().join("docs"), root().join("benches")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    assert!(pages.len() > 8);
    for page in pages {
        let text = fs::read_to_string(&page).expect("UTF-8");
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            let target = page.parent().expect("in a folder").join(target);
            assert!(target.exists(), "{}: {link} leads nowhere", page.display());
        }
    }
}
