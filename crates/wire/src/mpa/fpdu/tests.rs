//! The computed layout against an encoder that walks the stream word by word, for every phase
//! and lengths around every boundary; sizes and segment limits.

use proptest::prelude::*;

use super::*;

/// The reference encoder: it checks the stream offset before every word.
struct Naive {
    offset: usize,
}

impl Naive {
    fn emit(&mut self, ulpdu: &[u8]) -> Vec<u8> {
        let mut body = (ulpdu.len() as u16).to_be_bytes().to_vec();
        body.extend_from_slice(ulpdu);
        while !body.len().is_multiple_of(4) {
            body.push(0);
        }
        let (mut out, mut start) = (Vec::new(), None);
        for i in (0..=body.len()).step_by(4) {
            if self.offset.is_multiple_of(512) {
                let back = start.map_or(0, |start| self.offset - start);
                out.extend_from_slice(&[0, 0]);
                out.extend_from_slice(&(back as u16).to_be_bytes());
                self.offset += 4;
            }
            start.get_or_insert(self.offset);
            if i < body.len() {
                out.extend_from_slice(&body[i..i + 4]);
                self.offset += 4;
            }
        }
        out.extend_from_slice(&crc32c_wire(crc32c(&out)));
        self.offset += 4;
        out
    }
}

fn phases() -> impl Iterator<Item = Phase> {
    (0..512).step_by(4).map(|p| Phase::new(p).expect("a phase"))
}

/// Checks all results of the layout against the reference encoder's bytes.
fn check(len: u16, phase: Phase) {
    let ulpdu: Vec<u8> = (0..usize::from(len)).map(|i| (i % 251) as u8 | 1).collect();
    let mut naive = Naive {
        offset: 512 * 4 - usize::from(phase.get()),
    };
    let want = naive.emit(&ulpdu);
    let mut got = Vec::new();
    let next = emit_fpdu(&ulpdu, Some(phase), true, &mut got);
    let context = format!("{len} bytes at phase {phase}");
    assert!(got == want, "{context}");
    let want_next = (512 - naive.offset % 512) % 512;
    assert_eq!(
        next.map(|p| usize::from(p.get())),
        Some(want_next),
        "{context}"
    );

    let layout = Layout::new(len, Some(phase));
    assert_eq!(layout.size(), want.len(), "{context}");
    assert_eq!(layout.next_phase(), next, "{context}");
    for k in 0..layout.marker_count() {
        let (at, marker) = layout.marker(k).expect("a marker");
        assert_eq!(want[at..at + 4], marker.emit(), "{context} marker {k}");
    }
    assert_eq!(layout.marker(layout.marker_count()), None);
    walk(&layout, &ulpdu, &want);
}

/// Gathers the body by `locate` and `run_at` and compares it with the plain one.
fn walk(layout: &Layout, ulpdu: &[u8], frame: &[u8]) {
    let mut body = (ulpdu.len() as u16).to_be_bytes().to_vec();
    body.extend_from_slice(ulpdu);
    body.resize(layout.body_len(), 0);
    let (mut at, mut gathered) = (0, Vec::new());
    while at < layout.body_len() {
        let (from, run) = (layout.locate(at), layout.run_at(at));
        assert!(run > 0 && run <= 508);
        gathered.extend_from_slice(&frame[from..from + run]);
        at += run;
    }
    assert!(gathered == body);
    assert_eq!(layout.run_at(at), 0);
    assert_eq!(layout.locate(at), layout.crc_at());
    assert_eq!(layout.locate(usize::MAX), layout.crc_at());
    assert_eq!(layout.run_at(usize::MAX), 0);
}

#[test]
fn frames_match_reference_at_every_phase() {
    let short = 0..=24;
    let first = 480..=530;
    let later = [999, 1000, 1001, 1012, 1442, 1454, 1500, 2048, 8870];
    for len in short.chain(first).chain(later) {
        for phase in phases() {
            check(len, phase);
        }
    }
}

#[test]
fn longest_frames_match_reference() {
    for phase in phases() {
        check(MAX_ULPDU_WITH_MARKERS as u16, phase);
    }
    check(u16::MAX, Phase::START);
    check(u16::MAX, Phase(508));
}

#[test]
fn each_body_byte_is_where_locate_says() {
    let phase = Phase::new(8).expect("a phase");
    let ulpdu: Vec<u8> = (0..1200u32).map(|i| (i * 7 + i / 256) as u8).collect();
    let mut frame = Vec::new();
    emit_fpdu(&ulpdu, Some(phase), true, &mut frame);
    let layout = Layout::new(1200, Some(phase));
    for (i, byte) in ulpdu.iter().enumerate() {
        assert_eq!(frame[layout.locate(i + LENGTH_LEN)], *byte, "byte {i}");
    }
}

