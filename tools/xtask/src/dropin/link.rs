//! Cargo builds a static library, and gcc links shared ones from it: rustc's own linking has no symbol versions (docs/dropin.md).
//! It links only if an input has changed, and replaces a library atomically, so that running programs keep the old one.
//! Without a C compiler it fails before anything is built.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::exports::Exports;
use super::{
    ALIASES, AUDIT, LIBIBVERBS, LIBRARIES, LIBRDMACM, PRELOAD, SHIM, UNMAP, folder, sources,
};
use crate::command::{Tool, find};
use crate::workspace::Workspace;

/// Options of every library. `nodelete`: our threads must keep their code when a program calls dlclose.
const SHARED: &[&str] = &[
    "-shared",
    "-Wl,-z,relro,-z,now,-z,nodelete",
    "-Wl,--no-undefined",
    "-Wl,--no-undefined-version",
    "-Wl,-Bsymbolic-functions",
];
const SYSTEM: &[&str] = &[
    "-Wl,--as-needed",
    "-lgcc_s",
    "-lpthread",
    "-ldl",
    "-lm",
    "-lc",
];

/// What the libraries are linked from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Build {
    /// The optimised build that is installed.
    Release,
    /// A build with all checks.
    Debug,
    /// The same, out of the build of all tests: it shares every crate with them.
    Tests,
}

pub(super) struct Linker<'a> {
    workspace: &'a Workspace,
    gcc: PathBuf,
    build: Build,
    /// The static library of libibverbs and librdmacm.
    capi: PathBuf,
    /// Intermediate files.
    work: PathBuf,
}

impl<'a> Linker<'a> {
    pub(super) fn new(workspace: &'a Workspace, build: Build) -> Result<Linker<'a>> {
        let gcc = find("gcc").or_else(|| find("cc"));
        let gcc = gcc.context(
            "the drop-in libraries are linked by a C compiler, and neither `gcc` nor `cc` is on PATH; \
             on Debian: apt-get install gcc libc6-dev",
        )?;
        for tool in ["nm", "readelf"] {
            let missing =
                || format!("`{tool}` is not on PATH; on Debian: apt-get install binutils");
            find(tool).with_context(missing)?;
        }
        let profile = match build {
            Build::Release => "dropin",
            Build::Debug | Build::Tests => "debug",
        };
        Ok(Linker {
            workspace,
            gcc,
            build,
            capi: workspace.target.join(profile).join("libverbena_capi.a"),
            work: workspace.target.join("dropin-work"),
        })
    }

    /// Builds the static libraries.
    pub(super) fn compile(&mut self) -> Result<()> {
        let build = |command, profile| {
            let cargo = self.workspace.cargo();
            let package = ["--package", "verbena-capi"];
            cargo.args([command, "--profile", profile]).args(package)
        };
        match self.build {
            // Cargo optimizes across crates only if it builds no Rust library as well.
            Build::Release => build("rustc", "dropin")
                .args(["--lib", "--crate-type", "staticlib"])
                .run()?,
            Build::Debug => build("build", "dev").run()?,
            Build::Tests => self.capi = tested_library(self.workspace)?,
        }
        self.workspace
            .cargo()
            .args(["build", "--profile", self.preload_profile()])
            .args(["--package", "verbena-shim", "--package", "verbena-preload"])
            .args(["--package", "verbena-audit", "--package", "verbena-unmap"])
            .run()
    }

    /// The profile of the libraries without an adapter: panics abort.
    fn preload_profile(&self) -> &'static str {
        match self.build {
            Build::Release => "dropin-preload",
            Build::Debug | Build::Tests => "dropin-dev-preload",
        }
    }

    fn archive(&self, crate_name: &str) -> PathBuf {
        if crate_name == "verbena_capi" {
            return self.capi.clone();
        }
        let folder = self.workspace.target.join(self.preload_profile());
        folder.join(format!("lib{crate_name}.a"))
    }

    /// Global names that the Rust library defines. By readelf: nm would pass the objects to a compiler's plug-in, if the
    /// machine has one, and such a plug-in cannot read those of a newer compiler.
    pub(super) fn defined(&self) -> Result<BTreeSet<String>> {
        let text = Tool::new("readelf")
            .args(["--wide", "--symbols"])
            .arg(self.archive("verbena_capi"))
            .output()?;
        Ok(text.lines().filter_map(global).map(str::to_owned).collect())
    }

