//! The nine messages: golden bytes, cuts and surplus at every byte, unknown functions and versions, and the limits of the indication.

use proptest::prelude::*;
use verbena_wire::testing::hex;
use verbena_wire::{Stag, To};

use super::*;

const CONTEXT: u64 = 0x0102_0304_0506_0708;

fn known(bytes: &[u8]) -> Message<'_> {
    match Message::parse(bytes) {
        Ok(Parsed::Known(message)) => message,
        other => panic!("{other:?}"),
    }
}

fn emitted(message: &Message<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    message.emit(&mut out);
    out
}

fn bytes(function: &str, body: &str) -> Vec<u8> {
    hex(&format!("{function} 0001 0102030405060708 {body}"))
}

/// The bytes of one message of each function.
fn golden() -> [Vec<u8>; 9] {
    [
        bytes(
            "0001",
            "00000007 00000040 00000100 aabbccdd 1122334455667788 0000000000000009 \
             00000008 00000001 00010000 aabbccde 0000000000001000 ffffffffffffffff",
        ),
        bytes("0002", "00000010 000005dc"),
        bytes(
            "0003",
            "00000007 00000005 00000001 00000008 00000000 00000002",
        ),
        bytes("0004", "00000007 00000100"),
        bytes("0005", ""),
        bytes("0006", "00000003 616263"),
        bytes(
            "0007",
            "00000100 00000005 00010000 80000001 1122334455667788 00000100",
        ),
        bytes("0008", "0008 0000 00000002 05dc"),
        bytes("0009", "0002 0000 00000006 020000000001"),
    ]
}

#[test]
fn every_message_parses_to_its_fields() {
    let [
        pools,
        get,
        update,
        flush,
        reply,
        send,
        indicate,
        request,
        answer,
    ] = golden();
    let Body::BufferRecvPool(list) = known(&pools).body else {
        panic!("pools")
    };
    let two = [
        Pool {
            reference: 7,
            count: 64,
            size: 256,
            handle: Stag::new(0xaabb_ccdd),
            at: To::new(0x1122_3344_5566_7788),
            context: 9,
        },
        Pool {
            reference: 8,
            count: 1,
            size: 65536,
            handle: Stag::new(0xaabb_ccde),
            at: To::new(0x1000),
            context: u64::MAX,
        },
    ];
    assert_eq!(list.len(), 2);
    assert!(!list.is_empty());
    assert_eq!(list.iter().collect::<Vec<_>>(), two);
    let mut out = Vec::new();
    Message::emit_pools(CONTEXT, &two, &mut out);
    assert_eq!(out, pools);

    let (count, size) = (16, 1500);
    assert_eq!(known(&get).body, Body::BufferRecvPoolGet { count, size });

    let Body::BufferRecvPoolUpdate(list) = known(&update).body else {
        panic!("ranges")
    };
    let range = |pool, first, count| Range { pool, first, count };
    let two = [range(7, 5, 1), range(8, 0, 2)];
    assert_eq!(list.iter().collect::<Vec<_>>(), two);
    out.clear();
    Message::emit_ranges(CONTEXT, &two, &mut out);
    assert_eq!(out, update);

    let Body::BufferPoolFlushRequest(list) = known(&flush).body else {
        panic!("references")
    };
    let two = [Reference(7), Reference(256)];
    assert_eq!(list.iter().collect::<Vec<_>>(), two);
    out.clear();
    Message::emit_flush(CONTEXT, &two, &mut out);
    assert_eq!(out, flush);

    assert_eq!(known(&reply).body, Body::BufferPoolFlushReply);
    assert_eq!(known(&send).body, Body::SendData(b"abc"));

    let Body::BufferRdmaIndicate(list) = known(&indicate).body else {
        panic!("elements")
    };
    let two = [
        Element::Index {
            pool: 256,
            element: 5,
            length: 65536,
        },
        Element::Address {
            pool: 1,
            at: To::new(0x1122_3344_5566_7788),
            length: 256,
        },
    ];
    assert_eq!(list.iter().collect::<Vec<_>>(), two);
    out.clear();
    Message::emit_elements(CONTEXT, &two, &mut out);
    assert_eq!(out, indicate);

    let (operation, data) = (Operation::SetMtu, [5, 0xdc].as_slice());
    assert_eq!(
        known(&request).body,
        Body::CfgUtilRequest { operation, data }
    );
    let (operation, status) = (Operation::GetMac, Status::Ok);
    let data = [2, 0, 0, 0, 0, 1].as_slice();
    let body = Body::CfgUtilReply {
        operation,
        status,
        data,
    };
    assert_eq!(known(&answer).body, body);
}

#[test]
fn parsed_messages_emit_the_same_bytes() {
    for (bytes, function) in golden().iter().zip(Function::ALL) {
        let message = known(bytes);
        assert_eq!(message.context, CONTEXT);
        assert_eq!(message.body.function(), function);
        assert_eq!(Function::from_code(function as u16), Some(function));
        assert_eq!(emitted(&message), *bytes, "{message}");
    }
}

