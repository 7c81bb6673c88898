//! An example of the protocol as a packet capture that any analyser can open.
//! It has every kind of message, without faults, on three connections: one with extensions, a rejected one, and a standard one. The
//! seed determines only keys and payload.

mod packets;
mod script;

use core::time::Duration;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use pcap_file::pcap::{PcapPacket, PcapWriter};
use verbena_stream::Time;

use crate::checker;
use crate::rng::Rng;
use crate::run::run_session;

/// Time between the end of one connection and the beginning of the next.
const PAUSE: Duration = Duration::from_millis(20);

/// Writes the capture to a file; returns a phrase with its counts.
pub fn write(path: &Path, seed: u64) -> Result<String> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    write_to(BufWriter::new(file), seed)
}

/// Writes the capture; returns a phrase with its counts.
pub fn write_to(out: impl Write, seed: u64) -> Result<String> {
    let mut pcap = PcapWriter::new(out).context("cannot begin the capture")?;
    let mut rng = Rng::new(seed);
    let mut now = Time::ZERO + Duration::from_secs(1);
    let mut count = 0;
    let sessions = script::sessions(&mut rng);
    let connections = sessions.len();
    for (k, session) in sessions.iter().enumerate() {
        let transcript = match run_session(session, &mut rng, now) {
            Ok(transcript) => transcript,
            Err(crash) => bail!("the simulated session failed: {}", crash.why),
        };
        if let Err(why) = checker::check(&transcript) {
            bail!("the simulated session failed: {why}");
        }
        for (at, bytes) in packets::of(&transcript, k as u16, now)? {
            let at = at.since(Time::ZERO);
            let packet = PcapPacket::new(at, bytes.len() as u32, &bytes);
            pcap.write_packet(&packet)
                .context("cannot write a packet")?;
            count += 1;
        }
        now = transcript.end + PAUSE;
    }
    pcap.into_writer()
        .flush()
        .context("cannot flush the capture")?;
    Ok(format!("{connections} connections, {count} packets"))
}

#[cfg(test)]
mod tests;
