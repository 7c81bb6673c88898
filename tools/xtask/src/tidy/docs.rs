//! `docs/requirements.md` has exactly one row per requirement, with a valid status.
//! A row that is partial or done names its code and its test; the files it names exist, and those named as tests contain tests.
//! Whether the test proves the requirement is not checked.

use super::{Finding, TextFile};

const RULE: &str = "requirements";
const PAGE: &str = "docs/requirements.md";

/// The families, with their number of requirements.
const FAMILIES: &[(char, usize)] = &[('N', 10), ('P', 10), ('M', 22), ('V', 7), ('E', 12)];
const STATUSES: &[&str] = &["not yet", "partial", "done"];
/// id, requirement, status, code, test, missing.
const CELLS: usize = 6;
/// The folders of files that a row may name.
const FOLDERS: &[&str] = &[
    "crates/", "dropin/", "split/", "storage/", "tools/", "docs/",
];

pub(crate) fn check(files: &[TextFile], paths: &[String]) -> Vec<Finding> {
    match files.iter().find(|file| file.path == PAGE) {
        Some(page) => check_page(&page.text, files, paths),
        None => vec![Finding::new(PAGE, 0, RULE, "the page does not exist")],
    }
}

fn check_page(text: &str, files: &[TextFile], paths: &[String]) -> Vec<Finding> {
    let rows: Vec<Row> = text
        .lines()
        .enumerate()
        .filter_map(|(i, l)| Row::parse(i + 1, l))
        .collect();
    let mut findings: Vec<Finding> = rows
        .iter()
        .flat_map(|row| row.check(files, paths))
        .collect();
    for &(family, count) in FAMILIES {
        for number in 1..=count {
            let id = format!("{family}{number}");
            let of: Vec<&Row> = rows.iter().filter(|row| row.cells[0] == id).collect();
            match of.as_slice() {
                [_] => {}
                [] => findings.push(Finding::new(PAGE, 0, RULE, format!("{id} has no row"))),
                [_, again, ..] => findings.push(again.finding(format!("{id} has a second row"))),
            }
        }
    }
    findings
}

struct Row<'a> {
    line: usize,
    cells: Vec<&'a str>,
}

