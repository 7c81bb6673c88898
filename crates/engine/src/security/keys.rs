//! The shared keys of the settings `key` and `key_file`: the first one signs, and any of them is accepted.
//! Several are set while keys are being replaced (docs/connections.md). Without any, nothing is proven.

use core::fmt;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::config::key::{MAX_KEY, MIN_KEY};
use crate::config::{Key, Settings};
use crate::sys;

/// Keys in one file.
const MAX_KEYS: usize = 16;
/// Permission bits of group and others.
const GROUP_AND_OTHERS: u32 = 0o077;

/// Why a file with keys or certificates cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFileError {
    setting: &'static str,
    path: PathBuf,
    why: KeyFileProblem,
}

impl KeyFileError {
    /// The content of the file is invalid.
    pub(crate) fn content(
        setting: &'static str,
        path: &Path,
        error: impl fmt::Display,
    ) -> KeyFileError {
        KeyFileError {
            setting,
            path: path.to_owned(),
            why: KeyFileProblem::Content(error.to_string()),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum KeyFileProblem {
    Unreadable(String),
    NotRegularFile,
    Owner(u32),
    Permissions(u32),
    KeyLength(usize),
    Empty,
    TooMany,
    TooLong(usize),
    Content(String),
}

impl fmt::Display for KeyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (setting, path) = (self.setting, self.path.display());
        write!(f, "setting `{setting}`: {path} ")?;
        match &self.why {
            KeyFileProblem::Unreadable(error) => write!(f, "cannot be read: {error}"),
            KeyFileProblem::NotRegularFile => f.write_str("is no ordinary file"),
            KeyFileProblem::Owner(owner) => {
                write!(
                    f,
                    "belongs to user {owner}, and not to the user of this program or root"
                )
            }
            KeyFileProblem::Permissions(mode) => write!(
                f,
                "has the mode {mode:o}, which lets users other than its owner access it: chmod 600 {path}"
            ),
            KeyFileProblem::KeyLength(line) => write!(
                f,
                "has another number of bytes than {MIN_KEY} to {MAX_KEY} in line {line}: expected one key per line"
            ),
            KeyFileProblem::Empty => f.write_str("has no key in it: expected one key per line"),
            KeyFileProblem::TooMany => write!(f, "has more than {MAX_KEYS} keys in it"),
            KeyFileProblem::TooLong(most) => write!(f, "has more than {most} bytes"),
            KeyFileProblem::Content(error) => write!(f, "cannot be used: {error}"),
        }
    }
}

impl core::error::Error for KeyFileError {}

/// Shared keys.
#[derive(Debug, Default)]
pub(crate) struct Keys(Vec<Key>);

impl Keys {
    /// The keys of the settings.
    pub(crate) fn load(settings: &Settings) -> Result<Keys, KeyFileError> {
        let of_settings = settings.key.iter().cloned();
        let of_file = match &settings.key_file {
            Some(path) => read(path).map_err(|why| KeyFileError {
                setting: "key_file",
                path: path.clone(),
                why,
            })?,
            None => Vec::new(),
        };
        Ok(Keys(of_settings.chain(of_file).collect()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The key that signs.
    pub(crate) fn first(&self) -> Option<&Key> {
        self.0.first()
    }

    /// All keys that are accepted.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Key> {
        self.0.iter()
    }
}

impl From<Vec<Key>> for Keys {
    fn from(keys: Vec<Key>) -> Keys {
        Keys(keys)
    }
}

fn read(path: &Path) -> Result<Vec<Key>, KeyFileProblem> {
    let bytes = contents(path, MAX_KEYS * (MAX_KEY + 2), true).map_err(|why| match why {
        KeyFileProblem::TooLong(_) => KeyFileProblem::TooMany,
        why => why,
    })?;
    let mut keys = Vec::new();
    for (at, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if !line.is_empty() {
            keys.push(Key::new(line).ok_or(KeyFileProblem::KeyLength(at + 1))?);
        }
    }
    match keys.len() {
        0 => Err(KeyFileProblem::Empty),
        n if n > MAX_KEYS => Err(KeyFileProblem::TooMany),
        _ => Ok(keys),
    }
}

/// Reads the file of a setting, of at most `most` bytes. For a secret file, owner and mode are checked first.
pub(crate) fn read_file(
    setting: &'static str,
    path: &Path,
    most: usize,
    secret: bool,
) -> Result<Vec<u8>, KeyFileError> {
    contents(path, most, secret).map_err(|why| KeyFileError {
        setting,
        path: path.to_owned(),
        why,
    })
}

fn contents(path: &Path, most: usize, secret: bool) -> Result<Vec<u8>, KeyFileProblem> {
    let unreadable = |error: std::io::Error| KeyFileProblem::Unreadable(error.to_string());
    // Without waiting for a writer, if the name stands for a pipe.
    let open = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path);
    let mut file = open.map_err(unreadable)?;
    // Metadata of the open file, not of the path, which may be replaced in between.
    let metadata = file.metadata().map_err(unreadable)?;
    if secret {
        check_owner_and_mode(&metadata)?;
    } else if !metadata.is_file() {
        return Err(KeyFileProblem::NotRegularFile);
    }
    let mut bytes = Vec::new();
    let read = file.by_ref().take(most as u64 + 1).read_to_end(&mut bytes);
    read.map_err(unreadable)?;
    if bytes.len() > most {
        return Err(KeyFileProblem::TooLong(most));
    }
    Ok(bytes)
}

fn check_owner_and_mode(file: &Metadata) -> Result<(), KeyFileProblem> {
    if !file.is_file() {
        return Err(KeyFileProblem::NotRegularFile);
    }
    if file.uid() != sys::effective_uid() && file.uid() != 0 {
        return Err(KeyFileProblem::Owner(file.uid()));
    }
    let mode = file.permissions().mode() & 0o7777;
    if mode & GROUP_AND_OTHERS != 0 {
        return Err(KeyFileProblem::Permissions(mode));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
