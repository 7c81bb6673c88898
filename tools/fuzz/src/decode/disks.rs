//! An iSCSI connection as a capture: a login that agrees on digests, then PDUs from the input.
//! Lengths and digests are valid, unless the input asks for others.

use verbena_storage_wire::iscsi::{BHS_LEN, Lengths, PORT, digest};

use super::capture::Recorder;
use crate::source::{Source, bit};

/// First two bytes of the Login Request and the Login Response of a login that goes straight to full feature phase.
const LOGIN: [[u8; 2]; 2] = [[0x43, 0x87], [0x23, 0x87]];

/// The capture of a script.
pub(super) fn capture(data: &[u8]) -> Vec<u8> {
    let mut source = Source::new(data);
    let [_, terms, cut, disorder] = source.array();
    let mut recorder = Recorder::new(PORT, 1 + usize::from(cut), disorder);
    let digests = (bit(terms, 0), bit(terms, 1));
    let value = |on| if on { "CRC32C" } else { "None" };
    let (header, data) = (value(digests.0), value(digests.1));
    let agreed = format!("HeaderDigest={header}\0DataDigest={data}\0");
    for (side, first) in LOGIN.iter().enumerate() {
        let mut bhs = [0; BHS_LEN];
        bhs[..2].copy_from_slice(first);
        recorder.send(side, &pdu(bhs, agreed.as_bytes(), true, (false, false)));
    }
    while !source.is_empty() {
        let [how, len] = source.array();
        let bhs = source.array::<BHS_LEN>();
        let data = source.slice(len.into());
        let mut bytes = pdu(bhs, data, !bit(how, 1), digests);
        if let (true, Some(last)) = (bit(how, 2), bytes.last_mut()) {
            *last ^= 1;
        }
        recorder.send(usize::from(bit(how, 0)), &bytes);
    }
    recorder.finish()
}

/// A PDU with this data, and with its length in the header if `honest`.
fn pdu(mut bhs: [u8; BHS_LEN], data: &[u8], honest: bool, digests: (bool, bool)) -> Vec<u8> {
    if honest {
        bhs[4..8].copy_from_slice(&(data.len() as u32).to_be_bytes());
    }
    let mut bytes = bhs.to_vec();
    bytes.resize(BHS_LEN + usize::from(Lengths::of(&bhs).ahs), 0);
    if digests.0 {
        bytes.extend(digest(&bytes));
    }
    let mut data = data.to_vec();
    data.resize(data.len().next_multiple_of(4), 0);
    bytes.extend(&data);
    if digests.1 && !data.is_empty() {
        bytes.extend(digest(&data));
    }
    bytes
}
