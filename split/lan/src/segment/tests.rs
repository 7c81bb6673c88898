//! Pieces of a known frame byte by byte, random frames against an independent checker, and frames that must be rejected.

use proptest::prelude::*;

use super::*;
use crate::vnet::{GsoKind, Vnet};
use crate::{Offloads, apply_offloads};

/// A super-frame built by hand.
struct BuiltFrame {
    frame: Vec<u8>,
    above: usize,
    headers: usize,
}

struct FrameSpec {
    tags: usize,
    v6: bool,
    tcp: bool,
    /// Words of options: IPv4's own, or a destination options header of IPv6.
    ip_options: usize,
    tcp_options: usize,
    flags: u8,
    payload: Vec<u8>,
}

impl FrameSpec {
    fn make(&self) -> BuiltFrame {
        let mut f = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        for tag in 0..self.tags {
            f.extend([[0x88, 0xa8, 0, 7], [0x81, 0, 0, 8]][1 - tag]);
        }
        let protocol = if self.tcp { 6 } else { 17 };
        if self.v6 {
            f.extend([0x86, 0xdd, 0x60, 1, 2, 3, 0, 0]);
            let first = if self.ip_options > 0 { 60 } else { protocol };
            f.extend([first, 64]);
            f.extend([0x20; 16]);
            f.extend([0x31; 16]);
            if self.ip_options > 0 {
                f.extend([protocol, 0, 1, 4, 0, 0, 0, 0]);
            }
        } else {
            let len = 0x45 + self.ip_options as u8;
            f.extend([8, 0, len, 0, 0, 0, 0xff, 0xfe, 0x40, 0, 64, protocol, 0, 0]);
            f.extend([10, 0, 0, 1, 10, 0, 0, 2]);
            f.extend(vec![1; 4 * self.ip_options]);
        }
        let above = f.len();
        if self.tcp {
            // The sequence number wraps within the frame.
            f.extend([0x30, 0x39, 0, 80, 0xff, 0xff, 0xff, 0xf0, 0, 0, 0, 9]);
            let offset = (5 + self.tcp_options as u8) << 4;
            f.extend([offset, self.flags, 1, 0, 0, 0, 0, 0]);
            f.extend(vec![1; 4 * self.tcp_options]);
        } else {
            f.extend([0x30, 0x39, 0, 53, 0, 0, 0, 0]);
        }
        let headers = f.len();
        f.extend(&self.payload);
        BuiltFrame {
            frame: f,
            above,
            headers,
        }
    }

    fn gso(&self, size: u16) -> Gso {
        let kind = match (self.tcp, self.v6) {
            (true, false) => GsoKind::Tcp4,
            (true, true) => GsoKind::Tcp6,
            (false, _) => GsoKind::Udp,
        };
        let (headers, ecn) = (0, false);
        Gso {
            kind,
            size,
            headers,
            ecn,
        }
    }

    fn partial(&self, made: &BuiltFrame) -> PartialChecksum {
        PartialChecksum {
            start: made.above as u16,
            offset: if self.tcp { 16 } else { 6 },
        }
    }

    fn segment(&self, size: u16) -> Result<Vec<Vec<u8>>, FrameError> {
        let made = self.make();
        let (mut pieces, mut room) = (Vec::new(), Vec::new());
        let partial = Some(self.partial(&made));
        let done = segment(&made.frame, self.gso(size), partial, &mut room, |piece| {
            pieces.push(piece.to_vec());
        });
        done.map(|()| pieces)
    }
}

fn plain(tcp: bool, payload: usize) -> FrameSpec {
    FrameSpec {
        tags: 0,
        v6: false,
        tcp,
        ip_options: 0,
        tcp_options: 0,
        flags: 0x18,
        payload: (0..payload).map(|i| i as u8).collect(),
    }
}

