//! Frames without and with a tag, and batches with losses.

use super::*;

const VNET: Vnet = Vnet {
    partial: Some(crate::PartialChecksum {
        start: 34,
        offset: 16,
    }),
    data_valid: false,
    gso: None,
};

fn receive(bytes: &[u8], tag: Option<[u8; VLAN_HLEN]>) -> (Frame, bool) {
    let mut frame = Frame::empty();
    let (addresses, rest) = frame.split_buffer();
    let at = bytes.len().min(ADDRESSES_LEN);
    addresses[..at].copy_from_slice(&bytes[..at]);
    rest[..bytes.len() - at].copy_from_slice(&bytes[at..]);
    let whole = frame.set_received_split(VNET, bytes.len(), tag);
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
    let longest = vec![7; MAX_FRAME_LEN];
    for (len, tag, fits) in [
        (MAX_FRAME_LEN - VLAN_HLEN, Some([0; VLAN_HLEN]), true),
        (MAX_FRAME_LEN - VLAN_HLEN, None, true),
        (MAX_FRAME_LEN - VLAN_HLEN + 1, None, false),
        (ADDRESSES_LEN - 1, None, false),
    ] {
        assert_eq!(receive(&longest[..len], tag).1, fits, "{len}");
    }
    let mut frame = Frame::empty();
    assert_eq!(frame.tap_buffer().len(), MAX_FRAME_LEN + 1);
    assert!(
        frame.set_received(VNET, MAX_FRAME_LEN) && !frame.set_received(VNET, MAX_FRAME_LEN + 1)
    );
    assert!(Frame::new(VNET, &longest).is_ok());
    let (len, most) = (MAX_FRAME_LEN + 1, MAX_FRAME_LEN);
    let long = Frame::new(VNET, &vec![0; len]).unwrap_err();
    assert_eq!(long, FrameError::Long { len, most });
}

#[test]
fn batch_keeps_whole_frames_in_order() {
    let mut batch = Batch::new(5);
    for (at, frame) in batch.refill().iter_mut().enumerate() {
        frame.tap_buffer()[0] = at as u8;
        frame.set_received(VNET, 1);
    }
    let firsts =
        |batch: &Batch| -> Vec<u8> { batch.frames().iter().map(|f| f.bytes()[0]).collect() };
    batch.retain(|at| at != 0 && at != 3, 5);
    assert_eq!(firsts(&batch), [1, 2, 4]);
    batch.refill();
    assert_eq!(firsts(&batch), [0; 0]);
    batch.retain(|_| true, 9);
    assert_eq!(batch.frames().len(), 5);
    assert_eq!(Batch::new(0).refill().len(), 1);
}
