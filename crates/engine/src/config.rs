//! All settings with their source: default, file, environment or program call.
//! An unknown key or a bad value is a [`ConfigError`] that says what is accepted; none is ignored. Only [`Config::load`] and
//! [`Config::from_variables`] read files or the environment; the rest is computed from its arguments (docs/configuration.md).
//!
//! Reading order: [`settings`] (the list of keys) → [`keywords`], [`device`], [`peers`], [`key`], `networks`, `presents` (types of values) →
//! `form` (their text form) → `file` (TOML) → [`peer_settings`] (the settings for one peer) → [`problem`].

use core::fmt;
use core::ops::Deref;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub mod device;
mod file;
mod form;
pub mod key;
pub mod keywords;
mod networks;
pub mod peer_settings;
pub mod peers;
pub mod port;
mod presents;
pub mod problem;
pub mod settings;
pub(crate) mod units;

pub use device::Device;
pub use key::Key;
pub use keywords::{Acknowledge, Choice, EventMemory, Fpdu, Log, Profile, Routing, TlsMode, Wire};
pub use networks::Networks;
pub use peers::Peers;
pub use port::{PortLink, PortSetting};
pub use problem::{ConfigError, ConfigErrors, SettingOrigin};
pub use settings::Settings;

use settings::KEYS;

/// Prefix of the environment variables that are settings.
const PREFIX: &str = "VERBENA_";
/// Names the configuration file; not a setting.
const CONFIG: &str = "VERBENA_CONFIG";
/// A password for the command `verbena iscsi`; not a setting.
const ISCSI_PASSWORD: &str = "VERBENA_ISCSI_PASSWORD";

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// It was not set.
    Default,
    /// The file, on this line.
    File(usize),
    /// An environment variable.
    Environment,
    /// The program, by a call.
    Call,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::File(line) => write!(f, "file, line {line}"),
            Source::Environment => f.write_str("environment"),
            Source::Call => f.write_str("call"),
        }
    }
}

/// A configuration file: its name, for messages, and its text.
#[derive(Debug, Clone, Copy)]
pub struct File<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its text, in TOML.
    pub text: &'a str,
}

/// One line of [`Config::describe`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The name.
    pub key: &'static str,
    /// The value, as it could be written in the environment; a secret only says that it is set.
    pub value: String,
    /// Where it comes from.
    pub source: Source,
}

/// The settings and their sources. Dereferences to [`Settings`].
#[derive(Debug, Clone)]
pub struct Config {
    settings: Settings,
    sources: [Source; KEYS.len()],
}

impl Default for Config {
    fn default() -> Config {
        Config {
            settings: Settings::default(),
            sources: [Source::Default; KEYS.len()],
        }
    }
}

impl Deref for Config {
    type Target = Settings;

    fn deref(&self) -> &Settings {
        &self.settings
    }
}

impl Config {
    /// The defaults overridden by the file, and that by the environment. Variables without the prefix are ignored.
    pub fn from_parts<'a>(
        file: Option<File<'_>>,
        environment: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Config, ConfigErrors> {
        let mut config = Config::default();
        let mut problems = ConfigErrors::default();
        for entry in file.map(|file| file::entries(&file)).into_iter().flatten() {
            let outcome = entry.and_then(|e| config.put(&e.key, &e.value, e.source(), e.origin));
            problems.record(outcome);
        }
        for (name, value) in environment {
            let setting = ![CONFIG, ISCSI_PASSWORD].contains(&name);
            if let Some(key) = name.strip_prefix(PREFIX).filter(|_| setting) {
                let key = key.to_ascii_lowercase();
                let origin = SettingOrigin::Environment(name.to_owned());
                problems.record(config.put(&key, value, Source::Environment, origin));
            }
        }
        problems.extend(config.settings.contradictions());
        problems.into_result(config)
    }

    /// The settings of this process's environment and of the user's file (docs/configuration.md). A program with more
    /// privileges than its caller (`AT_SECURE`) gets the defaults, because the caller controls the environment.
    pub fn load() -> Result<Config, ConfigErrors> {
        if crate::sys::is_privileged() {
            return Ok(Config::default());
        }
        Config::from_variables(std::env::vars_os())
    }