    /// Links the shared libraries, unless they are newer than all their inputs.
    pub(super) fn link(
        &self,
        verbs: &Exports,
        cm: &Exports,
        own: &[String],
        missing: &[String],
    ) -> Result<()> {
        let (work, out) = (&self.work, folder(self.workspace));
        for folder in [work, &out] {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
        }
        let arch = std::env::consts::ARCH;
        let mut changed = false;
        for (name, text) in [
            (
                "profile",
                format!("{:?} {}", self.build, self.capi.display()),
            ),
            ("libibverbs.map", sources::script(verbs, own)),
            ("libibverbs.s", sources::aliases(verbs, arch)?),
            ("librdmacm.map", sources::script(cm, &[])),
            ("librdmacm.s", sources::forwarder(cm, arch)?),
            ("fallbacks.c", sources::fallbacks(missing)),
            ("alias.map", "{ local: *; };\n".to_owned()),
            (
                "alias.s",
                ".section .note.GNU-stack,\"\",%progbits\n".to_owned(),
            ),
        ] {
            changed |= write_if_changed(&work.join(name), &text)?;
        }
        let shim_map = self.workspace.root.join("dropin/shim/exports.map");
        let preload_map = self.workspace.root.join("dropin/preload/exports.map");
        let unmap_map = self.workspace.root.join("dropin/unmap/exports.map");
        let audit_map = self.workspace.root.join("dropin/audit/exports.map");
        // This program too: the link commands are part of it.
        let inputs = [
            self.archive("verbena_capi"),
            self.archive("verbena_shim"),
            self.archive("verbena_preload"),
            self.archive("verbena_audit"),
            self.archive("verbena_unmap"),
            shim_map.clone(),
            unmap_map.clone(),
            audit_map.clone(),
            preload_map.clone(),
            std::env::current_exe()?,
        ];
        let outputs: Vec<PathBuf> = LIBRARIES.iter().map(|name| out.join(name)).collect();
        if !changed && !is_older(&outputs, &inputs) {
            println!("Nothing changed since they were linked.");
            return Ok(());
        }
        self.libibverbs()?;
        self.librdmacm()?;
        self.preloaded(SHIM, "verbena_shim", &shim_map)?;
        self.preloaded(PRELOAD, "verbena_preload", &preload_map)?;
        self.preloaded(UNMAP, "verbena_unmap", &unmap_map)?;
        self.audit(&audit_map)?;
        for name in ALIASES {
            self.alias(name)?;
        }
        for (name, path) in LIBRARIES.iter().zip(&outputs) {
            std::fs::rename(work.join(name), path)
                .with_context(|| format!("cannot move {name} to {}", out.display()))?;
        }
        Ok(())
    }

    fn gcc(&self, name: &str, map: &Path) -> Tool {
        Tool::new(&self.gcc)
            .current_dir(&self.work)
            .args(SHARED)
            .args(["-o", name])
            .arg(format!("-Wl,-soname,{name}"))
            .arg(format!("-Wl,--version-script={}", map.display()))
    }

    fn whole(&self, tool: Tool, crate_name: &str) -> Tool {
        tool.arg("-Wl,--whole-archive")
            .arg(self.archive(crate_name))
            .args(["-Wl,--no-whole-archive", "-Wl,--gc-sections"])
    }

    fn libibverbs(&self) -> Result<()> {
        let tool = self.gcc(LIBIBVERBS, Path::new("libibverbs.map")).args([
            "-fPIC",
            "libibverbs.s",
            "fallbacks.c",
        ]);
        self.whole(tool, "verbena_capi").args(SYSTEM).run()
    }

    /// Only jumps, so neither C library nor start files.
    fn librdmacm(&self) -> Result<()> {
        self.gcc(LIBRDMACM, Path::new("librdmacm.map"))
            .args(["-nostdlib", "-nostartfiles", "librdmacm.s"])
            .arg(format!("./{LIBIBVERBS}"))
            .run()
    }

    /// No C library: the dynamic linker would load a second one for it. Members of the archive that need one are not pulled in, or
    /// linking fails.
    fn audit(&self, map: &Path) -> Result<()> {
        self.gcc(AUDIT, map)
            .args(["-s", "-nostdlib", "-nostartfiles"])
            .args(["-Wl,-u,la_version", "-Wl,-u,la_objsearch"])
            .arg(self.archive("verbena_audit"))
            .arg("-Wl,--gc-sections")
            .run()
    }

    /// No code at all: a lookup of symbols finds those of the libraries that it needs.
    fn alias(&self, name: &str) -> Result<()> {
        self.gcc(name, Path::new("alias.map"))
            .args(["-s", "-nostdlib", "-nostartfiles", "alias.s"])
            .args(["-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN"])
            .arg(format!("./{LIBIBVERBS}"))
            .arg(format!("./{LIBRDMACM}"))
            .run()
    }

