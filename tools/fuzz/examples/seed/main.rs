//! Writes the seed corpora: `cargo run -p verbena-fuzz --example seed`.
//! Seeds are small inputs, each for one case and named after it (`seed-NAME`); inputs that a fuzzer found are left as they are.

mod cells;
mod codecs;
mod iscsi;
mod logins;
mod machines;
mod peers;
mod roce;
mod segments;
mod sessions;
mod storage;
mod tcpip;

use std::io;
use std::path::Path;

/// The name of a case and its input.
type Seed = (&'static str, Vec<u8>);

fn main() -> io::Result<()> {
    let corpora = [
        ("startup", machines::startups()),
        ("rx", machines::streams()),
        ("pair", machines::programs()),
        ("decode", machines::captures()),
        ("startup_frame", codecs::startup_frames()),
        ("ddp", codecs::ddp()),
        ("rdmap", codecs::rdmap()),
        ("terminate", codecs::terminates()),
        ("control", codecs::controls()),
        ("roce_ud", codecs::datagrams()),
        ("roce_packet", roce::packets()),
        ("roce_qp", roce::conversations()),
        ("roce_cm", roce::messages()),
        ("qp_segments", segments::orders()),
        ("fpdu", codecs::fpdus()),
        ("cell", cells::cells()),
        ("channel", cells::scripts()),
        ("push", cells::messages()),
        ("session", sessions::sessions()),
        ("iscsi", storage::headers()),
        ("scsi", storage::answers()),
        ("login", logins::logins()),
        ("iscsi_qp", iscsi::conversations()),
        ("inquiry", peers::inquiries()),
        ("split", peers::services()),
        ("rsocket", peers::sockets()),
        ("lan", peers::frames()),
        ("nbd", peers::clients()),
        ("ring", peers::rings()),
        ("tcpip_frame", tcpip::frames()),
        ("tcpip_segment", tcpip::segments()),
    ];
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (target, seeds) in corpora {
        let folder = root.join(target);
        std::fs::create_dir_all(&folder)?;
        for (name, bytes) in &seeds {
            std::fs::write(folder.join(format!("seed-{name}")), bytes)?;
        }
        println!("{target}: {} seeds", seeds.len());
    }
    Ok(())
}
