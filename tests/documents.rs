//! Promises about the documents: what they name exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    // Asked for when it runs: the folder may have moved since it was built.
    PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("run by cargo")).join("../..")
}

/// The names of all functions in the Rust files below a folder.
fn functions(dir: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).expect("a folder").flatten() {
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

/// The row ids that a text names after `SPEC `, as in `SPEC M5, M6`.
fn cited(text: &str) -> Vec<String> {
    let is_id = |word: &&str| {
        let (letter, number) = word.split_at(word.len().min(1));
        letter.chars().all(|c| c.is_ascii_uppercase())
            && !number.is_empty()
            && number.bytes().all(|b| b.is_ascii_digit())
    };
    let list = |rest: &str| {
        let words = rest.split([',', ' ']).filter(|word| !word.is_empty());
        let ids = words.map(|word| word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned());
        ids.take_while(|word| is_id(&word.as_str())).collect::<Vec<_>>()
    };
    text.split("SPEC ").skip(1).flat_map(list).collect()
}

#[test]
fn every_row_that_the_code_or_a_page_names_is_in_the_specification() {
    let page = fs::read_to_string(root().join("docs/reference/specification.md")).expect("the page");
    let first = |line: &str| line.strip_prefix("| ").and_then(|rest| rest.split(" |").next()).map(str::to_owned);
    let ids: BTreeSet<String> =
        page.lines().filter_map(first).flat_map(|ids| ids.split(", ").map(str::to_owned).collect::<Vec<_>>()).collect();
    assert!(ids.len() > 120, "{}", ids.len());
    let rows = fs::read_to_string(root().join("docs/reference/rows.md")).expect("the table");
    let in_table = rows.lines().filter_map(first).filter(|id| id.ends_with(|c: char| c.is_ascii_digit()));
    let in_table = in_table.flat_map(|ids| ids.split([',', '-', ' ']).map(str::to_owned).collect::<Vec<_>>());
    let mut named: BTreeSet<String> = in_table.filter(|id| !id.is_empty()).collect();
    let mut dirs = vec![root().join("crates"), root().join("tests"), root().join("benches")];
    while let Some(dir) = dirs.pop() {
        for path in fs::read_dir(&dir).expect("a folder").flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                named.extend(cited(&fs::read_to_string(&path).expect("UTF-8")));
            }
        }
    }
    assert!(named.len() > 60, "{}", named.len());
    let unknown: Vec<&String> = named.difference(&ids).collect();
    assert!(unknown.is_empty(), "not in docs/reference/specification.md: {unknown:?}");
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut pages = vec![root().join("README.md"), root().join("README.fa.md"), root().join("CONTRIBUTING.md")];
    let mut dirs = vec![root().join("docs"), root().join("benches")];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                dirs.push(path);
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

/// The levels of the headings of a page, and its blocks of code.
fn skeleton(page: &Path) -> (Vec<usize>, Vec<String>) {
    let text = fs::read_to_string(page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
    let (mut levels, mut blocks, mut block) = (Vec::new(), Vec::new(), None::<String>);
    for line in text.lines() {
        match (&mut block, line.starts_with("```")) {
            (None, true) => block = Some(String::new()),
            (Some(_), true) => blocks.extend(block.take()),
            (Some(block), false) => *block += &format!("{line}\n"),
            (None, false) if line.starts_with('#') => levels.push(line.chars().take_while(|c| *c == '#').count()),
            (None, false) => {}
        }
    }
    assert!(block.is_none(), "{}: a block of code is not closed", page.display());
    (levels, blocks)
}

/// Persian pages have the headings and the blocks of code of the English ones.
#[test]
fn persian_pages_mirror_the_english_ones() {
    let mut pages = 0;
    for dir in ["guide", "concepts"] {
        for entry in fs::read_dir(root().join("docs").join(dir)).expect("a folder").flatten() {
            let english = skeleton(&entry.path());
            let persian = skeleton(&root().join("docs/fa").join(dir).join(entry.file_name()));
            let name = entry.file_name().to_string_lossy().into_owned();
            assert_eq!(english.0, persian.0, "headings of {dir}/{name}");
            assert_eq!(english.1, persian.1, "code of {dir}/{name}");
            pages += 1;
        }
    }
    assert!(pages >= 10, "{pages}");
}
