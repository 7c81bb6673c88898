//! `cargo xtask loom`: runs the models of lock-free code, which try every interleaving of their threads.
//! They are built separately, because one flag changes every crate; only the packages listed here have models.

use anyhow::Result;
use clap::Args;

use crate::command::Tool;
use crate::workspace::Workspace;

/// Packages with models, and the module of the library's tests that holds them.
const MODELS: &[(&str, &str)] = &[
    ("verbena-mem", "slot::tests::model"),
    ("verbena-ring", "tests::model"),
    ("verbena-sync", "ring::tests::model"),
    ("verbena-sync", "combining_lock::tests::model"),
    ("verbena-events", "eq::tests::model"),
    ("verbena-events", "interrupts::tests::model"),
    ("verbena-nic", "qp::queue::tests::model"),
    ("verbena-nic", "cq::tests::model"),
    ("verbena-models", "owner::tests::model"),
];

/// Preemptions per execution: bugs need few, and each additional one multiplies the time.
const PREEMPTIONS: u32 = 3;

#[derive(Args)]
pub(crate) struct Options {
    /// Preemptions per execution, at most (loom's preemption bound)
    #[arg(long, default_value_t = PREEMPTIONS)]
    preemptions: u32,
    /// Only models whose name begins with this
    filter: Option<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            preemptions: PREEMPTIONS,
            filter: None,
        }
    }
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    models(workspace, MODELS, options).run()
}

/// The step of `cargo xtask test`.
pub(crate) fn test(workspace: &Workspace) -> Tool {
    models(workspace, MODELS, &Options::default())
}

fn build(workspace: &Workspace, models: &[(&str, &str)]) -> Tool {
    let mut packages: Vec<&str> = models.iter().map(|(package, _)| *package).collect();
    packages.dedup();
    let packages = packages.into_iter().flat_map(|p| ["--package", p]);
    workspace
        .cargo_with_cfg("loom")
        .args(["test", "--release", "--lib"])
        .args(packages)
}

/// All at once: each package alone needs other features, and shared dependencies would be built again.
fn models(workspace: &Workspace, models: &[(&str, &str)], options: &Options) -> Tool {
    let filter = options.filter.as_deref().unwrap_or_default();
    let modules = models
        .iter()
        .map(|(_, module)| format!("{module}::{filter}"));
    build(workspace, models)
        .arg("--")
        .args(modules)
        .env("LOOM_MAX_PREEMPTIONS", options.preemptions.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace() -> Workspace {
        Workspace::load().unwrap()
    }

    #[test]
    fn every_package_with_models_exists() {
        let workspace = workspace();
        for (package, _) in MODELS {
            let found = workspace.packages.iter().any(|p| p.name == *package);
            assert!(found, "{package}");
        }
    }

    /// With a renamed module no model would run, and none would fail.
    #[test]
    fn every_module_of_models_exists() {
        let workspace = workspace();
        for (package, module) in MODELS {
            let found = workspace.packages.iter().find(|p| p.name == *package);
            let mut path = found.unwrap().manifest_path.with_file_name("src");
            let (files, last) = module.rsplit_once("::").unwrap();
            if *package == "verbena-models" {
                // Its modules are files of other crates.
                let (first, _) = files.split_once("::").unwrap();
                let text = std::fs::read_to_string(path.join("lib.rs")).unwrap();
                let (before, _) = text.split_once(&format!("mod {first};")).unwrap();
                let (_, named) = before.rsplit_once("#[path = \"").unwrap();
                let (named, _) = named.split_once('"').unwrap();
                path = path.join(named).parent().unwrap().to_path_buf();
            }
            path.extend(files.split("::"));
            let text = std::fs::read_to_string(path.with_extension("rs")).unwrap();
            assert!(text.contains(&format!("mod {last} {{")), "{module}");
        }
    }

    #[test]
    fn only_the_listed_models_run() {
        let models = [("p", "m"), ("q", "n"), ("q", "o")];
        let tool = super::models(&workspace(), &models, &Options::default());
        let shown = "test --release --lib --package p --package q -- m:: n:: o::";
        assert!(tool.shown().ends_with(shown), "{}", tool.shown());
    }
}