#[test]
fn run_ends_at_marker_or_frame_end() {
    for (len, phase) in [(1200, 8), (1200, 0), (507, 508), (3, 4), (0, 0)] {
        let layout = Layout::new(len, Phase::new(phase));
        for from in 0..layout.body_len() {
            let run = layout.run_at(from);
            let last = layout.locate(from) + run - 1;
            assert_eq!(layout.locate(from + run - 1), last);
            let end = from + run == layout.body_len();
            assert!(end || layout.locate(from + run) == last + 1 + Marker::LEN);
        }
    }
}

#[test]
fn frame_without_markers_is_one_run() {
    for len in (0..64).chain([1442, 65534, u16::MAX]) {
        let layout = Layout::new(len, None);
        let body = 2 + usize::from(len) + pad_len(len);
        assert_eq!(layout.body_len(), body);
        assert_eq!(layout.size(), body + 4);
        assert_eq!((layout.marker_count(), layout.marker(0)), (0, None));
        assert_eq!(
            (layout.locate(body - 1), layout.run_at(1)),
            (body - 1, body - 1)
        );
        assert_eq!(layout.next_phase(), None);
        assert!(layout.size().is_multiple_of(4));
    }
    // An empty tagged and an empty untagged segment.
    assert_eq!(Layout::new(14, None).size(), 20);
    assert_eq!(Layout::new(18, None).size(), 24);
}

#[test]
fn pads_to_words() {
    assert_eq!([0, 1, 2, 3, 4].map(pad_len), [2, 1, 0, 3, 2]);
    assert_eq!(pad_len(u16::MAX), 3);
}

#[test]
fn disabled_checksum_is_emitted_as_zero() {
    let mut out = vec![0xee];
    emit_fpdu(b"ab", None, false, &mut out);
    assert_eq!(out, [0xee, 0, 2, b'a', b'b', 0, 0, 0, 0]);
}

#[test]
fn overlong_ulpdu_has_no_frame() {
    let mut out = Vec::new();
    let phase = Phase::new(4);
    assert_eq!(emit_fpdu(&[0; MAX_ULPDU + 1], phase, true, &mut out), phase);
    assert!(out.is_empty());
}

#[test]
fn phases_are_multiples_of_four_below_512() {
    assert_eq!(Phase::new(0), Some(Phase::START));
    assert_eq!(Phase::new(508).map(Phase::get), Some(508));
    assert!(
        [1, 2, 3, 510, 512, 65532]
            .map(Phase::new)
            .iter()
            .all(Option::is_none)
    );
}

#[test]
fn mulpdu_matches_rfc_5044() {
    // RFC 5044 §4.5, for common segment sizes.
    let cases = [(1460, 1454, 1442), (1448, 1442, 1430), (8948, 8942, 8870)];
    for (emss, plain, marked) in cases {
        assert_eq!((mulpdu(emss, false), mulpdu(emss, true)), (plain, marked));
    }
    for small in [0, 1, 64, 133, 134] {
        assert_eq!((mulpdu(small, false), mulpdu(small, true)), (128, 128));
    }
    assert_eq!(mulpdu(usize::MAX, false), u16::MAX);
    assert_eq!(
        usize::from(mulpdu(usize::MAX, true)),
        MAX_ULPDU_WITH_MARKERS
    );
}

#[test]
fn prints_one_line() {
    let layout = Layout::new(42, Some(Phase::START));
    assert_eq!(
        layout.to_string(),
        "FPDU ulpdu=42 size=52 markers=1 phase=0"
    );
    assert_eq!(Layout::new(14, None).to_string(), "FPDU ulpdu=14 size=20");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_length_and_phase_match_reference(len in any::<u16>(), phase in 0u16..128) {
        check(len, Phase(phase * 4));
    }

    /// A limit computed for a segment size gives frames that fit it, if they begin a segment.
    #[test]
    fn frames_of_the_limit_fit_the_segment(emss in 160usize..65000, phase in 0u16..128) {
        prop_assert!(Layout::new(mulpdu(emss, false), None).size() <= emss);
        let marked = Layout::new(mulpdu(emss, true), Some(Phase(phase * 4)));
        prop_assert!(marked.size() <= emss);
    }

    #[test]
    fn frame_chain_matches_reference(lens in proptest::collection::vec(0usize..1600, 1..24)) {
        let mut naive = Naive { offset: 0 };
        let (mut want, mut got, mut phase) = (Vec::new(), Vec::new(), Some(Phase::START));
        for len in lens {
            let ulpdu = vec![0xa5; len];
            want.extend(naive.emit(&ulpdu));
            phase = emit_fpdu(&ulpdu, phase, true, &mut got);
        }
        prop_assert!(got == want);
    }
}
