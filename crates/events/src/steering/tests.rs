//! Tests of steering: the mask, changes under traffic, invalid tables.

use core::net::Ipv4Addr;

use super::*;

fn packet(port: u16) -> Tuple {
    Tuple::TcpV4 {
        from: (Ipv4Addr::LOCALHOST, port),
        to: (Ipv4Addr::LOCALHOST, 4791),
    }
}

fn on(processor: u16) -> Redirection {
    Redirection {
        processor,
        ..Redirection::default()
    }
}

const KEY: Key = Key([0x5a; KEY_LEN]);
const OTHER: Key = Key(*b"any forty bytes will do if they are rand");

#[test]
fn low_hash_bits_select_the_entry() {
    let entries: Vec<Redirection> = (0..8).map(on).collect();
    let steering = Steering::new(OTHER, &entries).unwrap();
    assert_eq!(steering.mask(), 7);
    for port in 0..1000 {
        let expected = OTHER.hash(packet(port)) & 7;
        assert_eq!(u32::from(steering.steer(packet(port)).processor), expected);
    }
}

/// One processor may own many entries, and they move one by one (E11).
#[test]
fn entries_move_from_processor_to_processor() {
    let steering = Steering::new(OTHER, &[on(4); 4]).unwrap();
    let load = |steering: &Steering| {
        (0..400)
            .filter(|p| steering.steer(packet(*p)).processor == 4)
            .count()
    };
    assert_eq!(load(&steering), 400);
    assert_eq!(steering.redirect(1, on(2)), Ok(on(4)));
    let after = load(&steering);
    assert!((200..380).contains(&after), "{after}");
    steering.set_table(&[on(4)]).unwrap();
    assert_eq!(load(&steering), 400);
}

#[test]
fn changed_key_changes_packet_steering() {
    let entries: Vec<Redirection> = (0..4).map(on).collect();
    let steering = Steering::new(KEY, &entries).unwrap();
    let before: Vec<u16> = (0..100)
        .map(|p| steering.steer(packet(p)).processor)
        .collect();
    steering.set_key(OTHER);
    let after: Vec<u16> = (0..100)
        .map(|p| steering.steer(packet(p)).processor)
        .collect();
    assert_ne!(before, after);
}

#[test]
fn invalid_tables_are_refused_without_effect() {
    let size = |n: usize| Steering::new(KEY, &vec![on(0); n]).err();
    for n in [0, 3, 512] {
        assert_eq!(size(n), Some(SteeringError::Size(n)));
    }
    let steering = Steering::new(KEY, &[on(1), on(2)]).unwrap();
    let channel = Redirection {
        channel: CHANNELS,
        ..on(0)
    };
    let refused = SteeringError::NoSuch {
        entry: 2,
        entries: 2,
    };
    assert_eq!(steering.redirect(2, on(3)), Err(refused));
    assert_eq!(
        steering.redirect(0, channel),
        Err(SteeringError::Channel(CHANNELS))
    );
    assert_eq!(steering.set_table(&[]), Err(SteeringError::Size(0)));
    assert_eq!(steering.entries(), [on(1), on(2)]);
}

/// E8: the same key, mask and entries as registers.
#[test]
fn registers_hold_key_mask_and_entries() {
    let steering = Steering::new(KEY, &[on(0)]).unwrap();
    for (at, bytes) in (0..).zip(OTHER.0.chunks_exact(4)) {
        let value = u32::from_be_bytes(bytes.try_into().unwrap());
        let register = SteeringRegister::Key(at);
        steering.write_register(register, value).unwrap();
        assert_eq!(steering.read_register(register), Ok(value));
    }
    let entry = |at: u8| Redirection {
        processor: 2047 - u16::from(at),
        channel: 31 - at,
        queue: 1024 + u16::from(at),
    };
    for at in 0..4 {
        let register = SteeringRegister::Entry(at);
        steering.write_register(register, entry(at).pack()).unwrap();
        assert_eq!(steering.read_register(register), Ok(entry(at).pack()));
    }
    assert_eq!(steering.entries(), [entry(0)], "the mask selects one");
    steering.write_register(SteeringRegister::Mask, 3).unwrap();
    assert_eq!(steering.entries(), [0, 1, 2, 3].map(entry));
    for port in 0..100 {
        let expected = entry((OTHER.hash(packet(port)) & 3) as u8);
        assert_eq!(steering.steer(packet(port)), expected);
    }
}

#[test]
fn invalid_register_values_are_refused() {
    let steering = Steering::new(KEY, &[on(1), on(2)]).unwrap();
    for mask in [2, 6, 511, u32::MAX] {
        let refused = steering.write_register(SteeringRegister::Mask, mask);
        assert_eq!(refused, Err(SteeringError::Mask(mask)));
    }
    let key = SteeringRegister::Key(KEY_REGISTERS);
    let refused = Err(SteeringError::KeyRegister(KEY_REGISTERS));
    assert_eq!(steering.write_register(key, 0), refused);
    assert_eq!(steering.read_register(key), refused.map(|()| 0));
    let entry = SteeringRegister::Entry(0);
    let refused = SteeringError::EntryBits(1 << 27);
    assert_eq!(steering.write_register(entry, 1 << 27), Err(refused));
    assert_eq!(steering.entries(), [on(1), on(2)]);
}

/// E8: key, size and entries change while packets are steered; each packet is steered by one table or the other.
#[test]
fn steering_is_valid_while_tables_change() {
    let steering = Steering::new(KEY, &[on(1)]).unwrap();
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..2000u16 {
                let (size, processor) = if round % 2 == 0 { (256, 2) } else { (1, 1) };
                steering.set_table(&vec![on(processor); size]).unwrap();
                steering.set_key(if round % 3 == 0 { KEY } else { OTHER });
                steering.redirect(size - 1, on(processor)).unwrap();
            }
            over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        while !over.load(std::sync::atomic::Ordering::Relaxed) {
            for port in 0..100 {
                assert!([1, 2].contains(&steering.steer(packet(port)).processor));
            }
        }
    });
}
