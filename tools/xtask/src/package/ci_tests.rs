//! The steps of the GitHub action, run with the files that GitHub gives them, and the script lines of the GitLab template.

use std::path::{Path, PathBuf};

use super::copy;
use super::stage::tests::empty_stage;
use crate::command::Tool;
use crate::workspace::Workspace;

/// An archive with the install script and a command that only answers.
fn archive(test: &str) -> (PathBuf, PathBuf) {
    let root = empty_stage(test);
    let named = root.join("verbena-0-test");
    std::fs::rename(root.join("stage"), &named).unwrap();
    let script = Workspace::load().unwrap().root.join("packaging/install.sh");
    copy(&script, &named.join("install.sh"), 0o755).unwrap();
    let path = root.join("archive.tar.gz");
    Tool::new("tar")
        .arg("-czf")
        .arg(&path)
        .arg("-C")
        .arg(&root)
        .arg("verbena-0-test")
        .run_quietly()
        .unwrap();
    (root, path)
}

/// The lines of the action with `run:` and those of its `env:`, in which inputs are replaced.
fn steps(action: &str, inputs: &[(&str, &str)]) -> (Vec<String>, Vec<(String, String)>) {
    let mut runs = Vec::new();
    let mut environment = Vec::new();
    for line in action.lines().map(str::trim) {
        let Some((key, value)) = line.split_once(": ") else {
            continue;
        };
        if key == "run" {
            runs.push(value.to_owned());
        } else if let Some(input) = value.strip_prefix("${{ inputs.") {
            let input = input.trim_end_matches(" }}");
            assert!(
                action.contains(&format!("\n  {input}:\n")),
                "{input} is no input"
            );
            let given = inputs.iter().find(|(name, _)| *name == input);
            environment.push((
                key.to_owned(),
                given.map_or("", |(_, value)| value).to_owned(),
            ));
        }
    }
    (runs, environment)
}

/// Runs all steps of the action; returns what it wrote to the three files, or its error.
fn run_action(root: &Path, inputs: &[(&str, &str)]) -> anyhow::Result<[String; 3]> {
    let folder = Workspace::load()
        .unwrap()
        .root
        .join(".github/actions/setup-verbena");
    let action = std::fs::read_to_string(folder.join("action.yml")).unwrap();
    let (runs, environment) = steps(&action, inputs);
    assert_eq!(runs.len(), action.matches("shell: bash").count());
    let files = ["GITHUB_PATH", "GITHUB_ENV", "GITHUB_OUTPUT"];
    for file in files {
        std::fs::write(root.join(file), "").unwrap();
    }
    for run in runs {
        let mut tool = Tool::new("bash").args(["-e", "-o", "pipefail", "-c", &run]);
        for file in files {
            tool = tool.env(file, root.join(file));
        }
        for (name, value) in &environment {
            tool = tool.env(name, value);
        }
        tool.env("GITHUB_ACTION_PATH", &folder)
            .env("RUNNER_TEMP", root.join("runner"))
            .output()?;
    }
    Ok(files.map(|file| std::fs::read_to_string(root.join(file)).unwrap()))
}

#[test]
fn action_installs_and_exports_the_path() {
    let (root, archive) = archive("action");
    let archive = archive.display().to_string();
    let [path, environment, output] = run_action(&root, &[("archive", &archive)]).unwrap();
    let prefix = root.join("runner/verbena");
    assert!(prefix.join("lib/verbena/libibverbs.so.1").is_file());
    assert_eq!(path, format!("{}/bin\n", prefix.display()));
    assert_eq!(environment, "");
    assert_eq!(
        output,
        format!("libraries={}/lib/verbena\n", prefix.display())
    );
    std::fs::remove_dir_all(&root).unwrap();
}

#[test]
fn action_exports_the_environment_on_request() {
    let (root, archive) = archive("action-all");
    let archive = archive.display().to_string();
    let inputs = [("archive", archive.as_str()), ("every-step", "true")];
    let [_, environment, _] = run_action(&root, &inputs).unwrap();
    let lines: Vec<&str> = environment.lines().collect();
    assert!(
        lines[0].starts_with("LD_LIBRARY_PATH=") && lines[0].ends_with(" with blanks"),
        "{environment}"
    );
    assert_eq!(lines[1..], ["UCX_FENCE_MODE=weak"]);
    std::fs::remove_dir_all(&root).unwrap();
}

#[test]
fn action_refuses_missing_and_wrong_archives() {
    let (root, archive) = archive("action-wrong");
    assert!(run_action(&root, &[("archive", "/nowhere/verbena.tar.gz")]).is_err());
    let archive = archive.display().to_string();
    let wrong = "0".repeat(64);
    assert!(run_action(&root, &[("archive", &archive), ("sha256", &wrong)]).is_err());
    assert!(!root.join("runner/verbena/bin").exists());
    let sum = Tool::new("sha256sum").arg(&archive).output().unwrap();
    let sum = sum.split(' ').next().unwrap();
    run_action(&root, &[("archive", &archive), ("sha256", sum)]).unwrap();
    std::fs::remove_dir_all(&root).unwrap();
}

#[test]
fn gitlab_script_lines_are_valid_shell() {
    let root = Workspace::load().unwrap().root;
    let template = std::fs::read_to_string(root.join("packaging/gitlab/verbena.yml")).unwrap();
    let lines = template
        .lines()
        .filter_map(|line| line.strip_prefix("    - "));
    let script: Vec<&str> = lines.collect();
    assert!(script.len() >= 4, "{script:?}");
    Tool::new("sh")
        .args(["-n", "-c", &script.join("\n")])
        .output()
        .unwrap();
}
