//! The first frame of a peer that is not an engine: an MPA Request over a socket of the test's own.
//! Its bytes are written here, not by the code under test.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use super::TEST_TIMEOUT;

/// Connects and sends an MPA Request: of revision 1, or with private data of revision 2 and the offer of the extensions (docs/extensions.md).
pub(crate) fn mpa_request(to: SocketAddr, private: &[u8]) -> TcpStream {
    let mut raw = TcpStream::connect(to).unwrap();
    raw.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let mut frame = b"MPA ID Req Frame".to_vec();
    if private.is_empty() {
        frame.extend([0, 1, 0, 0]);
    } else {
        frame.extend([0x11, 2]);
        frame.extend((private.len() as u16 + 4).to_be_bytes());
        // The read depths, in front of the private data.
        frame.extend([0x80, 16, 0x3f, 0xff]);
        frame.extend(private);
    }
    raw.write_all(&frame).unwrap();
    raw
}
