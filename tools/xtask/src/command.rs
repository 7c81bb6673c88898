//! Runs other programs to their end (those that must be watched meanwhile are in `clients/process.rs`).
//! A [`Tool`] prints the command it runs and turns a non-zero exit into an error that names the program.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// A program with its arguments, not yet started.
pub(crate) struct Tool {
    program: OsString,
    command: Command,
}

impl Tool {
    /// A program found through `PATH`, or by its path.
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Tool {
        let program = program.as_ref().to_owned();
        Tool {
            command: Command::new(&program),
            program,
        }
    }

    /// The cargo that runs this program, so that the toolchain is the same.
    pub(crate) fn cargo() -> Tool {
        let mut cargo = Tool::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        for name in std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()) {
            // Of this package, by `cargo run`. Build scripts of others look at theirs, and would run again whenever cargo and xtask take turns.
            if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
                cargo = cargo.env_remove(&name);
            }
        }
        cargo
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Tool {
        self.command.arg(arg);
        self
    }

    pub(crate) fn args<I: IntoIterator<Item: AsRef<OsStr>>>(mut self, args: I) -> Tool {
        self.command.args(args);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Tool {
        self.command.env(name, value);
        self
    }

    pub(crate) fn env_remove(mut self, name: &str) -> Tool {
        self.command.env_remove(name);
        self
    }

    pub(crate) fn current_dir(mut self, dir: &Path) -> Tool {
        self.command.current_dir(dir);
        self
    }

    /// With the lowest priority: it takes only the time of processors that have nothing else to do.
    pub(crate) fn in_idle_time(self) -> Tool {
        let command = &self.command;
        let mut nice = Command::new("nice");
        nice.args(["-n", "19"])
            .arg(&self.program)
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => nice.env(name, value),
                None => nice.env_remove(name),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            nice.current_dir(folder);
        }
        Tool {
            program: "nice".into(),
            command: nice,
        }
    }

    /// The command as typed in a shell, without the environment.
    pub(crate) fn shown(&self) -> String {
        let program = Path::new(&self.program);
        let name = program.file_name().unwrap_or(program.as_os_str());
        let mut shown = name.to_string_lossy().into_owned();
        for arg in self.command.get_args() {
            shown.push(' ');
            shown.push_str(&quoted(&arg.to_string_lossy()));
        }
        shown
    }

    /// Prints it and runs it with our own input and output; an exit code other than 0 is an error.
    pub(crate) fn run(self) -> Result<()> {
        eprintln!("$ {}", self.shown());
        self.run_quietly()
    }

    /// As [`Tool::run`], without printing the command.
    pub(crate) fn run_quietly(mut self) -> Result<()> {
        let status = self
            .command
            .status()
            .with_context(|| format!("cannot start `{}`", self.program.to_string_lossy()))?;
        if !status.success() {
            bail!("`{}` ended with {status}", self.shown());
        }
        Ok(())
    }

    /// Prints it and runs it with all its output at the end of a file; returns whether it succeeded.
    pub(crate) fn run_into(mut self, file: &Path) -> Result<bool> {
        eprintln!("$ {} >> {}", self.shown(), file.display());
        let open = File::options().append(true).create(true).open(file);
        let out = open.with_context(|| format!("cannot open {}", file.display()))?;
        let err = out.try_clone().context("cannot clone a descriptor")?;
        let status = self.command.stdout(out).stderr(err).status();
        let status =
            status.with_context(|| format!("cannot start `{}`", self.program.to_string_lossy()))?;
        Ok(status.success())
    }

    /// Runs it and returns its standard output.
    pub(crate) fn output(mut self) -> Result<String> {
        let output = self
            .command
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("cannot start `{}`", self.program.to_string_lossy()))?;
        if !output.status.success() {
            bail!("`{}` ended with {}", self.shown(), output.status);
        }
        String::from_utf8(output.stdout)
            .with_context(|| format!("`{}` printed something that is not UTF-8", self.shown()))
    }
}

/// An argument, quoted for a shell.
pub(crate) fn quoted(arg: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+@%".contains(c);
    if !arg.is_empty() && arg.chars().all(plain) {
        arg.to_owned()
    } else {
        format!("'{}'", arg.replace('\'', "'\\''"))
    }
}

/// The path of a program in the given `PATH` value, if it is there.
pub(crate) fn find_in(path: &OsStr, program: &str) -> Option<PathBuf> {
    std::env::split_paths(path)
        .map(|dir| dir.join(program))
        .find(|candidate| candidate.is_file())
}

/// The path of a program in our own `PATH`.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    find_in(&std::env::var_os("PATH")?, program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_keeps_arguments_and_environment() {
        let tool = Tool::new("cargo").arg("doc").env("A", "1").env_remove("B");
        let idle = tool.current_dir(Path::new("/")).in_idle_time();
        assert_eq!(idle.shown(), "nice -n 19 cargo doc");
        let set: Vec<_> = idle.command.get_envs().collect();
        assert_eq!(
            set,
            [("A".as_ref(), Some("1".as_ref())), ("B".as_ref(), None)]
        );
        assert_eq!(idle.command.get_current_dir(), Some(Path::new("/")));
    }

    #[test]
    fn a_command_is_shown_as_typed() {
        let tool = Tool::new("/usr/bin/tool").args(["-n", "two words", "it's", ""]);
        assert_eq!(tool.shown(), r"tool -n 'two words' 'it'\''s' ''");
    }

    #[test]
    fn a_bad_exit_names_the_command() {
        let error = Tool::new("false").run_quietly().unwrap_err();
        assert!(error.to_string().contains("`false`"), "{error}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = Tool::new("no-such-program-here").run_quietly().unwrap_err();
        assert!(error.to_string().contains("no-such-program-here"));
    }

    #[test]
    fn output_is_added_to_the_file() {
        let file = std::env::temp_dir().join(format!("xtask-output-{}", std::process::id()));
        for word in ["one", "two"] {
            assert!(Tool::new("echo").arg(word).run_into(&file).unwrap());
        }
        assert!(!Tool::new("false").run_into(&file).unwrap());
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(text, "one\ntwo\n");
    }

    #[test]
    fn output_is_returned() {
        let text = Tool::new("echo").arg("hello").output().unwrap();
        assert_eq!(text, "hello\n");
    }

    #[test]
    fn program_is_searched_on_the_given_path() {
        assert!(find_in(OsStr::new("/nowhere:/bin:/usr/bin"), "sh").is_some());
        assert!(find_in(OsStr::new("/nowhere"), "sh").is_none());
    }
}
