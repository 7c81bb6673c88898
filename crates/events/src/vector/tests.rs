//! Tests of vectors: those granted against those asked for, and the kinds of delivery.

use super::*;

#[test]
fn ungranted_vectors_share_granted_ones() {
    let vectors = Vectors::new(4).unwrap();
    let given = |vectors: &Vectors| -> Vec<Signal> {
        let signals = (0..4).map(|v| vectors.resolve(Signal::Vector(v)).0);
        signals.collect()
    };
    let four: Vec<Signal> = (0..4).map(Signal::Vector).collect();
    assert_eq!(given(&vectors), four);
    vectors.grant(9);
    assert_eq!((given(&vectors), vectors.usable()), (four, 4));
    vectors.grant(3);
    assert_eq!(given(&vectors), [0, 1, 2, 0].map(Signal::Vector));
    vectors.grant(0);
    assert_eq!(given(&vectors), [Signal::Line; 4]);
}

#[test]
fn delivery_is_set_per_vector() {
    let vectors = Vectors::new(3).unwrap();
    vectors.deliver(1, Delivery::Pinned(u16::MAX)).unwrap();
    vectors.deliver(2, Delivery::Line).unwrap();
    let resolved = [0, 1, 2].map(|v| vectors.resolve(Signal::Vector(v)));
    assert_eq!(
        resolved,
        [
            (Signal::Vector(0), Delivery::Inline),
            (Signal::Vector(1), Delivery::Pinned(u16::MAX)),
            (Signal::Line, Delivery::Line),
        ]
    );
}

#[test]
fn vectors_out_of_range_are_refused() {
    assert_eq!(Vectors::new(2049).err(), Some(VectorError::TooMany(2049)));
    let vectors = Vectors::new(2).unwrap();
    let refused = VectorError::NoSuch {
        vector: 2,
        requested: 2,
    };
    assert_eq!(vectors.deliver(2, Delivery::Line), Err(refused));
    for signal in [Signal::Line, Signal::Vector(0), Signal::Vector(u16::MAX)] {
        assert_eq!(Signal::unpack(signal.pack()), signal);
    }
}
