//! Default options of rsockets from the files of the administrator, as in the original (`man 7 rsocket`).
//! The files are read once per process. A file that does not exist or holds no number changes nothing.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use verbena_rsocket::Options;

/// The directory of the files.
const FOLDER: &str = "/etc/rdma/rsocket";

/// The defaults of this process.
pub(super) fn options() -> Options {
    static READ: OnceLock<Options> = OnceLock::new();
    *READ.get_or_init(|| read(Path::new(FOLDER)))
}

fn read(folder: &Path) -> Options {
    let mut options = Options::default();
    let number = |name: &str| -> Option<usize> {
        let text = std::fs::read_to_string(folder.join(name)).ok()?;
        text.trim().parse().ok()
    };
    for (name, place) in [
        ("mem_default", &mut options.recv_buffer),
        ("wmem_default", &mut options.send_buffer),
        ("sqsize_default", &mut options.sends),
        ("rqsize_default", &mut options.messages),
        ("inline_default", &mut options.inline),
        ("iomap_size", &mut options.maps),
    ] {
        if let Some(number) = number(name) {
            *place = number;
        }
    }
    if let Some(micros) = number("polling_time") {
        options.polling = Duration::from_micros(micros as u64);
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_files_without_numbers_are_ignored() {
        let folder = std::env::temp_dir().join(format!("verbena-rsocket-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("mem_default"), "1000000\n").unwrap();
        std::fs::write(folder.join("polling_time"), "25").unwrap();
        std::fs::write(folder.join("sqsize_default"), "many").unwrap();
        let options = read(&folder);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(options.recv_buffer, 1_000_000);
        assert_eq!(options.polling, Duration::from_micros(25));
        assert_eq!(options.sends, Options::default().sends);
    }
}
