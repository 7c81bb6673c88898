//! A region moves to another process (V1): it keeps its STag, its addresses and its bytes.

use std::sync::Arc;
use std::time::Duration;

use verbena_engine::sys::{FdChannel, HandoverListener};
use verbena_mem::{Access, Buffer, MemAccess, Pd, Policy, RegionExport, Tpt};
use verbena_wire::{Stag, To};

use crate::common::process::{Peer, print_line, read_line};

const PD: Pd = Pd(1);
const LEN: usize = 1 << 20;
const LONG: Duration = Duration::from_secs(20);

fn table(seed: u64) -> Arc<Tpt> {
    Arc::new(Tpt::new(1..1 << 20, Policy::Verbs, seed))
}

/// Writes as a peer does that knows the old names.
fn write(tpt: &Tpt, export: &RegionExport, offset: u64, bytes: &[u8]) {
    let reach = MemAccess {
        stag: export.stag,
        at: export.start.get() + offset,
        len: bytes.len() as u64,
        pd: PD,
        qp: 1,
        needs: Access::REMOTE_WRITE,
    };
    let placed = tpt.place_remote(&reach).unwrap().write(0, bytes);
    assert_eq!(placed, Ok(bytes.len()));
}

/// Role `heir`.
pub(crate) fn adopt_as_child(settings: &[(String, String)]) {
    let mut fd_channel = FdChannel::connect(settings[0].1.as_ref()).unwrap();
    let (bytes, mut came) = fd_channel.receive().unwrap();
    let word = |at: usize| u64::from_le_bytes(bytes[at * 8..at * 8 + 8].try_into().unwrap());
    let export = RegionExport {
        stag: Stag::new(word(0) as u32),
        start: To::new(word(1)),
        len: word(2),
        access: Access::from_bits(word(3) as u8).unwrap(),
    };
    let tpt = table(2);
    let buffer = Buffer::adopt(&tpt, came.remove(0), export, PD).unwrap();
    assert_eq!(
        (buffer.stag(), buffer.at()),
        (export.stag, export.start.get())
    );
    assert_eq!(buffer.read(LEN - 6, 6), b"before");
    write(&tpt, &export, 77, b"by the old name, in the new process");
    print_line("done");
    read_line();
}

#[test]
fn region_keeps_its_identity_across_processes() {
    let path = std::env::temp_dir().join(format!("verbena-region-export-{}", std::process::id()));
    let handover_listener = HandoverListener::bind(&path).unwrap();
    let mut heir = Peer::start("heir", &[("at", path.to_str().unwrap())]);
    let mut fd_channel = handover_listener.accept(LONG).unwrap().unwrap();
    let tpt = table(1);
    let buffer = Buffer::shared(&tpt, LEN, PD, Access::ALL).unwrap();
    buffer.write(LEN - 6, b"before");
    let (export, fd) = buffer.export_region().unwrap();
    let words = [
        u64::from(export.stag.get()),
        export.start.get(),
        export.len,
        u64::from(export.access.bits()),
    ];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    fd_channel.send(&bytes, &[fd]).unwrap();
    assert_eq!(heir.read_line(), "done");
    assert_eq!(buffer.read(77, 35), b"by the old name, in the new process");
}
