//! Relative links between Markdown files are valid: the file or folder is in the repository, and so is the heading if they name one.
//! External links are not checked, because a test must not need a network.
//! Inline links, `[text](target)`, outside of code are checked.

use super::{Finding, TextFile};

const RULE: &str = "links";

pub(crate) fn check(files: &[TextFile], paths: &[String]) -> Vec<Finding> {
    let pages: Vec<&TextFile> = files
        .iter()
        .filter(|file| file.path.ends_with(".md"))
        .collect();
    let mut findings = Vec::new();
    for page in &pages {
        for (line, link) in links(&page.text) {
            if let Err(sentence) = resolve(&page.path, link, &pages, paths) {
                findings.push(Finding::new(&page.path, line, RULE, sentence));
            }
        }
    }
    findings
}

fn resolve(page: &str, link: &str, pages: &[&TextFile], paths: &[String]) -> Result<(), String> {
    let outside = link.contains("://") || link.starts_with("mailto:");
    if outside {
        return Ok(());
    }
    let (file, heading) = link.split_once('#').unwrap_or((link, ""));
    let target = if file.is_empty() {
        page.to_owned()
    } else {
        join(page, file)
    };
    let folder = format!("{target}/");
    let exists = target.is_empty() || paths.iter().any(|p| *p == target || p.starts_with(&folder));
    if !exists {
        return Err(format!(
            "the link `{link}` is broken: there is no `{target}`"
        ));
    }
    let known = pages.iter().find(|page| page.path == target);
    match known {
        Some(known) if !heading.is_empty() && !headings(&known.text).any(|h| h == heading) => Err(
            format!("the link `{link}` is broken: `{target}` has no such heading"),
        ),
        _ => Ok(()),
    }
}

/// A link's path relative to the repository's root.
fn join(page: &str, link: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// Lines outside fenced code, with their numbers from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((index + 1, line))
    })
}

fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        for (at, _) in line.match_indices("](") {
            let in_code = line[..at].matches('`').count() % 2 == 1;
            if let Some((target, _)) = line[at + 2..].split_once(')')
                && !in_code
            {
                let target = target.split_whitespace().next().unwrap_or("");
                found.push((number, target.trim_matches(['<', '>'])));
            }
        }
    }
    found
}

/// The anchors of a page's headings, as Git forges generate them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    prose(text).filter_map(|(_, line)| {
        let title = line.trim_start_matches('#');
        let heading = title.len() < line.len() && title.starts_with(' ');
        heading.then(|| anchor(title.trim()))
    })
}

fn anchor(title: &str) -> String {
    let lower = title.to_lowercase();
    let kept = lower
        .chars()
        .filter(|&c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentences(text: &str) -> Vec<String> {
        let files = [
            TextFile::new("docs/page.md", text),
            TextFile::new("docs/other.md", "# A title, with `code`\n"),
        ];
        let paths = [
            "docs/page.md",
            "docs/other.md",
            "README.md",
            "crates/wire/src/lib.rs",
        ];
        let paths: Vec<String> = paths.iter().map(|&p| p.to_owned()).collect();
        check(&files, &paths)
            .into_iter()
            .map(|f| f.sentence)
            .collect()
    }

    #[test]
    fn good_links_pass() {
        let text = "# Here\n[a](other.md) [b](../README.md) [c](../crates/wire) [d](#here)\n\
                    [e](other.md#a-title-with-code) [f](https://example.org/x) [g](..)\n";
        assert_eq!(sentences(text), [""; 0]);
    }

    #[test]
    fn broken_links_are_found() {
        assert!(sentences("[a](gone.md)")[0].contains("no `docs/gone.md`"));
        assert!(sentences("[a](README.md)")[0].contains("no `docs/README.md`"));
        assert!(sentences("[a](other.md#gone)")[0].contains("no such heading"));
        assert!(sentences("[a](#gone)")[0].contains("no such heading"));
    }

    #[test]
    fn links_in_code_are_ignored() {
        assert_eq!(
            sentences("`[a](gone.md)`\n```\n[b](gone.md)\n# not a heading\n```\n"),
            [""; 0]
        );
    }

    #[test]
    fn finding_names_the_line_of_the_link() {
        let page = TextFile::new("a.md", "x\n\n[a](gone)\n");
        assert_eq!(check(&[page], &[])[0].line, 3);
    }
}
