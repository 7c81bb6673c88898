//! `cargo xtask fuzz`: coverage-guided fuzzing with libFuzzer, on the stable toolchain.
//! The instrumentation is passed to LLVM, so neither nightly nor a cargo plugin is needed; checked-in corpora change only on `--minimise`.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::command::Tool;
use crate::workspace::{Package, Workspace};

const PACKAGE: &str = "verbena-fuzz";
/// The feature that enables the targets' binaries.
const FEATURE: &str = "libfuzzer";

/// Coverage counters, tables and compare hooks of libFuzzer, and checks that release builds omit.
const RUSTFLAGS: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
    "--cfg=fuzzing",
    "-Cdebug-assertions",
    "-Coverflow-checks",
    "-Ccodegen-units=1",
];

#[derive(Args)]
pub(crate) struct Options {
    /// A target, or `all` of them one after the other; without it the targets are listed
    target: Option<String>,
    /// How long to fuzz each target
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Merge what was found into the checked-in corpus, keeping only inputs that add coverage
    #[arg(long, conflicts_with = "replay")]
    minimise: bool,
    /// Run one input (a crash, say) instead of fuzzing
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// Further arguments for libFuzzer, after `--`
    #[arg(last = true)]
    rest: Vec<String>,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let package = workspace
        .package(PACKAGE)
        .with_context(|| format!("the workspace has no package {PACKAGE}"))?;
    let known = targets(package);
    let Some(wanted) = &options.target else {
        println!("fuzz targets (or `all`):");
        known.iter().for_each(|target| println!("  {target}"));
        return Ok(());
    };
    let chosen = choose(&known, wanted)?;
    if options.replay.is_some() && chosen.len() != 1 {
        bail!("--replay needs one target, not `{wanted}`");
    }
    let builder = Builder::new(workspace)?;
    if wanted == "all" && !options.minimise {
        return fuzz_all(workspace, &builder, &chosen, options);
    }
    for target in chosen {
        let folders = Folders::of(workspace, target);
        let binary = builder.build(target)?;
        fuzz(workspace, &binary, &folders, options).with_context(|| {
            format!("fuzz target `{target}`; finds are in {}", folders.artifacts)
        })?;
    }
    Ok(())
}

/// Runs each target for its time, also if others have crashed; then prints a table. libFuzzer's output goes to one file per target.
fn fuzz_all(
    workspace: &Workspace,
    builder: &Builder<'_>,
    targets: &[&String],
    options: &Options,
) -> Result<()> {
    let logs = workspace.target.join("fuzz-logs");
    std::fs::create_dir_all(&logs).with_context(|| format!("cannot create {}", logs.display()))?;
    let binaries: Vec<PathBuf> = targets
        .iter()
        .map(|target| builder.build(target))
        .collect::<Result<_>>()?;
    let (mut table, mut failed) = (Vec::new(), Vec::new());
    for (target, binary) in targets.iter().zip(&binaries) {
        let folders = Folders::of(workspace, target);
        folders.create(&workspace.root)?;
        let log = logs.join(format!("{target}.log"));
        File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let clean = fuzzer(workspace, binary, &folders, options).run_into(&log)?;
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let mut row = summary(target, &text);
        if !clean {
            row.push_str(&format!("  FIND, see {}", folders.artifacts));
            failed.push(target.as_str());
        }
        eprintln!("{row}");
        table.push(row);
    }
    println!(
        "{:16} {:>12} {:>6} {:>7}",
        "target", "executions", "cov", "ft"
    );
    table.iter().for_each(|row| println!("{row}"));
    if !failed.is_empty() {
        bail!("fuzz targets with finds: {}", failed.join(", "));
    }
    Ok(())
}

/// A row of the table: executions, edges and features, as libFuzzer printed them last.
fn summary(target: &str, log: &str) -> String {
    let after = |key: &str| {
        let (_, rest) = log.rsplit_once(key)?;
        rest.split_whitespace().next()
    };
    let of = |key| after(key).unwrap_or("-");
    format!(
        "{target:16} {:>12} {:>6} {:>7}",
        of("number_of_executed_units:"),
        of("cov: "),
        of("ft: ")
    )
}

/// The binaries that require the feature.
fn targets(package: &Package) -> Vec<String> {
    let bins = package.targets.iter().filter(|t| t.kind == ["bin"]);
    let ours = bins.filter(|t| t.required_features.iter().any(|f| f == FEATURE));
    let mut names: Vec<String> = ours.map(|t| t.name.clone()).collect();
    names.sort();
    names
}

fn choose<'a>(known: &'a [String], wanted: &str) -> Result<Vec<&'a String>> {
    if known.is_empty() {
        bail!("{PACKAGE} has no binary with required-features = [\"{FEATURE}\"]");
    }
    let chosen: Vec<&String> = known
        .iter()
        .filter(|name| wanted == "all" || *name == wanted)
        .collect();
    if chosen.is_empty() {
        bail!("no fuzz target `{wanted}`; there are: {}", known.join(", "));
    }
    Ok(chosen)
}

/// Builds instrumented binaries in a target folder of their own.
struct Builder<'a> {
    workspace: &'a Workspace,
    triple: String,
    target_dir: PathBuf,
}

