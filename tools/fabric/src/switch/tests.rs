//! VLANs, blocked ports and the flood limit; learning and ageing are tested where they are written.

use super::*;
use verbena_lan::Mac;

fn frame(from: u8, to: u8, tag: Option<Tag>) -> Frame {
    let mac = |n: u8| match n {
        0xff => Mac::BROADCAST.octets(),
        n => [2, 0, 0, 0, 0, n],
    };
    let mut bytes = vec![0x11; 60];
    bytes[..6].copy_from_slice(&mac(to));
    bytes[6..12].copy_from_slice(&mac(from));
    let mut frame = Frame::plain(bytes);
    if let Some(tag) = tag {
        frame.insert_tag(tag);
    }
    frame
}

fn tag(vlan: u16) -> Option<Tag> {
    Some(Tag { vlan, priority: 3 })
}

fn switch(modes: &[PortMode]) -> Switch {
    let mut switch = Switch::new(SwitchOptions::default());
    for mode in modes {
        assert!(switch.add_port(*mode));
    }
    switch
}

/// The ports and tags with which a frame leaves.
fn sent(switch: &mut Switch, at: usize, frame: Frame) -> Vec<(usize, Option<Tag>)> {
    let mut out = Vec::new();
    switch.receive(at, frame, Duration::ZERO, &mut out);
    out.iter().map(|(to, frame)| (*to, frame.tag())).collect()
}

#[test]
fn known_address_is_not_flooded() {
    let mut switch = switch(&[PortMode::Plain; 3]);
    assert_eq!(
        sent(&mut switch, 0, frame(1, 2, None)),
        [(1, None), (2, None)]
    );
    assert_eq!(sent(&mut switch, 1, frame(2, 1, None)), [(0, None)]);
    assert_eq!(sent(&mut switch, 0, frame(1, 2, None)), [(1, None)]);
}

#[test]
fn plain_switch_keeps_tags() {
    let mut switch = switch(&[PortMode::Plain; 2]);
    assert_eq!(sent(&mut switch, 0, frame(1, 2, tag(9))), [(1, tag(9))]);
}

#[test]
fn vlans_are_separate_and_tagged_on_trunks() {
    use PortMode::{Access, Trunk};
    let mut switch = switch(&[Access(5), Access(6), Access(5), Trunk, Access(1)]);
    let broadcast = frame(1, 0xff, None);
    let untagged = Some(Tag {
        vlan: 5,
        priority: 0,
    });
    assert_eq!(sent(&mut switch, 0, broadcast), [(2, None), (3, untagged)]);
    assert_eq!(sent(&mut switch, 3, frame(9, 1, tag(5))), [(0, None)]);
    assert_eq!(sent(&mut switch, 3, frame(9, 0xff, tag(6))), [(1, None)]);
    assert_eq!(sent(&mut switch, 3, frame(9, 0xff, None)), [(4, None)]);
    assert_eq!(sent(&mut switch, 0, frame(1, 0xff, tag(6))), []);
    assert_eq!(switch.counters.wrong_vlan, 1);
}

#[test]
fn unknown_vlans_create_nothing() {
    let mut switch = switch(&[PortMode::Trunk, PortMode::Trunk]);
    for vlan in 2..=4095 {
        assert_eq!(sent(&mut switch, 0, frame(1, 0xff, tag(vlan))), []);
    }
    assert_eq!(switch.domains.len(), 1);
    assert_eq!(switch.counters.wrong_vlan, 4094);
    assert!(!switch.add_port(PortMode::Access(0)) && !switch.add_port(PortMode::Access(4095)));
}

#[test]
fn blocked_port_neither_sends_nor_receives() {
    let mut switch = switch(&[PortMode::Plain; 3]);
    switch.set_blocked(&BTreeSet::from([1]));
    assert_eq!(sent(&mut switch, 0, frame(1, 0xff, None)), [(2, None)]);
    assert_eq!(sent(&mut switch, 1, frame(2, 0xff, None)), []);
    assert!(switch.is_blocked(1));
    switch.set_blocked(&BTreeSet::new());
    assert_eq!(sent(&mut switch, 0, frame(1, 0xff, None)).len(), 2);
}

#[test]
fn floods_are_limited_and_known_traffic_is_not() {
    let mut switch = Switch::new(SwitchOptions {
        flood_limit: 100,
        ..SwitchOptions::default()
    });
    for _ in 0..2 {
        switch.add_port(PortMode::Plain);
    }
    let count = |switch: &mut Switch, now: Duration, to: u8| {
        let mut out = Vec::new();
        for _ in 0..1000 {
            switch.receive(0, frame(1, to, None), now, &mut out);
        }
        out.len()
    };
    assert_eq!(count(&mut switch, Duration::ZERO, 0xff), 100);
    assert_eq!(count(&mut switch, Duration::from_millis(500), 0xff), 50);
    assert_eq!(count(&mut switch, Duration::from_secs(3600), 0xff), 100);
    switch.receive(
        1,
        frame(2, 1, None),
        Duration::from_secs(3600),
        &mut Vec::new(),
    );
    assert_eq!(count(&mut switch, Duration::from_secs(3600), 2), 1000);
}

#[test]
fn truncated_frames_are_dropped() {
    let mut switch = switch(&[PortMode::Plain, PortMode::Trunk, PortMode::Access(3)]);
    let whole = frame(1, 2, tag(3)).bytes;
    for len in 0..14 {
        for port in 0..4 {
            let frame = Frame::plain(whole[..len].to_vec());
            assert_eq!(sent(&mut switch, port, frame), []);
        }
    }
}
