//! Why a program cannot be started on Verbena. Messages name the folders searched, or the option and its valid values. Errors of the
//! program itself are not among them.

use core::fmt;
use std::io;
use std::path::PathBuf;

use verbena::config::{ConfigErrors, SettingOrigin};

use super::files::NEEDED;

/// The reason.
#[derive(Debug)]
pub enum Error {
    /// The libraries are in none of these folders.
    NoLibraries(Vec<PathBuf>),
    /// The folder's name contains the separator of `LD_LIBRARY_PATH`.
    Separator(PathBuf),
    /// `--set` without an equals sign.
    NoValue(String),
    /// `--set` with a name that is no setting.
    NoSetting(String),
    /// The libraries could not be mounted over the system's: the step, and the system's error.
    Namespace(String, io::Error),
    /// Settings that the adapter would reject.
    Settings {
        /// The variables that came from options.
        ours: Vec<String>,
        /// The problems, with these or with others.
        problems: ConfigErrors,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoLibraries(folders) => {
                let names = NEEDED.join(", ");
                write!(f, "{names} are not together in any of:")?;
                for folder in folders {
                    write!(f, " {}", folder.display())?;
                }
                f.write_str("; build them with `cargo xtask dropin`, or name their folder with `--libs DIR`")
            }
            Error::Separator(folder) => write!(
                f,
                "the dynamic linker cannot search {}: its path contains a colon or semicolon, which separates folders",
                folder.display()
            ),
            Error::NoValue(text) => write!(f, "--set {text}: expected key=value"),
            Error::NoSetting(key) => write!(
                f,
                "--set {key}: unknown setting; the file is named by VERBENA_CONFIG"
            ),
            Error::Namespace(what, error) => write!(
                f,
                "--namespace: {what}: {error}; without that option, programs that the dynamic linker loads need no namespace"
            ),
            Error::Settings { ours, problems } => {
                for (at, problem) in problems.iter().enumerate() {
                    let between = if at == 0 { "" } else { "\n" };
                    match &problem.origin {
                        SettingOrigin::Environment(name) if ours.contains(name) => {
                            let (key, value) = (&problem.key, &problem.value);
                            write!(f, "{between}--set {key}={value}: {}", problem.remedy)?;
                        }
                        _ => write!(f, "{between}{problem}")?,
                    }
                }
                Ok(())
            }
        }
    }
}

impl core::error::Error for Error {}
