//! A peer answers half of a Read V2, then claims not to have been ready for it, and goes on with the answer
//! when the read is asked again. The two halves belong to different requests, which must be noticed, in every build.
//! Nothing here depends on how the peer came to be so confused.

use verbena_stream::ledger::Ledger;
use verbena_stream::reads::Asked;
use verbena_stream::rx::{Accepts, First, Rx};
use verbena_stream::{RnrRetry, Step, Time, Violation};
use verbena_wire::ddp::{Header, Untagged};
use verbena_wire::ext::{Control, RnrTimer};
use verbena_wire::mpa::emit_fpdu;
use verbena_wire::rdmap::Opcode;
use verbena_wire::{Mo, Msn, Qn, Rsn};

fn fpdu(header: Untagged, payload: &[u8]) -> Vec<u8> {
    let mut ulpdu = Header::Untagged(header).emit().to_vec();
    ulpdu.extend_from_slice(payload);
    let mut out = Vec::new();
    emit_fpdu(&ulpdu, None, true, &mut out);
    out
}

fn response(mo: u32, last: bool) -> Vec<u8> {
    let header = Untagged {
        last,
        opcode: Opcode::ReadV2Response,
        ulp: 0,
        qn: Qn::READ_V2_RESPONSE,
        msn: Msn::FIRST,
        mo: Mo::new(mo),
    };
    fpdu(header, b"1234")
}

fn control(msn: u32, control: Control) -> Vec<u8> {
    let mut payload = Vec::new();
    control.emit_payload(&mut payload);
    let header = Untagged {
        last: true,
        opcode: Opcode::Control,
        ulp: control.ulp_word(),
        qn: Qn::CONTROL,
        msn: Msn::new(msn),
        mo: Mo::ZERO,
    };
    fpdu(header, &payload)
}

fn feed(rx: &mut Rx, ledger: &mut Ledger, bytes: &[u8]) -> Result<(), Violation> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let (used, step) = rx.handle(rest, Time::ZERO, ledger)?;
        rest = &rest[used..];
        if let Step::Place(run) = step {
            rx.placed(run.len);
            rest = &rest[run.len as usize..];
        }
    }
    Ok(())
}

#[test]
fn half_an_answer_to_a_rewound_read_does_not_continue_in_the_next() {
    let accepts = Accepts {
        rfc7306: true,
        extensions: true,
        read_v2: true,
        send_imm: true,
    };
    let mut rx = Rx::new(false, true, accepts, First::Anything);
    let mut ledger = Ledger::new(true, 8, 8, RnrRetry::Forever);
    let ask = |ledger: &mut Ledger| {
        let rsn = ledger.requester.sent();
        ledger.reads_out.push(rsn, Asked::ReadV2 { size: 8 });
    };
    let timer = RnrTimer::new(1).expect("timer");
    let rsn = Rsn::ZERO;

    ask(&mut ledger);
    assert_eq!(feed(&mut rx, &mut ledger, &response(0, false)), Ok(()));
    let rnr = control(1, Control::Rnr { rsn, timer });
    assert_eq!(feed(&mut rx, &mut ledger, &rnr), Ok(()));
    let ready = control(2, Control::Ready(rsn));
    assert_eq!(feed(&mut rx, &mut ledger, &ready), Ok(()));
    ask(&mut ledger);
    assert_eq!(
        feed(&mut rx, &mut ledger, &response(4, true)),
        Err(Violation::Offset {
            expected: Mo::ZERO,
            got: Mo::new(4)
        })
    );
}
