//! Frames without and with a tag, and batches with losses.

use super::*;

const VNET: Vnet = Vnet {
    partial: Some(crate::Partial {
        start: 34,
        offset: 16,
    }),
    known_good: false,
    gso: None,
};

fn receive(bytes: &[u8], tag: Option<[u8; TAG]>) -> (Frame, bool) {
    let mut frame = Frame::empty();
    let (addresses, rest) = frame.parted();
    let at = bytes.len().min(ADDRESSES);
    addresses[..at].copy_from_slice(&bytes[..at]);
    rest[..bytes.len() - at].copy_from_slice(&bytes[at..]);
    let whole = frame.came_parted(VNET, bytes.len(), tag);
    (frame, whole)
}

#[test]
fn vlan_tag_is_reinserted_behind_the_addresses() {
    let bytes: Vec<u8> = (0..60).collect();
    let (frame, whole) = receive(&bytes, None);
    assert!(whole && frame.bytes() == bytes && *frame.vnet() == VNET);
    let tag = [0x81, 0, 0x20, 5];
    let (frame, whole) = receive(&bytes, Some(tag));
    let expected = [&bytes[..12], &tag, &bytes[12..]].concat();
    assert!(whole && frame.bytes() == expected);
    assert_eq!(frame.vnet().partial.map(|p| p.start), Some(38));
}

#[test]
fn frames_longer_than_the_limit_are_detected() {
    let longest = vec![7; LONGEST];
    for (len, tag, fits) in [
        (LONGEST - TAG, Some([0; TAG]), true),
        (LONGEST - TAG, None, true),
        (LONGEST - TAG + 1, None, false),
        (ADDRESSES - 1, None, false),
    ] {
        assert_eq!(receive(&longest[..len], tag).1, fits, "{len}");
    }
    let mut frame = Frame::empty();
    assert_eq!(frame.whole().len(), LONGEST + 1);
    assert!(frame.came(VNET, LONGEST) && !frame.came(VNET, LONGEST + 1));
    assert!(Frame::new(VNET, &longest).is_ok());
    let (len, most) = (LONGEST + 1, LONGEST);
    let long = Frame::new(VNET, &vec![0; len]).unwrap_err();
    assert_eq!(long, Unfit::Long { len, most });
}

#[test]
fn batch_keeps_whole_frames_in_order() {
    let mut batch = Batch::new(5);
    for (at, frame) in batch.refill().iter_mut().enumerate() {
        frame.whole()[0] = at as u8;
        frame.came(VNET, 1);
    }
    let firsts =
        |batch: &Batch| -> Vec<u8> { batch.frames().iter().map(|f| f.bytes()[0]).collect() };
    batch.keep(|at| at != 0 && at != 3, 5);
    assert_eq!(firsts(&batch), [1, 2, 4]);
    batch.refill();
    assert_eq!(firsts(&batch), [0; 0]);
    batch.keep(|_| true, 9);
    assert_eq!(batch.frames().len(), 5);
    assert_eq!(Batch::new(0).refill().len(), 1);
}
