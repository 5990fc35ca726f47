//! The list of unsafe code in `SECURITY.md` is complete, and crates without any forbid it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) fn root() -> PathBuf {
    // Asked for when it runs: the folder may have moved since it was built.
    PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("run by cargo")).join("../..")
}

/// Blocks `unsafe { … }` in a source; comments and texts do not count.
fn unsafe_blocks(source: &str) -> usize {
    let code = source.lines().map(|line| line.split("//").next().unwrap_or_default());
    code.map(|line| line.matches("unsafe {").count()).sum()
}

/// The Rust files below a folder.
pub(crate) fn rust_files(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

#[test]
fn every_unsafe_block_is_in_the_list() {
    let (root, mut found) = (root(), BTreeMap::new());
    for entry in fs::read_dir(root.join("crates")).expect("a folder").flatten() {
        let mut files = Vec::new();
        rust_files(&entry.path().join("src"), &mut files);
        let mut blocks_of_crate = 0;
        for path in files {
            let source = fs::read_to_string(&path).expect("UTF-8");
            let blocks = unsafe_blocks(&source);
            blocks_of_crate += blocks;
            if blocks > 0 {
                let name = path.strip_prefix(&root).expect("below it").display().to_string();
                found.insert(name, blocks);
            }
        }
        let crate_root = ["lib.rs", "main.rs"].map(|name| entry.path().join("src").join(name));
        let crate_root = crate_root.into_iter().find(|path| path.exists()).expect("a crate");
        let forbids = fs::read_to_string(&crate_root).expect("UTF-8").contains("#![forbid(unsafe_code)]");
        assert_eq!(forbids, blocks_of_crate == 0, "{}: {blocks_of_crate} unsafe block(s)", crate_root.display());
    }
    let page = fs::read_to_string(root.join("SECURITY.md")).expect("the page");
    let listed: BTreeMap<String, usize> = (page.lines())
        .filter_map(|line| line.strip_prefix("| `crates/")?.split_once("` | "))
        .map(|(file, rest)| {
            let blocks = rest.split(' ').next().and_then(|blocks| blocks.parse().ok());
            (format!("crates/{file}"), blocks.expect("a number"))
        })
        .collect();
    assert_eq!(listed, found);
}

#[test]
fn blocks_are_counted_and_words_are_not() {
    assert_eq!(unsafe_blocks("let a = unsafe { b() }; // unsafe { c() }\n/// `unsafe {`\n    unsafe {\n"), 2);
}
