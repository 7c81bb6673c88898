//! The environment with which a program runs on Verbena instead of a real adapter (docs/dropin.md). Settings are checked before the
//! program starts, and existing values of the variables are kept. This process is not changed: the result is a list of variables.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use verbena::Config;

use self::error::Error;
use self::files::{AUDIT, NEEDED, SHIM, SOCKETS};

pub mod error;
mod files;
pub mod namespace;
pub mod shell;

/// Where the dynamic linker looks first.
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
/// What the dynamic linker loads before anything else.
const PRELOAD: &str = "LD_PRELOAD";

/// Libraries that the dynamic linker consults about the location of others (rtld-audit).
const AUDITORS: &str = "LD_AUDIT";
/// Settings of programs whose defaults only work with mlx5 adapters; values in the environment take precedence.
///
/// * NCCL 2.28 looks for functions of mlx5 adapters, and fails internally if there are none, unless this is 0.
/// * UCX's strong fence reads from the peer with the key 0xff, which is invalid on other adapters. The weak one orders requests by their
///   queue pair.
const PROGRAMS: [(&str, &str); 2] = [("NCCL_GIN_TYPE", "0"), ("UCX_FENCE_MODE", "weak")];

/// What is loaded into the program besides the libraries and the shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extras {
    /// Replaces its TCP sockets by rsockets.
    pub sockets: bool,
    /// Redirects copies of the libraries that it bundles, or opens by a path, to ours.
    pub audit: bool,
}

/// One variable and its value.
pub type Variable = (OsString, OsString);

/// The folder with the drop-in libraries, known to hold them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Libraries {
    folder: PathBuf,
}

impl Libraries {
    /// In the folder `named`; if `None`, near the command: beside it, in the source tree's target folder, or where `cargo xtask install` puts
    /// them.
    pub fn find(named: Option<&Path>, command: &Path) -> Result<Libraries, Error> {
        let candidates = match named {
            Some(folder) => vec![folder.to_owned()],
            None => candidate_folders(command),
        };
        let complete = |folder: &&PathBuf| NEEDED.iter().all(|name| folder.join(name).is_file());
        let Some(found) = candidates.iter().find(complete) else {
            return Err(Error::NoLibraries(candidates));
        };
        // A program may change its working directory before it loads a library.
        let folder = std::path::absolute(found).unwrap_or_else(|_| found.clone());
        if folder
            .as_os_str()
            .as_bytes()
            .iter()
            .any(|b| b":;".contains(b))
        {
            return Err(Error::Separator(folder));
        }
        Ok(Libraries { folder })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The variables that make the dynamic linker use this folder; `now` returns their present values, which are kept.
    pub fn variables(
        &self,
        extras: Extras,
        now: impl Fn(&str) -> Option<OsString>,
    ) -> Vec<Variable> {
        let path = prepended(self.folder.as_os_str(), now(LIBRARY_PATH));
        let mut preload = now(PRELOAD);
        let sockets = [SOCKETS].into_iter().filter(|_| extras.sockets);
        for name in sockets.chain([SHIM]) {
            let library = self.folder.join(name).into_os_string();
            // Here a blank is a separator, too; the bare name is found through the other variable.
            let blank = library.as_bytes().iter().any(u8::is_ascii_whitespace);
            let library = if blank { name.into() } else { library };
            preload = Some(prepended(&library, preload));
        }
        let preload = preload.unwrap_or_default();
        let mut all = vec![(LIBRARY_PATH.into(), path), (PRELOAD.into(), preload)];
        if extras.audit {
            let library = self.folder.join(AUDIT).into_os_string();
            all.push((AUDITORS.into(), prepended(&library, now(AUDITORS))));
        }
        let unsaid = PROGRAMS.iter().filter(|(name, _)| now(name).is_none());
        all.extend(unsaid.map(|(name, value)| (name.into(), value.into())));
        all
    }
}

/// Folders where the libraries can be, relative to the command.
fn candidate_folders(command: &Path) -> Vec<PathBuf> {
    let Some(folder) = command.parent() else {
        return Vec::new();
    };
    let mut all = vec![folder.to_owned()];
    if let Some(above) = folder.parent() {
        all.push(above.join("dropin"));
        all.push(above.join("lib").join("verbena"));
    }
    all
}

/// Puts `first` before the present value, unless it is first already; an empty entry would mean the working directory.
fn prepended(first: &OsStr, was: Option<OsString>) -> OsString {
    let Some(was) = was.filter(|was| !was.is_empty()) else {
        return first.to_owned();
    };
    if was.as_bytes().split(|b| *b == b':').next() == Some(first.as_bytes()) {
        return was;
    }
    let mut all = first.to_owned();
    all.push(":");
    all.push(was);
    all
}

/// Settings from the command line: key and value, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestedSettings(Vec<(String, String)>);

impl RequestedSettings {
    /// Adds one; a later one for the same key replaces it.
    pub fn add(&mut self, key: &str, value: &str) {
        let key = key.to_ascii_lowercase();
        self.0.retain(|(old, _)| *old != key);
        self.0.push((key, value.to_owned()));
    }

    /// Adds one, as `key=value`.
    pub fn add_text(&mut self, text: &str) -> Result<(), Error> {
        let (key, value) = text
            .split_once('=')
            .ok_or_else(|| Error::NoValue(text.to_owned()))?;
        self.add(key, value);
        Ok(())
    }

    /// The variables of the settings, after a check that the adapter accepts them together with the rest of its configuration.
    pub fn variables(
        &self,
        environment: impl IntoIterator<Item = Variable>,
    ) -> Result<Vec<Variable>, Error> {
        let ours: Vec<Variable> = self
            .0
            .iter()
            .map(|(key, value)| (variable_name(key), value.into()))
            .collect();
        // The variable that names the configuration file is no setting.
        if let Some((key, _)) = self.0.iter().find(|(key, _)| key == "config") {
            return Err(Error::NoSetting(key.clone()));
        }
        let others = environment.into_iter();
        let others = others.filter(|(name, _)| ours.iter().all(|(mine, _)| mine != name));
        let all: Vec<Variable> = others.chain(ours.iter().cloned()).collect();
        Config::from_variables(all).map_err(|problems| Error::Settings {
            ours: ours
                .iter()
                .map(|(name, _)| name.to_string_lossy().into())
                .collect(),
            problems,
        })?;
        Ok(ours)
    }
}

fn variable_name(key: &str) -> OsString {
    format!("VERBENA_{}", key.to_ascii_uppercase()).into()
}

#[cfg(test)]
mod tests;