/// A truncated message is rejected, unless the cut leaves whole entries; one with a surplus byte is always rejected.
#[test]
fn wrong_message_lengths_are_refused() {
    for bytes in golden() {
        let boundaries: &[usize] = match bytes[1] {
            1 => &[44],
            3 => &[24],
            4 => &[16],
            7 => &[24],
            _ => &[],
        };
        for cut in 0..bytes.len() {
            let got = Message::parse(&bytes[..cut]);
            let ok = boundaries.contains(&cut);
            assert_eq!(
                got.is_ok(),
                ok,
                "function {} cut at {cut}: {got:?}",
                bytes[1]
            );
            match got {
                Err(Malformed::Truncated { .. }) => assert!(cut < 12),
                Err(Malformed::PushLength { function, got }) => {
                    assert_eq!((function, got), (u16::from(bytes[1]), cut - 12));
                }
                Err(other) => panic!("{other}"),
                Ok(_) => {}
            }
        }
        let longer = [&bytes[..], &[0]].concat();
        let got = Message::parse(&longer);
        assert!(matches!(got, Err(Malformed::PushLength { .. })), "{got:?}");
    }
    let reserved = bytes("0008", "0008 0001 00000000");
    let got = Message::parse(&reserved);
    let error = Malformed::PushReserved {
        function: 8,
        got: 1,
    };
    assert_eq!(got, Err(error));
}

/// P6: an unknown function or version is a value, and its answer has the same context.
#[test]
fn unknown_messages_are_answered() {
    for (function, version) in [(0, 1), (10, 1), (0xffff, 1), (1, 0), (8, 2), (0, 0)] {
        let envelope = Envelope {
            function,
            version,
            context: CONTEXT,
        };
        let came = [&envelope.emit()[..], &[1, 2, 3]].concat();
        assert_eq!(Message::parse(&came), Ok(Parsed::Unknown(envelope)));
        let reply = emitted(&envelope.unknown_reply());
        assert_eq!(reply, bytes("0009", "0000 0004 00000000"));
    }
}

#[test]
fn unknown_operations_and_statuses_are_kept() {
    for code in 0..=u16::MAX {
        assert_eq!(Operation::from_code(code).code(), code);
        assert_eq!(Status::from_code(code).code(), code);
    }
    assert_eq!(Operation::from_code(11), Operation::Shutdown);
    assert_eq!(Operation::from_code(12), Operation::OpenDisk);
    assert_eq!(Operation::from_code(13), Operation::Unknown(13));
    assert_eq!(Status::from_code(4), Status::UnknownMessage);
    assert_eq!(Status::from_code(5), Status::Unknown(5));
    assert_eq!(Operation::Unknown(99).to_string(), "unknown(99)");
}

/// P7: pool 7, element 5, 256 bytes.
#[test]
fn indication_packs_8_8_and_16_bits() {
    let example = Indication::fit(7, 5, 256).unwrap();
    assert_eq!(example.immediate(), 0x0705_0100);
    assert_eq!(Indication::from_immediate(0x0705_0100), example);
    let largest = Indication::fit(255, 255, 65535).unwrap();
    assert_eq!(largest.immediate(), u32::MAX);
    assert_eq!(Indication::fit(0, 0, 0).unwrap().immediate(), 0);
    for (pool, element, length) in [(256, 0, 0), (0, 256, 0), (0, 0, 65536), (u32::MAX, 0, 0)] {
        assert_eq!(Indication::fit(pool, element, length), None);
    }
    assert_eq!(example.to_string(), "pool=7 element=5 length=256");
}

#[test]
fn prints_one_line() {
    let golden = golden();
    let line = |at: usize| known(&golden[at]).to_string();
    assert_eq!(
        line(1),
        "BufferRecvPoolGet context=0x102030405060708 count=16 size=1500"
    );
    assert_eq!(
        line(6),
        "BufferRdmaIndicate context=0x102030405060708 [pool=256 element=5 length=65536] \
         [pool=1 at=0x1122334455667788 length=256]"
    );
    assert_eq!(
        line(8),
        "CfgUtilReply context=0x102030405060708 operation=get-mac status=ok data=6"
    );
}

proptest! {
    #[test]
    fn parsed_bytes_are_emitted_unchanged(function in 0_u8..12, rest in proptest::collection::vec(any::<u8>(), 0..100)) {
        let mut came = hex("0000 0001 0000000000000000");
        came[1] = function;
        came.extend(rest);
        if let Ok(Parsed::Known(message)) = Message::parse(&came) {
            prop_assert_eq!(emitted(&message), came.clone());
            let _ = message.to_string();
        }
    }

    #[test]
    fn indications_round_trip(word: u32) {
        prop_assert_eq!(Indication::from_immediate(word).immediate(), word);
    }
}
