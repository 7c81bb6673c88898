//! Replays every checked-in input through its target: the corpora, and the regressions, inputs that a target once failed on.
//! It also checks that targets, folders and binaries match.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use verbena_fuzz::{TARGETS, Target};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files of a folder, or none if it does not exist.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Runs all files of a folder and returns how many there are.
fn replay(target: &Target, folder: &Path) -> usize {
    let files = files(&folder.join(target.name));
    for file in &files {
        let data = fs::read(file).unwrap();
        let ran = catch_unwind(AssertUnwindSafe(|| (target.run)(&data)));
        assert!(ran.is_ok(), "{} breaks on {}", target.name, file.display());
    }
    files.len()
}

#[test]
fn every_corpus_replays_without_failure() {
    for target in TARGETS {
        let count = replay(target, &root().join("corpus"));
        assert!(count > 0, "the corpus of {} is empty", target.name);
    }
}

#[test]
fn every_regression_replays_without_failure() {
    for target in TARGETS {
        replay(target, &root().join("regressions"));
    }
}

/// A folder that no target reads would never be replayed.
#[test]
fn every_folder_belongs_to_a_target() {
    for kind in ["corpus", "regressions"] {
        for folder in files(&root().join(kind)) {
            let name = folder.file_name().unwrap().to_str().unwrap();
            assert!(
                TARGETS.iter().any(|t| t.name == name),
                "{kind}/{name} has no target"
            );
        }
    }
}

/// `cargo xtask fuzz` finds targets by their binaries.
#[test]
fn every_target_has_a_binary() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert_eq!(manifest.matches("[[bin]]").count(), TARGETS.len());
    for target in TARGETS {
        let line = format!("path = \"fuzz_targets/{}.rs\"", target.name);
        assert!(manifest.contains(&line), "{} has no binary", target.name);
        assert!(
            root()
                .join(format!("fuzz_targets/{}.rs", target.name))
                .is_file()
        );
    }
}
