//! Tests of which key files are accepted.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::Keys;
use crate::config::Config;

/// A file that is removed when this is dropped.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str, content: &[u8], mode: u32) -> TempFile {
        let id = std::process::id();
        let path = std::env::temp_dir().join(format!("verbena-keys-{id}-{name}"));
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        TempFile(path)
    }

    fn load(&self) -> Result<Vec<Vec<u8>>, String> {
        let mut config = Config::default();
        config.set("key_file", self.0.to_str().unwrap()).unwrap();
        let keys = Keys::load(&config).map_err(|error| error.to_string())?;
        Ok(keys.iter().map(|key| key.bytes().to_vec()).collect())
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn key_file_has_one_key_per_line() {
    let content = b"the first of our keys\n\nthe second of our keys\r\n third, without a newline";
    let file = TempFile::new("lines", content, 0o600);
    let wanted: [&[u8]; 3] = [
        b"the first of our keys",
        b"the second of our keys",
        b" third, without a newline",
    ];
    assert_eq!(file.load().unwrap(), wanted);
}

#[test]
fn pipe_as_key_file_is_refused_without_blocking() {
    let id = std::process::id();
    let pipe = TempFile(std::env::temp_dir().join(format!("verbena-keys-{id}-pipe")));
    let made = std::process::Command::new("mkfifo")
        .args(["-m", "600"])
        .arg(&pipe.0)
        .status();
    assert!(made.unwrap().success());
    assert!(pipe.load().is_err());
}

#[test]
fn key_file_readable_by_others_is_refused() {
    for mode in [0o640, 0o604, 0o660, 0o610, 0o644] {
        let file = TempFile::new(&format!("mode{mode:o}"), b"0123456789abcdef", mode);
        let error = file.load().unwrap_err();
        assert!(error.contains("chmod 600"), "{mode:o}: {error}");
        assert!(!error.contains("0123456789"), "{error}");
    }
    for mode in [0o600, 0o400] {
        TempFile::new(&format!("good{mode:o}"), b"0123456789abcdef", mode)
            .load()
            .unwrap();
    }
}

#[test]
fn invalid_key_file_is_refused_with_reason() {
    let long = vec![b'x'; 1025];
    let many = b"0123456789abcdef\n".repeat(17);
    let huge = vec![b'\n'; 1 << 20];
    for (name, content, part) in [
        (
            "short",
            &b"0123456789abcdef\n0123456789abcde\n"[..],
            "in line 2",
        ),
        ("long", &long, "in line 1"),
        ("empty", b"\n\n", "no key"),
        ("many", &many, "more than 16"),
        ("huge", &huge, "more than 16"),
    ] {
        let error = TempFile::new(name, content, 0o600).load().unwrap_err();
        assert!(error.contains(part), "{name}: {error}");
    }
    for (path, part) in [
        ("/nowhere/at/all", "cannot be read"),
        ("/dev/null", "ordinary"),
    ] {
        let mut config = Config::default();
        config.set("key_file", path).unwrap();
        let error = Keys::load(&config).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}
