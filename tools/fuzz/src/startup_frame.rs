//! MPA startup frames (RFC 5044 §7.1, RFC 6581 §4) from any bytes, as a Request and as a Reply.
//! A frame that parses must be emitted as it came, and a prefix must be incomplete or have the result of the whole.

use verbena_wire::mpa::startup::{Frame, HEADER_LEN, Kind, MAX_PRIVATE_DATA, Revision};
use verbena_wire::mpa::{Depth, Enhanced};

/// The flag that announces the enhanced block: reserved, thus ignored, in revision 1.
const ENHANCED: u8 = 0x10;
const FLAGS_AT: usize = 16;

/// Runs one input.
pub fn target(data: &[u8]) {
    for kind in [Kind::Request, Kind::Reply] {
        frame(kind, data);
    }
    if let Ok(block) = Enhanced::parse(data) {
        assert_eq!(block.emit(), data[..Enhanced::LEN]);
        assert_eq!(Depth::new(block.ird.get()), Some(block.ird));
        let _ = block.to_string();
    }
}

fn frame(kind: Kind, data: &[u8]) {
    let whole = Frame::parse(kind, data);
    for cut in (0..data.len()).take(HEADER_LEN + Enhanced::LEN + 1) {
        let part = Frame::parse(kind, &data[..cut]);
        assert!(
            part == Ok(None) || part == whole,
            "{cut} bytes: {part:?}, all: {whole:?}"
        );
    }
    let (frame, len) = match whole {
        Ok(Some(found)) => found,
        Ok(None) => return assert!(data.len() < HEADER_LEN + MAX_PRIVATE_DATA),
        Err(error) => return drop(error.to_string()),
    };
    assert!(len <= data.len() && len <= HEADER_LEN + MAX_PRIVATE_DATA);
    let mut out = Vec::new();
    frame.emit(&mut out);
    assert_eq!(Frame::parse(kind, &out), Ok(Some((frame, len))));
    let mut came = data[..len].to_vec();
    if frame.revision() == Revision::One {
        came[FLAGS_AT] &= !ENHANCED;
    }
    assert_eq!(out, came);
    let built = Frame::new(
        kind,
        frame.revision(),
        frame.flags(),
        frame.enhanced(),
        frame.private_data(),
    );
    assert_eq!(built, Ok(frame));
    let _ = frame.to_string();
}
