//! The table of contents of the documentation site, `docs/SUMMARY.md`, lists every page of `docs` once. mdBook leaves out pages that it does
//! not list. Whether its links lead somewhere is checked with those of all pages.

use super::{Finding, TextFile};

const RULE: &str = "summary";
const SUMMARY: &str = "docs/SUMMARY.md";

pub(crate) fn check(files: &[TextFile]) -> Vec<Finding> {
    let Some(summary) = files.iter().find(|file| file.path == SUMMARY) else {
        return vec![Finding::new(SUMMARY, 0, RULE, "the page does not exist")];
    };
    let pages = files.iter().filter_map(|file| {
        let name = file.path.strip_prefix("docs/")?;
        (name.ends_with(".md") && file.path != SUMMARY).then_some(name)
    });
    let finding = |name| match summary.text.matches(&format!("]({name})")).count() {
        1 => None,
        count => Some(Finding::new(
            SUMMARY,
            0,
            RULE,
            format!("`{name}` is listed {count} times"),
        )),
    };
    pages.filter_map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_listed_once() {
        let page = |name: &str| TextFile::new(name, "# A page\n");
        let text = "- [A](a.md)\n- [B](b/c.md)\n- [B](b/c.md)\n";
        let files = [
            TextFile::new(SUMMARY, text),
            page("docs/a.md"),
            page("docs/b/c.md"),
            page("docs/d.md"),
            page("README.md"),
        ];
        let sentences: Vec<String> = check(&files).into_iter().map(|f| f.sentence).collect();
        assert_eq!(
            sentences,
            ["`b/c.md` is listed 2 times", "`d.md` is listed 0 times"]
        );
        assert_eq!(check(&files[1..]).len(), 1);
    }
}
