//! The value of `verbena unit --disk`: a file, a block device or memory, with a name for hosts. What is not of this form is rejected with
//! the form in the message; the disk itself is opened later.

use std::path::{Path, PathBuf};

use verbena_split::unit::Backing;

use crate::command::iscsi::bytes;

/// A disk to serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DiskArg {
    pub(super) name: String,
    pub(super) backing: Backing,
}

/// Parses `[NAME=]PATH[,ro]` or `[NAME=]ram:SIZE`. Without a name it is that of the file, or `ram`.
pub(super) fn parse(text: &str) -> Result<DiskArg, String> {
    // A path with a slash before the first `=` has no name.
    let (name, rest) = match text.split_once('=') {
        Some((name, rest)) if !name.contains('/') => (Some(name.to_owned()), rest),
        _ => (None, text),
    };
    if let Some(size) = rest.strip_prefix("ram:") {
        let bytes = bytes(size).map_err(|why| format!("ram:{size}: {why}"))?;
        return Ok(DiskArg {
            name: name.unwrap_or_else(|| "ram".to_owned()),
            backing: Backing::Memory { bytes },
        });
    }
    let (path, read_only) = match rest.strip_suffix(",ro") {
        Some(path) => (path, true),
        None => (rest, false),
    };
    let file_name = Path::new(path).file_name();
    let Some(file_name) = file_name.filter(|_| !path.is_empty()) else {
        return Err("use [NAME=]PATH[,ro] or [NAME=]ram:SIZE".to_owned());
    };
    Ok(DiskArg {
        name: name.unwrap_or_else(|| file_name.to_string_lossy().into_owned()),
        backing: Backing::File {
            path: PathBuf::from(path),
            read_only,
        },
    })
}
