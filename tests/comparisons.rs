//! Tests that compare numbers fail on what is not a number.

use std::fs;
use std::path::Path;

use crate::unsafe_code::{root, rust_files};

/// Lines that look for the largest of some values in a way that passes over what is not a number: `f32::max` and `f64::max`
/// prefer any number, so that a difference of NaN is a difference of 0.
fn deaf_lines(source: &str) -> Vec<usize> {
    let deaf = |line: &str| {
        let code = line.split("//").next().unwrap_or_default();
        let from = ["fold(", "reduce("].iter().filter_map(|start| code.find(start)).min();
        from.is_some_and(|from| ["f32::max)", "f64::max)"].iter().any(|end| code[from..].contains(end)))
    };
    (1..).zip(source.lines()).filter(|(_, line)| deaf(line)).map(|(number, _)| number).collect()
}

#[test]
fn no_test_passes_over_what_is_not_a_number() {
    let (root, mut files) = (root(), Vec::new());
    rust_files(&root.join("tests"), &mut files);
    rust_files(&root.join("crates"), &mut files);
    let mut found = Vec::new();
    for path in files {
        let source = fs::read_to_string(&path).expect("UTF-8");
        let whole = path.components().any(|part| part.as_os_str() == "tests") || path.ends_with(Path::new("tests.rs"));
        // In other files the tests come last, unless they are in a file of their own.
        let lines: Vec<&str> = source.lines().map(str::trim).collect();
        let begins = |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].ends_with('{');
        let tests_from = if whole { Some(0) } else { lines.windows(2).position(begins) };
        let lines = deaf_lines(&source).into_iter().filter(|&line| tests_from.is_some_and(|from| line > from));
        // This file has examples of them.
        let lines = lines.filter(|_| !path.ends_with("comparisons.rs"));
        found.extend(lines.map(|line| format!("{}:{line}", path.display())));
    }
    assert!(found.is_empty(), "`.max_by(f32::total_cmp)` knows that NaN is the largest of all: {found:?}");
}

#[test]
fn deaf_lines_are_known() {
    for deaf in ["x.fold(0.0, f32::max);", "x.fold(0f32, f32::max)", "x.fold(f64::MIN, f64::max)", "x.reduce(f64::max)"]
    {
        assert_eq!(deaf_lines(deaf), [1], "{deaf}");
    }
    assert!(deaf_lines("x.max_by(f32::total_cmp)\n// fold(0.0, f32::max)").is_empty());
    assert_eq!([f32::NAN, 1.0].into_iter().max_by(f32::total_cmp).map(f32::is_nan), Some(true));
}