impl<'a> Row<'a> {
    /// A table row whose first cell looks like a requirement's id.
    fn parse(line: usize, text: &'a str) -> Option<Row<'a>> {
        let inner = text.trim().strip_prefix('|')?.strip_suffix('|')?;
        let cells: Vec<&str> = inner.split('|').map(str::trim).collect();
        let (letter, number) = cells[0].split_at_checked(1)?;
        let id = letter.chars().all(|c| c.is_ascii_uppercase()) && number.parse::<usize>().is_ok();
        id.then_some(Row { line, cells })
    }

    fn finding(&self, sentence: String) -> Finding {
        Finding::new(PAGE, self.line, RULE, sentence)
    }

    fn check(&self, files: &[TextFile], paths: &[String]) -> Vec<Finding> {
        let id = self.cells[0];
        if self.cells.len() != CELLS {
            return vec![self.finding(format!(
                "{id} has {} cells instead of {CELLS}",
                self.cells.len()
            ))];
        }
        let mut findings = Vec::new();
        if !FAMILIES
            .iter()
            .any(|&(family, count)| belongs(id, family, count))
        {
            findings.push(self.finding(format!("{id} is not a requirement")));
        }
        let status = self.cells[2];
        if !STATUSES.contains(&status) {
            findings.push(self.finding(format!(
                "{id} has the status `{status}`, not one of: {}",
                STATUSES.join(", ")
            )));
        }
        if status != "not yet" && (self.cells[3].is_empty() || self.cells[4].is_empty()) {
            findings.push(self.finding(format!(
                "{id} is {status} and must name its code and its test"
            )));
        }
        if status == "partial" && self.cells[5].is_empty() {
            findings.push(self.finding(format!("{id} is partial and must say what is missing")));
        }
        for name in named_files(self.cells[3]).chain(named_files(self.cells[4])) {
            if !paths.iter().any(|path| is_within(path, name)) {
                findings.push(self.finding(format!("{id} names `{name}`, which does not exist")));
            }
        }
        for name in named_files(self.cells[4]) {
            let within = files.iter().filter(|file| is_within(&file.path, name));
            if !within.clone().any(has_tests) && within.count() > 0 {
                let sentence =
                    format!("{id} names `{name}` as its test, but there is no test in it");
                findings.push(self.finding(sentence));
            }
        }
        findings
    }
}

fn is_within(path: &str, name: &str) -> bool {
    let rest = path.strip_prefix(name.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn has_tests(file: &TextFile) -> bool {
    ["#[test]", "proptest!"]
        .iter()
        .any(|mark| file.code.contains(mark))
}

fn belongs(id: &str, family: char, count: usize) -> bool {
    let number = id
        .strip_prefix(family)
        .and_then(|n| n.parse::<usize>().ok());
    number.is_some_and(|n| (1..=count).contains(&n))
}

/// Text between backticks that begins like one of our folders; a `::name` behind it is dropped.
fn named_files(cell: &str) -> impl Iterator<Item = &str> {
    let quoted = cell.split('`').skip(1).step_by(2);
    let ours = quoted.filter(|text| FOLDERS.iter().any(|folder| text.starts_with(folder)));
    ours.map(|text| text.split("::").next().unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page in which every requirement has its row.
    fn page() -> String {
        let mut text = String::from(
            "# Requirements\n\n| id | requirement | status | code | test | missing |\n| --- | --- | --- | --- | --- | --- |\n",
        );
        for &(family, count) in FAMILIES {
            for number in 1..=count {
                text += &format!("| {family}{number} | words | not yet | | | all |\n");
            }
        }
        text
    }

    fn sentences(text: &str) -> Vec<String> {
        let files = [
            TextFile::new("crates/wire/src/ddp.rs", "#[test]\nfn wraps() {}\n"),
            TextFile::new("crates/wire/src/mpa.rs", "// #[test]\n"),
        ];
        let paths: Vec<String> = files.iter().map(|file| file.path.clone()).collect();
        check_page(text, &files, &paths)
            .into_iter()
            .map(|f| f.sentence)
            .collect()
    }

    #[test]
    fn complete_requirements_page_passes() {
        assert_eq!(sentences(&page()), [""; 0]);
    }

    #[test]
    fn missing_and_repeated_rows_are_found() {
        let text = page().replace("| M7 | words", "| M8 | words");
        assert_eq!(sentences(&text), ["M7 has no row", "M8 has a second row"]);
    }

    #[test]
    fn unknown_requirement_is_found() {
        let text = page() + "| M23 | words | not yet | | | |\n| Q1 | w | not yet | | | |\n";
        assert_eq!(
            sentences(&text),
            ["M23 is not a requirement", "Q1 is not a requirement"]
        );
    }

    #[test]
    fn statuses_are_words_from_the_list() {
        let text = page().replace("| N1 | words | not yet", "| N1 | words | nearly");
        assert!(sentences(&text)[0].contains("`nearly`"));
    }

    #[test]
    fn done_row_names_existing_code_and_test() {
        let row = |cells: &str| page().replace("| N1 | words | not yet | | | all |", cells);
        let good = "| N1 | words | done | `crates/wire/src/ddp.rs` | `crates/wire`, `crates/wire/src/ddp.rs::wraps` | |";
        assert_eq!(sentences(&row(good)), [""; 0]);
        let bare = "| N1 | words | done | | | |";
        assert_eq!(
            sentences(&row(bare)),
            ["N1 is done and must name its code and its test"]
        );
        let gone = "| N1 | words | partial | `crates/wire` | `crates/gone` | rest |";
        assert_eq!(
            sentences(&row(gone)),
            ["N1 names `crates/gone`, which does not exist"]
        );
        let hollow = "| N1 | words | done | `crates/wire` | `crates/wire/src/mpa.rs` | |";
        assert_eq!(
            sentences(&row(hollow)),
            ["N1 names `crates/wire/src/mpa.rs` as its test, but there is no test in it"]
        );
        let silent = "| N1 | words | partial | `crates/wire` | `crates/wire` | |";
        assert_eq!(
            sentences(&row(silent)),
            ["N1 is partial and must say what is missing"]
        );
    }

    #[test]
    fn a_row_has_six_cells() {
        let text = page().replace(
            "| N1 | words | not yet | | | all |",
            "| N1 | words | not yet |",
        );
        assert_eq!(sentences(&text), ["N1 has 3 cells instead of 6"]);
    }

    #[test]
    fn missing_page_is_found() {
        assert_eq!(check(&[], &[]).len(), 1);
    }
}