    /// What [`Config::load`] returns in a process with this environment.
    pub fn from_variables(
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Config, ConfigErrors> {
        // Bytes that are not UTF-8 become U+FFFD, which `put` rejects.
        let text = |s: OsString| s.to_string_lossy().into_owned();
        let environment: Vec<(String, String)> = variables
            .into_iter()
            .map(|(name, value)| (text(name), text(value)))
            .collect();
        let find = |name: &str| {
            let found = environment.iter().find(|(n, v)| n == name && !v.is_empty());
            found.map(|(_, value)| value.as_str())
        };
        let place = config_path(find);
        let read = place.as_ref().map(|(path, named)| read(path, *named));
        let read = read.transpose()?.flatten();
        let file = read.as_ref().map(|(name, text)| File { name, text });
        let pairs = environment.iter().map(|(n, v)| (n.as_str(), v.as_str()));
        Config::from_parts(file, pairs)
    }

    /// Sets one value by name, on behalf of the program.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), ConfigErrors> {
        let mut changed = self.clone();
        let mut problems = ConfigErrors::default();
        problems.record(changed.put(key, value, Source::Call, SettingOrigin::Call));
        problems.extend(changed.settings.contradictions());
        *self = problems.into_result(changed)?;
        Ok(())
    }

    /// Sets any values, on behalf of the program; all or, if one of them is bad, none.
    pub fn change(&mut self, change: impl FnOnce(&mut Settings)) -> Result<(), ConfigErrors> {
        let mut changed = self.clone();
        change(&mut changed.settings);
        let mut problems = ConfigErrors::default();
        for (key, source) in KEYS.iter().zip(&mut changed.sources) {
            if !(key.same)(&self.settings, &changed.settings) {
                *source = Source::Call;
                // A value that `set` does not accept in its text form is out of range.
                let value = (key.show)(&changed.settings);
                if !(key.set)(&mut changed.settings.clone(), &value) {
                    let problem =
                        ConfigError::invalid(key.name, &value, SettingOrigin::Call, (key.wants)());
                    problems.record(Err(problem));
                }
            }
        }
        problems.extend(changed.settings.contradictions());
        *self = problems.into_result(changed)?;
        Ok(())
    }

    /// Every setting, in the order of the list.
    pub fn describe(&self) -> Vec<Row> {
        let rows = KEYS.iter().zip(&self.sources);
        rows.map(|(key, &source)| Row {
            key: key.name,
            value: (key.show)(&self.settings),
            source,
        })
        .collect()
    }

    /// Where this setting comes from; none if there is no such setting.
    pub fn source(&self, key: &str) -> Option<Source> {
        let at = KEYS.iter().position(|k| k.name == key)?;
        self.sources.get(at).copied()
    }

    fn put(
        &mut self,
        name: &str,
        value: &str,
        source: Source,
        origin: SettingOrigin,
    ) -> Result<(), ConfigError> {
        let mut all = KEYS.iter().zip(&mut self.sources);
        let Some((key, noted)) = all.find(|(key, _)| key.name == name) else {
            return Err(ConfigError::unknown(name, origin));
        };
        let readable = !value.contains(char::REPLACEMENT_CHARACTER);
        // Blanks may be part of a secret.
        let text = if key.secret { value } else { value.trim() };
        if !readable || !(key.set)(&mut self.settings, text) {
            // The message contains neither a secret nor a value of the file, because not every reader of the message may read the file.
            let shown = match origin {
                _ if key.secret => "(hidden)",
                SettingOrigin::File(..) => "…",
                _ => value,
            };
            return Err(ConfigError::invalid(name, shown, origin, (key.wants)()));
        }
        *noted = source;
        Ok(())
    }
}

/// The path of the file, and whether `VERBENA_CONFIG` named it.
fn config_path<'a>(find: impl Fn(&str) -> Option<&'a str>) -> Option<(PathBuf, bool)> {
    if let Some(named) = find(CONFIG) {
        return Some((PathBuf::from(named), true));
    }
    // The XDG base directory specification requires that relative paths are ignored.
    let xdg = find("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    let folder = xdg.or_else(|| Some(Path::new(find("HOME")?).join(".config")))?;
    Some((folder.join("verbena").join("config.toml"), false))
}

/// The name and the text of the file; none if it is absent and was not named.
fn read(path: &Path, named: bool) -> Result<Option<(String, String)>, ConfigErrors> {
    use std::io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    let name = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some((name, text))),
        // An inaccessible home directory of another user counts as one without the file.
        Err(error)
            if !named && matches!(error.kind(), NotFound | NotADirectory | PermissionDenied) =>
        {
            Ok(None)
        }
        Err(error) => Err(ConfigErrors::from(ConfigError::unreadable(&name, &error))),
    }
}

#[cfg(test)]
mod tests;
