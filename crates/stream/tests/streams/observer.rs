//! An observer of captured frames grants every receive, so it learns of an RNR only when it sees one, perhaps in the middle of a message.
//! It must then count requests exactly as the two ends do. The frames are built here, without a capture.

use verbena_stream::accounting::Accounting;
use verbena_stream::rx::{FirstFpdu, Rx, RxFeatures};
use verbena_stream::{Claim, Delivery, RnrRetry, Step, Time};
use verbena_wire::ddp::{Header, Untagged};
use verbena_wire::ext::Control;
use verbena_wire::mpa::emit_fpdu;
use verbena_wire::rdmap::Opcode;
use verbena_wire::{Mo, Msn, Qn, Rsn};

fn send(msn: u32, mo: u32, last: bool) -> Vec<u8> {
    fpdu(
        Untagged {
            last,
            opcode: Opcode::Send,
            ulp: 0,
            qn: Qn::SEND,
            msn: Msn::new(msn),
            mo: Mo::new(mo),
        },
        b"1234",
    )
}

fn resume(n: u32) -> Vec<u8> {
    let control = Control::Resume(Rsn::wrapping(n));
    let header = Untagged {
        last: true,
        opcode: Opcode::Control,
        ulp: control.ulp_word(),
        qn: Qn::CONTROL,
        msn: Msn::FIRST,
        mo: Mo::ZERO,
    };
    fpdu(header, &[])
}

fn fpdu(header: Untagged, payload: &[u8]) -> Vec<u8> {
    let mut ulpdu = Header::Untagged(header).emit().to_vec();
    ulpdu.extend_from_slice(payload);
    let mut out = Vec::new();
    emit_fpdu(&ulpdu, None, true, &mut out);
    out
}

/// Feeds one whole FPDU and grants every receive.
fn feed(rx: &mut Rx, accounting: &mut Accounting, bytes: &[u8]) -> Option<Delivery> {
    let mut rest = bytes;
    loop {
        let (used, step) = rx
            .handle(rest, Time::ZERO, accounting)
            .expect("no violation");
        rest = &rest[used..];
        match step {
            Step::More(_) => return None,
            Step::Deliver(delivery) => return Some(delivery),
            Step::Claim { .. } => {
                let capacity = u32::MAX;
                rx.claim(Claim::Granted { capacity }, accounting)
                    .expect("granted");
            }
            Step::Place(run) => {
                rx.placed(run.len);
                rest = &rest[run.len as usize..];
            }
        }
    }
}

#[test]
fn message_under_rnr_is_discarded_and_uncounted() {
    let accepts = RxFeatures {
        rfc7306: true,
        extensions: true,
        read_v2: true,
        send_imm: true,
        memory_placement: true,
        xrc: false,
        drop_overlong: false,
    };
    let mut rx = Rx::new(false, true, accepts, FirstFpdu::Any);
    let mut accounting = Accounting::new(true, 8, 8, RnrRetry::Forever);
    let delivered = feed(&mut rx, &mut accounting, &send(1, 0, true));
    assert!(matches!(delivered, Some(Delivery::Send { rsn, .. }) if rsn == Rsn::ZERO));

    // Request 1 has begun when the RNR for it is seen; its sender finishes it, since it has not received the RNR yet.
    assert_eq!(feed(&mut rx, &mut accounting, &send(2, 0, false)), None);
    rx.observe_rnr(Rsn::wrapping(1), &mut accounting);
    let rest = feed(&mut rx, &mut accounting, &send(2, 4, true));
    assert_eq!(rest, Some(Delivery::Discarded(Opcode::Send)));

    accounting.responder.observe_ready();
    let resumed = feed(&mut rx, &mut accounting, &resume(1));
    assert_eq!(resumed, Some(Delivery::Resumed(Rsn::wrapping(1))));
    let again = feed(&mut rx, &mut accounting, &send(3, 0, true));
    assert!(matches!(again, Some(Delivery::Send { rsn, .. }) if rsn == Rsn::wrapping(1)));
}