/// Sums 16-bit words with end-around carry: all ones if they include a correct checksum.
fn sum(parts: &[&[u8]]) -> u16 {
    let mut total = 0u32;
    for pair in parts.concat().chunks(2) {
        let low = pair.get(1).copied().unwrap_or(0);
        total += u32::from(u16::from_be_bytes([pair[0], low]));
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

fn be16(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

#[test]
fn known_frame_is_segmented_byte_exact() {
    let pieces = plain(true, 5).segment(3).unwrap();
    #[rustfmt::skip]
    let first = [
        2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0,
        0x45, 0, 0, 43, 0xff, 0xfe, 0x40, 0, 64, 6, 0x26, 0xcc, 10, 0, 0, 1, 10, 0, 0, 2,
        0x30, 0x39, 0, 80, 0xff, 0xff, 0xff, 0xf0, 0, 0, 0, 9, 0x50, 0x10, 1, 0, 0x68, 0x4b, 0, 0,
        0, 1, 2,
    ];
    assert_eq!(pieces[0], first);
    // The last piece: its own identification and sequence number, and the PSH flag.
    assert_eq!(pieces.len(), 2);
    assert_eq!(be16(&pieces[1], 16), 42);
    assert_eq!(be16(&pieces[1], 18), 0xffff);
    assert_eq!(pieces[1][38..42], [0xff, 0xff, 0xff, 0xf3]);
    assert_eq!(pieces[1][47], 0x18);
    assert_eq!(pieces[1][54..], [3, 4]);
}

#[test]
fn cwr_marks_first_piece_fin_and_psh_last() {
    let mut recipe = plain(true, 9);
    // CWR, ECE, ACK, PSH, FIN.
    recipe.flags = 0xd9;
    let flags: Vec<u8> = recipe.segment(3).unwrap().iter().map(|p| p[47]).collect();
    assert_eq!(flags, [0xd0, 0x50, 0x59]);
}

#[test]
fn no_payload_is_one_frame() {
    let pieces = plain(true, 0).segment(100).unwrap();
    assert_eq!(pieces.len(), 1);
    assert_eq!((be16(&pieces[0], 16), pieces[0][47]), (40, 0x18));
}

#[test]
fn invalid_frame_is_refused_before_first_piece() {
    let recipe = plain(true, 100);
    let made = recipe.make();
    let partial = recipe.partial(&made);
    let refused = |frame: &[u8], gso: Gso, partial: Option<PartialChecksum>| {
        segment(frame, gso, partial, &mut Vec::new(), |_| panic!("a piece")).unwrap_err()
    };
    let gso = recipe.gso(10);
    let with = |at: usize, byte: u8| {
        let mut frame = made.frame.clone();
        frame[at] = byte;
        refused(&frame, gso, Some(partial))
    };
    for len in 0..made.headers {
        let why = refused(&made.frame[..len], gso, Some(partial));
        assert!(matches!(why, FrameError::Short { .. }), "{len}: {why}");
    }
    // Another protocol, version, header length, and fragments.
    for (at, byte) in [
        (12, 9),
        (14, 0x65),
        (14, 0x44),
        (20, 0x60),
        (21, 1),
        (23, 17),
        (46, 0x40),
    ] {
        assert!(
            matches!(with(at, byte), FrameError::Mismatch { .. }),
            "{at}"
        );
    }
    // Options beyond the end.
    let mut short = made.frame[..60].to_vec();
    short[46] = 0xf0;
    let why = refused(&short, gso, Some(partial));
    assert!(
        matches!(why, FrameError::Short { header: "TCP", .. }),
        "{why}"
    );
    assert!(matches!(
        refused(&made.frame, gso, None),
        FrameError::Mismatch { .. }
    ));
    let elsewhere = PartialChecksum {
        start: partial.start + 2,
        ..partial
    };
    assert!(matches!(
        refused(&made.frame, gso, Some(elsewhere)),
        FrameError::Mismatch { .. }
    ));
    for kind in [GsoKind::Tcp6, GsoKind::Udp] {
        let why = refused(&made.frame, Gso { kind, ..gso }, Some(partial));
        assert!(matches!(why, FrameError::Mismatch { .. }));
    }
    let none = Gso { size: 0, ..gso };
    assert_eq!(
        refused(&made.frame, none, Some(partial)),
        FrameError::ZeroGsoSize
    );
}

#[test]
fn number_of_pieces_is_limited() {
    let most = MOST_PIECES;
    let (payload, size) = (65_000, 63);
    let refused = plain(true, payload).segment(size);
    let size = usize::from(size);
    let expected = FrameError::TooManySegments {
        payload,
        size,
        most,
    };
    assert_eq!(refused, Err(expected));
    assert_eq!(plain(true, payload).segment(64).unwrap().len(), 1016);
    let long = plain(false, MAX_FRAME_LEN).segment(1000).unwrap_err();
    assert!(matches!(long, FrameError::Long { .. }));
}

#[test]
fn frames_matching_receiver_offloads_pass_unchanged() {
    let recipe = plain(true, 100);
    let made = recipe.make();
    let vnet = Vnet {
        partial: Some(recipe.partial(&made)),
        data_valid: false,
        gso: Some(recipe.gso(10)),
    };
    let through = |vnet: Vnet, taken: Offloads| {
        let (mut out, mut room) = (Vec::new(), Vec::new());
        apply_offloads(&vnet, &made.frame, taken, &mut room, |vnet, bytes| {
            out.push((*vnet, bytes.to_vec()));
        })
        .unwrap();
        out
    };
    let same = vec![(vnet, made.frame.clone())];
    assert_eq!(through(vnet, Offloads::ALL), same);
    let some = Offloads {
        checksum: true,
        tcp4: true,
        ..Offloads::NONE
    };
    assert_eq!(through(vnet, some), same);
    let congested = Vnet {
        gso: vnet.gso.map(|gso| Gso { ecn: true, ..gso }),
        ..vnet
    };
    assert_eq!(through(congested, some).len(), 10);
    let checksum = Offloads {
        checksum: true,
        ..Offloads::NONE
    };
    for taken in [Offloads::NONE, checksum] {
        let pieces = through(vnet, taken);
        assert_eq!(pieces.len(), 10);
        assert!(pieces.iter().all(|(vnet, _)| *vnet == Vnet::PLAIN));
    }
    let partial = Vnet { gso: None, ..vnet };
    assert_eq!(through(partial, checksum), [(partial, made.frame.clone())]);
    let whole = through(partial, Offloads::NONE);
    assert_eq!((whole.len(), whole[0].0), (1, Vnet::PLAIN));
    assert_eq!(sum(&[&whole[0].1[34..]]), 0xffff);
    assert_eq!(through(Vnet::PLAIN, Offloads::NONE).len(), 1);
    let useless = Offloads {
        checksum: false,
        ..Offloads::ALL
    };
    assert_eq!(useless.normalized(), Offloads::NONE);
}

prop_compose! {
    fn recipe()(
        tags in 0usize..3, v6: bool, tcp: bool, ip_options in 0usize..3, tcp_options in 0usize..11,
        flags: u8, payload in prop::collection::vec(any::<u8>(), 0..3000),
    ) -> FrameSpec {
        FrameSpec { tags, v6, tcp, ip_options, tcp_options, flags, payload }
    }
}

impl core::fmt::Debug for FrameSpec {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let FrameSpec {
            tags,
            v6,
            tcp,
            ip_options,
            tcp_options,
            flags,
            payload,
        } = self;
        write!(
            f,
            "{tags} {v6} {tcp} {ip_options} {tcp_options} {flags:#x} {}",
            payload.len()
        )
    }
}

proptest! {
    /// Every piece is correct by itself, and together they are the whole payload.
    #[test]
    fn pieces_are_valid_and_cover_the_payload(recipe in recipe(), size in 8u16..2000) {
        let made = recipe.make();
        let (ip, above, headers) = (14 + 4 * recipe.tags, made.above, made.headers);
        let pieces = recipe.segment(size).unwrap();
        prop_assert_eq!(pieces.len(), recipe.payload.len().div_ceil(usize::from(size)).max(1));
        let mut whole = Vec::new();
        for (at, piece) in pieces.iter().enumerate() {
            let payload = &piece[headers..];
            prop_assert!(payload.len() <= usize::from(size));
            let len = piece.len() - above;
            let addresses = if recipe.v6 {
                prop_assert_eq!(be16(piece, ip + 4), piece.len() - ip - 40);
                &piece[ip + 8..ip + 40]
            } else {
                prop_assert_eq!(be16(piece, ip + 2), piece.len() - ip);
                prop_assert_eq!(be16(piece, ip + 4), (0xfffe + at) & 0xffff);
                prop_assert_eq!(sum(&[&piece[ip..above]]), 0xffff);
                &piece[ip + 12..ip + 20]
            };
            let pseudo = [0, if recipe.tcp { 6 } else { 17 }, (len >> 8) as u8, len as u8];
            prop_assert_eq!(sum(&[addresses, &pseudo, &piece[above..]]), 0xffff);
            if recipe.tcp {
                let sequence = [piece[above + 4], piece[above + 5], piece[above + 6], piece[above + 7]];
                let expected = 0xffff_fff0u32.wrapping_add(whole.len() as u32);
                prop_assert_eq!(u32::from_be_bytes(sequence), expected);
            } else {
                prop_assert_eq!(be16(piece, above + 4), len);
                prop_assert_ne!(be16(piece, above + 6), 0);
            }
            whole.extend_from_slice(payload);
        }
        prop_assert_eq!(whole, recipe.payload);
    }

    /// Random changes to a frame: no panic, and no piece is produced before an error.
    #[test]
    fn mutated_frames_yield_pieces_or_an_error(
        recipe in recipe(), bends in prop::collection::vec((0usize..100, any::<u8>()), 0..6),
        end in 0usize..4000, size: u16, kind in 0usize..3,
    ) {
        let made = recipe.make();
        let mut frame = made.frame.clone();
        for (at, byte) in bends {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        frame.truncate(end);
        let kind = [GsoKind::Tcp4, GsoKind::Tcp6, GsoKind::Udp][kind];
        let gso = Gso { kind, ..recipe.gso(size) };
        let (mut pieces, mut room) = (0, Vec::new());
        let done = segment(&frame, gso, Some(recipe.partial(&made)), &mut room, |_| pieces += 1);
        prop_assert_eq!(done.is_err(), pieces == 0);
        prop_assert!(pieces <= MOST_PIECES);
    }
}