    fn preloaded(&self, name: &str, crate_name: &str, map: &Path) -> Result<()> {
        // Without symbols and line numbers, most of which are those of the standard library.
        let tool = self.gcc(name, map).arg("-s");
        self.whole(tool, crate_name).args(SYSTEM).run()
    }
}

/// The name in a line such as `  7: 0000000000000000    12 FUNC    GLOBAL DEFAULT    4 name`, unless it is undefined.
fn global(line: &str) -> Option<&str> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        [_, _, _, _, "GLOBAL", "DEFAULT", section, name] if *section != "UND" => Some(name),
        _ => None,
    }
}

/// Returns whether the file had to be written.
fn write_if_changed(path: &Path, text: &str) -> Result<bool> {
    if std::fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(false);
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(true)
}

/// Whether an output is missing or older than some input.
fn is_older(outputs: &[PathBuf], inputs: &[PathBuf]) -> bool {
    let time = |path: &PathBuf| path.metadata().and_then(|m| m.modified()).ok();
    let newest: Option<SystemTime> = inputs.iter().filter_map(time).max();
    let oldest = outputs.iter().map(time).min().flatten();
    oldest.is_none_or(|oldest| newest.is_none_or(|newest| oldest < newest))
}

/// The static library that was compiled with the tests.
fn tested_library(workspace: &Workspace) -> Result<PathBuf> {
    let tool = workspace
        .cargo()
        .args(["test", "--workspace", "--no-run"])
        .arg("--message-format=json-render-diagnostics");
    eprintln!("$ {}", tool.shown());
    library_in(&tool.output()?)
}

/// A line of what `cargo --message-format=json` prints, reduced to what we use.
#[derive(Deserialize)]
struct Message {
    target: Option<Target>,
    #[serde(default)]
    filenames: Vec<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

fn library_in(messages: &str) -> Result<PathBuf> {
    for line in messages.lines() {
        let message: Message = serde_json::from_str(line)
            .with_context(|| format!("cannot parse a message of cargo: {line}"))?;
        if message
            .target
            .is_some_and(|target| target.name == "verbena_capi")
        {
            let mut files = message.filenames.into_iter();
            if let Some(file) = files.find(|file| file.extension().is_some_and(|end| end == "a")) {
                return Ok(file);
            }
        }
    }
    bail!("the tests were built without the static library of verbena-capi")
}

#[cfg(test)]
mod tests {
    use core::slice;

    use super::*;

    #[test]
    fn only_defined_global_symbols_count() {
        let line = |rest: &str| format!("    12: 0000000000000000    24 FUNC    {rest}");
        let global = |rest: &str| global(&line(rest)).map(str::to_owned);
        assert_eq!(global("GLOBAL DEFAULT    5 f"), Some("f".to_owned()));
        assert_eq!(global("GLOBAL DEFAULT  UND f"), None);
        assert_eq!(global("GLOBAL HIDDEN     5 f"), None);
        assert_eq!(global("LOCAL  DEFAULT    5 f"), None);
    }

    #[test]
    fn library_is_found_among_cargo_messages() {
        let named = |name: &str, files: &str| {
            format!(r#"{{"reason":"x","target":{{"name":"{name}"}},"filenames":[{files}]}}"#)
        };
        let test = named("verbena_capi", r#""/t/verbena_capi-1""#);
        let library = named(
            "verbena_capi",
            r#""/t/libverbena_capi.rlib","/t/libverbena_capi.a""#,
        );
        let other = named("verbena_shim", r#""/t/libverbena_shim.a""#);
        let end = r#"{"reason":"build-finished","success":true}"#.to_owned();
        let text = [test.clone(), other, library, end.clone()].join("\n");
        assert_eq!(
            library_in(&text).unwrap(),
            Path::new("/t/libverbena_capi.a")
        );
        assert!(library_in(&[test, end].join("\n")).is_err());
    }

    #[test]
    fn missing_or_older_output_is_rebuilt() {
        let folder = std::env::temp_dir().join(format!("xtask-link-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (first, second) = (folder.join("first"), folder.join("second"));
        assert!(write_if_changed(&first, "a").unwrap());
        assert!(!write_if_changed(&first, "a").unwrap());
        assert!(
            is_older(slice::from_ref(&second), slice::from_ref(&first)),
            "missing"
        );
        assert!(write_if_changed(&second, "b").unwrap());
        let later = SystemTime::now() + std::time::Duration::from_secs(9);
        let touch = |path| std::fs::File::options().append(true).open(path).unwrap();
        touch(&second).set_modified(later).unwrap();
        assert!(!is_older(slice::from_ref(&second), slice::from_ref(&first)));
        assert!(is_older(&[first], &[second]));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
