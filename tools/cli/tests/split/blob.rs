//! A large pseudo-random file, made once, and its checksum.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// Its length in bytes.
const LENGTH: usize = 200_000_000;
/// Its path on a web server of its folder.
pub(crate) const NAME: &str = "blob";

/// Its folder, below `target`, so that later runs reuse it.
pub(crate) fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_TARGET_TMPDIR"), "/split"))
}

/// Its SHA-256; makes the file if it does not exist.
pub(crate) fn checksum() -> &'static str {
    static SUM: OnceLock<String> = OnceLock::new();
    SUM.get_or_init(|| {
        let path = folder().join(NAME);
        let whole = |file: std::fs::Metadata| file.len() == LENGTH as u64;
        if !std::fs::metadata(&path).is_ok_and(whole) {
            make(&path);
        }
        let ran = Command::new("sha256sum").arg(&path).output().unwrap();
        let said = String::from_utf8(ran.stdout).unwrap();
        let sum = said.split(' ').next().unwrap();
        assert_eq!(sum.len(), 64, "{said}");
        sum.to_owned()
    })
}

fn make(path: &Path) {
    std::fs::create_dir_all(folder()).unwrap();
    // Several processes may make it at the same time, so it is renamed when it is complete.
    let young = path.with_extension(std::process::id().to_string());
    let mut file = BufWriter::with_capacity(1 << 20, File::create(&young).unwrap());
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..LENGTH / 8 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        file.write_all(&state.to_le_bytes()).unwrap();
    }
    file.into_inner().unwrap().sync_all().unwrap();
    std::fs::rename(young, path).unwrap();
}
