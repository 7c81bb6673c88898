//! Manual pages, completions and help topics, as packages and users get them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

fn verbena(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_verbena"))
        .args(args)
        .output()
        .expect("the command starts")
}

/// A folder with what `verbena generate` writes, removed on drop.
struct Generated(PathBuf);

impl Generated {
    fn new() -> Generated {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("verbena-generated-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let output = verbena(&["generate", folder.to_str().expect("a path in UTF-8")]);
        assert!(output.status.success(), "{output:?}");
        Generated(folder)
    }

    fn names(&self, of: &str) -> BTreeSet<String> {
        let entries = std::fs::read_dir(self.0.join(of)).expect("the folder exists");
        let name = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        entries
            .map(|entry| name(entry.expect("an entry")))
            .collect()
    }
}

impl Drop for Generated {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The commands that a help text lists.
fn listed(help: &[&str]) -> Vec<String> {
    let output = verbena(help);
    let text = String::from_utf8(output.stdout).expect("text");
    let lines = text.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    // Further lines of a description are indented deeper.
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let first = |line: &str| line.split_whitespace().next().map(str::to_owned);
    names.filter_map(first).collect()
}

/// Runs a program on a file; `None` if the machine does not have the program.
fn checked(program: &str, args: &[&str], file: &Path) -> Option<()> {
    let output = Command::new(program).args(args).arg(file).output().ok()?;
    assert!(
        output.status.success(),
        "{program} {}: {output:?}",
        file.display()
    );
    Some(())
}

#[test]
fn every_command_has_a_manual_page() {
    let generated = Generated::new();
    let pages = generated.names("man");
    let commands = listed(&["--help"]);
    assert!(commands.len() >= 13, "{commands:?}");
    for command in &commands {
        assert!(pages.contains(&format!("verbena-{command}.1")), "{command}");
    }
    for command in listed(&["iscsi", "--help"])
        .iter()
        .filter(|name| *name != "help")
    {
        assert!(
            pages.contains(&format!("verbena-iscsi-{command}.1")),
            "{command}"
        );
    }
    assert!(pages.contains("verbena.1") && !pages.contains("verbena-generate.1"));
    for page in &pages {
        let path = generated.0.join("man").join(page);
        let text = std::fs::read_to_string(&path).expect("a page");
        assert!(
            text.contains(".SH NAME") && text.contains(".SH SYNOPSIS"),
            "{page}"
        );
        checked("mandoc", &["-T", "lint", "-W", "error"], &path);
    }
    let run = std::fs::read_to_string(generated.0.join("man/verbena-run.1")).expect("a page");
    assert!(run.contains("\n  verbena run \\-\\-personality"), "{run}");
}

#[test]
fn completions_are_valid_and_name_commands() {
    let generated = Generated::new();
    let folder = generated.0.join("completions");
    for (file, shell) in [
        ("verbena.bash", "bash"),
        ("_verbena", "zsh"),
        ("verbena.fish", "fish"),
    ] {
        let path = folder.join(file);
        let text = std::fs::read_to_string(&path).expect("completions");
        for word in ["devinfo", "decode", "personality"] {
            assert!(text.contains(word), "{file}: {word}");
        }
        checked(shell, &["-n"], &path);
    }
}

#[test]
fn help_shows_commands_and_pages() {
    let said = |args: &[&str]| String::from_utf8(verbena(args).stdout).expect("text");
    assert_eq!(said(&["help", "run"]), said(&["run", "--help"]));
    assert_eq!(said(&["help"]), said(&["--help"]));
    assert_eq!(
        said(&["help", "iscsi", "read"]),
        said(&["iscsi", "read", "--help"])
    );
    assert!(said(&["help", "settings"]).contains("VERBENA_CONFIG"));
    assert!(said(&["help", "wires"]).contains("4791"));
    assert!(said(&["help", "programs"]).contains("verbena run"));
}

#[test]
fn unknown_topic_is_refused_with_the_pages() {
    for (args, unknown) in [
        (["help", "gone"].as_slice(), "gone"),
        (&["help", "iscsi", "x"], "x"),
    ] {
        let output = verbena(args);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            said.contains(&format!("`{unknown}`")) && said.contains("settings"),
            "{said}"
        );
    }
}
