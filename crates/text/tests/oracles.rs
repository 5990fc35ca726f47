//! Against other implementations: numbers by num2words, Persian characters by hazm. The files are made by
//! `scripts/oracles/text.py`.

use tandem_text::{numbers, persian};

fn rows(file: &str) -> Vec<Vec<String>> {
    // Asked for when it runs: the folder may have moved since it was built.
    let folder = std::env::var("CARGO_MANIFEST_DIR").expect("run by cargo");
    let path = format!("{folder}/tests/data/{file}");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

#[test]
fn numbers_are_those_of_num2words() {
    let rows = rows("numbers.tsv");
    assert!(rows.len() > 250);
    for row in rows {
        let number: u64 = row[0].parse().expect("a number");
        assert_eq!(numbers::english(number), row[1]);
        assert_eq!(numbers::english_ordinal(number), row[2]);
        assert_eq!(numbers::persian(number), row[3]);
    }
    for row in self::rows("years.tsv") {
        let year: u64 = row[0].parse().expect("a year");
        assert_eq!(numbers::english_year(year), row[1], "{year}");
    }
}

#[test]
fn persian_characters_are_those_of_hazm() {
    let rows = rows("hazm.tsv");
    assert!(rows.len() >= 20);
    for row in rows {
        assert_eq!(persian::characters(&row[0]), row[1], "{}", row[0]);
    }
}
