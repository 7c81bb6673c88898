//! The fuzz targets of Verbena, each a function of bytes that panics when a property does not hold.
//! They need nothing but Rust, so that `tests/replay.rs` runs every corpus; libFuzzer is a feature of the binaries only.
//! A target does not depend on where an input came from: seed, mutation or regression.

#![forbid(unsafe_code)]

pub mod cell;
pub mod channel;
pub mod control;
pub mod ddp;
pub mod decode;
pub mod fpdu;
pub mod handover;
pub mod inquiry;
pub mod iscsi;
pub mod iscsi_qp;
pub mod lan;
pub mod login;
pub mod nbd;
pub mod pair;
pub mod push;
pub mod qp_segments;
pub mod rdmap;
pub mod ring;
pub mod roce_cm;
pub mod roce_packet;
pub mod roce_qp;
pub mod roce_ud;
pub mod rsocket;
pub mod rx;
pub mod scsi;
pub mod session;
pub mod source;
pub mod split;
pub mod startup;
pub mod startup_frame;
pub mod tcpip_frame;
pub mod tcpip_segment;
pub mod terminate;

#[path = "../../../storage/disks/tests/common/ram.rs"]
mod ram;

/// A target, as the tests enumerate it.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name: that of its binary, its corpus and its dictionary.
    pub name: &'static str,
    /// Runs one input.
    pub run: fn(&[u8]),
}

/// Every target.
pub const TARGETS: &[Target] = &[
    target("cell", cell::target),
    target("channel", channel::target),
    target("control", control::target),
    target("ddp", ddp::target),
    target("decode", decode::target),
    target("fpdu", fpdu::target),
    target("handover", handover::target),
    target("inquiry", inquiry::target),
    target("iscsi", iscsi::target),
    target("iscsi_qp", iscsi_qp::target),
    target("lan", lan::target),
    target("login", login::target),
    target("nbd", nbd::target),
    target("pair", pair::target),
    target("push", push::target),
    target("qp_segments", qp_segments::target),
    target("rdmap", rdmap::target),
    target("ring", ring::target),
    target("roce_cm", roce_cm::target),
    target("roce_packet", roce_packet::target),
    target("roce_qp", roce_qp::target),
    target("roce_ud", roce_ud::target),
    target("rsocket", rsocket::target),
    target("rx", rx::target),
    target("scsi", scsi::target),
    target("session", session::target),
    target("split", split::target),
    target("startup", startup::target),
    target("startup_frame", startup_frame::target),
    target("tcpip_frame", tcpip_frame::target),
    target("tcpip_segment", tcpip_segment::target),
    target("terminate", terminate::target),
];

const fn target(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run }
}
