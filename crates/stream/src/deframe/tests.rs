//! Tests of FPDU reception below the headers: how many bytes are requested, and that frames end where they should.

use verbena_wire::mpa::fpdu::emit_fpdu;

use super::*;

/// Takes one frame out of the stage and returns its ULPDU, supplying bytes only as they are requested.
fn take(deframer: &mut Deframer, bytes: &[u8], head: usize) -> Result<(Vec<u8>, usize), Violation> {
    let mut have = 0;
    let ulpdu_len = loop {
        match deframer.open(&bytes[..have])? {
            Ok(len) => break usize::from(len),
            Err(need) => {
                assert!(
                    need > have && need <= bytes.len(),
                    "asks for bytes of this frame only"
                );
                have = need;
            }
        }
    };
    let mut ulpdu = vec![0; head];
    while let Err(need) = deframer.peek(&bytes[..have], 0, &mut ulpdu)? {
        assert!(need > have && need <= bytes.len());
        have = need;
    }
    let mut used = deframer.consume_head(&bytes[..have], head)?;
    loop {
        match deframer.next_run(&bytes[used..])? {
            Next::Need(_) => panic!("all bytes are there"),
            Next::Passed(n) => used += n,
            Next::Run(n) => {
                ulpdu.extend(&bytes[used..used + n]);
                deframer.advance(n);
                used += n;
            }
            Next::End => break,
        }
    }
    used += deframer
        .close(&bytes[used..])?
        .expect("all bytes are there");
    assert_eq!(ulpdu.len(), ulpdu_len);
    Ok((ulpdu, used))
}

#[test]
fn frames_of_many_lengths_are_deframed() {
    for markers in [false, true] {
        for crc in [false, true] {
            let mut deframer = Deframer::new(markers, crc);
            let mut phase = markers.then_some(Phase::START);
            for len in (14..1100).step_by(7) {
                let ulpdu: Vec<u8> = (0..len).map(|i| (i * 7 % 256) as u8).collect();
                let mut bytes = Vec::new();
                phase = emit_fpdu(&ulpdu, phase, crc, &mut bytes);
                let (taken, used) = take(&mut deframer, &bytes, 14).unwrap();
                assert_eq!((taken, used), (ulpdu, bytes.len()), "{len} bytes");
            }
        }
    }
}

#[test]
fn crc_requires_the_whole_frame_first() {
    let mut bytes = Vec::new();
    emit_fpdu(&[1; 100], None, true, &mut bytes);
    let mut deframer = Deframer::new(false, true);
    assert_eq!(deframer.open(&bytes[..10]), Ok(Err(bytes.len())));
    assert_eq!(deframer.open(&bytes), Ok(Ok(100)));
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let damaged = Deframer::new(false, true).open(&bytes);
    assert!(matches!(damaged, Err(Violation::Crc { .. })));
}

#[test]
fn mid_frame_holds_from_first_to_last_byte() {
    let mut bytes = Vec::new();
    emit_fpdu(&[1; 20], None, false, &mut bytes);
    let mut deframer = Deframer::new(false, false);
    assert!(!deframer.is_mid_frame(0));
    assert!(deframer.is_mid_frame(1));
    deframer.open(&bytes).unwrap().unwrap();
    deframer.consume_head(&bytes, 14).unwrap();
    assert!(deframer.is_mid_frame(0));
    deframer.advance(6);
    let closed = deframer.close(&bytes[22..]);
    assert_eq!(closed, Ok(Ok(bytes.len() - 22)));
    assert!(!deframer.is_mid_frame(0));
}
