//! Writes the frames of a link into a pcapng file (`verbena lab capture`), with the time since the start of the lab. What was written is
//! complete at any time.

use std::borrow::Cow;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionBlock;
use rustix::net::{RecvFlags, Shutdown};

use super::control::{Client, Request};
use super::error::{LabError, failed};
use super::supervisor::parse_copy;

/// Frames are not cut.
const SNAP_LEN: u32 = 0;
const ROOM: usize = 128 << 10;

/// Captures until a signal or the end of the lab; returns the number of frames.
pub fn write(client: &Client, link: &str, path: &Path) -> Result<u64, LabError> {
    let shown = path.display().to_string();
    let wrong = |error: pcap_file::PcapError| LabError(format!("{shown}: {error}"));
    let file = File::create(path).map_err(failed(&shown))?;
    let mut writer = PcapNgWriter::new(file).map_err(wrong)?;
    // One for each direction.
    for _ in 0..2 {
        let interface = InterfaceDescriptionBlock::new(DataLink::ETHERNET, SNAP_LEN);
        writer.write_pcapng_block(interface).map_err(wrong)?;
    }
    client.ask(&Request::Capture(link.to_owned()))?;
    let socket = client
        .as_fd()
        .try_clone_to_owned()
        .map_err(failed("the lab"))?;
    let stopped = std::sync::Arc::new(AtomicBool::new(false));
    let flag = stopped.clone();
    ctrlc::set_handler(move || {
        flag.store(true, Ordering::Relaxed);
        // Ends the receive call below.
        let _ = rustix::net::shutdown(&socket, Shutdown::Both);
    })
    .map_err(|error| LabError(format!("signals: {error}")))?;
    let mut room = vec![0; ROOM];
    let mut frames = 0;
    while !stopped.load(Ordering::Relaxed) {
        let got = match rustix::net::recv(client, &mut room[..], RecvFlags::empty()) {
            Err(rustix::io::Errno::INTR) => continue,
            Ok((0, _)) | Err(_) => break,
            Ok((got, _)) => got,
        };
        let Some((at, direction, frame)) = parse_copy(&room[..got]) else {
            continue;
        };
        let block = EnhancedPacketBlock {
            interface_id: u32::from(direction.min(1)),
            timestamp: at,
            original_len: u32::try_from(frame.len()).unwrap_or(u32::MAX),
            data: Cow::Borrowed(frame),
            options: Vec::new(),
        };
        writer.write_pcapng_block(block).map_err(wrong)?;
        frames += 1;
    }
    Ok(frames)
}
