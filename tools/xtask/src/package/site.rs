//! The documentation as a web site, made from `docs` by mdBook. Links that leave `docs` lead to the repository, so they are rewritten to its
//! address in a copy; the pages of the tree are not changed.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::{copy, emptied, files_below, write};
use crate::command::{Tool, find};
use crate::workspace::Workspace;

/// Where links lead that leave `docs`; the address in `Cargo.toml`.
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

pub(super) fn build(workspace: &Workspace, out: &Path) -> Result<()> {
    if find("mdbook").is_none() {
        bail!("mdbook is not on PATH; `cargo install mdbook` builds it in some minutes");
    }
    let book = book(workspace, out)?;
    let site = out.join("site");
    Tool::new("mdbook")
        .arg("build")
        .arg("--dest-dir")
        .args([&site, &book])
        .run()?;
    println!("The site is in {}.", site.display());
    Ok(())
}

/// The folder that mdBook reads: a copy of the pages and of `book.toml`.
fn book(workspace: &Workspace, out: &Path) -> Result<PathBuf> {
    let book = out.join("book");
    emptied(&book)?;
    let docs = workspace.root.join("docs");
    for name in files_below(&docs)? {
        let (from, to) = (docs.join(&name), book.join("docs").join(&name));
        if name.extension().is_some_and(|end| end == "md") {
            let text = std::fs::read_to_string(&from)
                .with_context(|| format!("cannot read {}", from.display()))?;
            write(&to, &outward(&text, &name), 0o644)?;
        } else {
            copy(&from, &to, 0o644)?;
        }
    }
    std::fs::rename(book.join("docs/book.toml"), book.join("book.toml"))?;
    Ok(book)
}

/// The text of a page with absolute addresses for links that leave the folder.
fn outward(text: &str, page: &Path) -> String {
    // One step up for each folder that the page is in, and one more.
    let depth = page.components().count();
    let up = format!("]({}", "../".repeat(depth));
    text.replace(&up, &format!("]({REPOSITORY}/blob/main/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_that_leave_docs_are_rewritten() {
        let text = "[a](other.md) [b](../README.md) [c](https://example.net)";
        let rewritten = outward(text, Path::new("page.md"));
        let expected =
            format!("[a](other.md) [b]({REPOSITORY}/blob/main/README.md) [c](https://example.net)");
        assert_eq!(rewritten, expected);
        let inner = outward(
            "[a](../roce.md) [b](../../README.md)",
            Path::new("performance/peers.md"),
        );
        assert_eq!(
            inner,
            format!("[a](../roce.md) [b]({REPOSITORY}/blob/main/README.md)")
        );
    }
}