impl Builder<'_> {
    fn new(workspace: &Workspace) -> Result<Builder<'_>> {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let version = Tool::new(rustc).arg("-vV").output()?;
        Ok(Builder {
            workspace,
            triple: host_triple(&version)?.to_owned(),
            target_dir: workspace.target.join("fuzz"),
        })
    }

    /// `--target` keeps the flags away from build scripts and proc macros.
    fn build(&self, target: &str) -> Result<PathBuf> {
        self.workspace
            .cargo()
            .args(["build", "--release", "--package", PACKAGE])
            .args(["--features", FEATURE, "--bin", target])
            .args(["--target", &self.triple])
            .env("CARGO_TARGET_DIR", &self.target_dir)
            .env("CARGO_ENCODED_RUSTFLAGS", RUSTFLAGS.join("\x1f"))
            // Link-time optimization takes minutes for each binary.
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env_remove("RUSTFLAGS")
            .run()?;
        let folder = self.target_dir.join(&self.triple).join("release");
        Ok(folder.join(target))
    }
}

fn host_triple(version: &str) -> Result<&str> {
    version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .context("`rustc -vV` names no host")
}

/// The folders of a target's inputs, relative to the workspace root where possible.
struct Folders {
    /// New inputs of this machine: below the target folder, not checked in.
    finds: PathBuf,
    /// The checked-in corpus that the tests replay.
    corpus: PathBuf,
    /// Prefix of crash files; libFuzzer needs the slash at its end.
    artifacts: String,
    /// Byte strings to try, such as the startup keys: comparisons of whole strings give no hints.
    dictionary: String,
}

impl Folders {
    fn of(workspace: &Workspace, target: &str) -> Folders {
        Folders {
            finds: workspace.target.join("fuzz-corpus").join(target),
            corpus: Path::new("tools/fuzz/corpus").join(target),
            artifacts: format!("tools/fuzz/artifacts/{target}/"),
            dictionary: format!("tools/fuzz/dict/{target}.dict"),
        }
    }

    fn create(&self, root: &Path) -> Result<()> {
        for folder in [&self.finds, &self.corpus, Path::new(&self.artifacts)] {
            let folder = root.join(folder);
            std::fs::create_dir_all(&folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
        }
        Ok(())
    }
}

fn fuzz(workspace: &Workspace, binary: &Path, folders: &Folders, options: &Options) -> Result<()> {
    folders.create(&workspace.root)?;
    let tool = || Tool::new(binary).current_dir(&workspace.root);
    if let Some(file) = &options.replay {
        let file = std::path::absolute(file)?;
        return tool().args(&options.rest).arg(file).run();
    }
    if options.minimise {
        // The first folder receives those inputs of the second that add coverage.
        return tool()
            .arg("-merge=1")
            .arg(format!("-artifact_prefix={}", folders.artifacts))
            .args(&options.rest)
            .args([&folders.corpus, &folders.finds])
            .run();
    }
    fuzzer(workspace, binary, folders, options).run()
}

/// libFuzzer, for the time of the options.
fn fuzzer(workspace: &Workspace, binary: &Path, folders: &Folders, options: &Options) -> Tool {
    let mut tool = Tool::new(binary).current_dir(&workspace.root);
    if workspace.root.join(&folders.dictionary).is_file() {
        tool = tool.arg(format!("-dict={}", folders.dictionary));
    }
    tool.arg(format!("-max_total_time={}", options.seconds))
        // Comparisons of less than four bytes are solved by the value profile alone.
        .arg("-use_value_profile=1")
        .arg("-print_final_stats=1")
        .arg(format!("-artifact_prefix={}", folders.artifacts))
        .args(&options.rest)
        .args([&folders.finds, &folders.corpus])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Target;

    fn target(name: &str, kind: &str, features: &[&str]) -> Target {
        Target {
            name: name.into(),
            kind: vec![kind.into()],
            required_features: features.iter().map(|&f| f.to_owned()).collect(),
        }
    }

    #[test]
    fn targets_are_the_binaries_behind_the_feature() {
        let package = Package {
            name: PACKAGE.into(),
            manifest_path: PathBuf::new(),
            dependencies: Vec::new(),
            targets: vec![
                target("startup", "bin", &[FEATURE]),
                target("rx", "bin", &[FEATURE]),
                target("seeds", "bin", &[]),
                target("verbena_fuzz", "lib", &[]),
            ],
            publish: None,
            shown: crate::workspace::Shown::default(),
        };
        assert_eq!(targets(&package), ["rx", "startup"]);
    }

    #[test]
    fn unknown_fuzz_target_is_refused() {
        let known = ["rx".to_owned(), "startup".to_owned()];
        assert_eq!(choose(&known, "rx").unwrap(), ["rx"]);
        assert_eq!(choose(&known, "all").unwrap().len(), 2);
        let error = choose(&known, "tx").unwrap_err().to_string();
        assert!(error.contains("rx, startup"), "{error}");
        assert!(choose(&[], "all").is_err());
    }

    #[test]
    fn summary_has_the_last_counts() {
        let log = "#2 INITED cov: 5 ft: 6 corp: 1\n#9 DONE   cov: 71 ft: 802 corp: 3/9b\n\
                   stat::number_of_executed_units: 900\n";
        let row: Vec<String> = summary("rx", log)
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        assert_eq!(row, ["rx", "900", "71", "802"]);
        assert!(summary("rx", "").ends_with('-'));
    }

    #[test]
    fn host_triple_is_read_from_rustc() {
        let version = "rustc 1.95.0\nbinary: rustc\nhost: aarch64-unknown-linux-gnu\n";
        assert_eq!(host_triple(version).unwrap(), "aarch64-unknown-linux-gnu");
        assert!(host_triple("rustc 1.95.0\n").is_err());
    }
}
