//! Records between processes: each parses to what was emitted, and no bytes panic.

use super::*;

#[test]
fn records_parse_to_what_was_emitted() {
    let (srq, stag, to) = (
        Srqn::wrapping(0xab_cdef),
        Stag::new(77),
        To::new(1 << 40 | 5),
    );
    let end = End {
        len: 9,
        immediate: Some(0x0102_0304),
        invalidate: Some(stag),
        solicited: true,
        write: true,
    };
    let plain = End {
        len: u32::MAX,
        immediate: None,
        invalidate: None,
        solicited: false,
        write: false,
    };
    let requests = [
        Request::Hello { version: 1, qpn: 5 },
        Request::Claim { srq },
        Request::Piece { offset: 3 },
        Request::End(end),
        Request::End(plain),
        Request::Fail(Status::LocLenErr),
        Request::Fail(Status::WrFlushErr),
        Request::Write {
            srq,
            stag,
            to,
            run: 4,
        },
        Request::WriteEnd,
        Request::Read {
            srq,
            stag,
            to,
            len: 4,
        },
        Request::Atomic { srq },
    ];
    for request in requests {
        assert_eq!(
            Request::parse(&request.emit()),
            Some((request, &[][..])),
            "{request:?}"
        );
    }
    let refusals = FAULTS.map(|fault| Reason::Access(stag, fault));
    let others = [
        Reason::NoSuchSrq,
        Reason::Unaligned,
        Reason::ReceiveBuffer,
        Reason::Failed,
    ];
    let plain = [
        Answer::Granted { capacity: 8 },
        Answer::NotReady,
        Answer::Ready,
        Answer::Done,
        Answer::Data,
        Answer::Value(u64::MAX - 1),
    ];
    let refused = refusals.into_iter().chain(others).map(Answer::Refused);
    for answer in plain.into_iter().chain(refused) {
        assert_eq!(
            Answer::parse(&answer.emit()),
            Some((answer, &[][..])),
            "{answer:?}"
        );
    }
}

#[test]
fn other_bytes_are_no_record() {
    for len in 0..HEAD {
        assert_eq!(Request::parse(&[1; 24][..len]), None);
        assert_eq!(Answer::parse(&[1; 24][..len]), None);
    }
    for kind in 0..=u8::MAX {
        for flags in 0..=u8::MAX {
            let mut bytes = [0xff; HEAD + 3];
            (bytes[0], bytes[1], bytes[7]) = (kind, flags, 0);
            let request = Request::parse(&bytes).map(|(request, _)| request);
            if let Some(request) = request {
                assert!(matches!(
                    request,
                    Request::Piece { .. } | Request::Write { .. } | Request::Atomic { .. }
                ));
            }
            let answer = Answer::parse(&bytes).map(|(answer, _)| answer);
            assert!(answer.is_none_or(|answer| answer == Answer::Data));
        }
    }
    let mut queue = Request::Claim {
        srq: Srqn::wrapping(1),
    }
    .emit();
    queue[7] = 1;
    assert_eq!(Request::parse(&queue), None, "more than 24 bits");
    let long = vec![0; LONGEST + 1];
    assert_eq!(Answer::parse(&long), None);
}
