//! Ends: early responses, deregistered memory, broken connections, destroyed queue pairs. Everything that was posted completes once, and
//! nothing stays in the table.

use verbena_mem::{Sources, Targets};
use verbena_nic::profile::Service;
use verbena_nic::{Adapter, Carrier, IoOutcome, NewUlp, Shares, UlpQp};
use verbena_storage_wire::iscsi::{BHS_LEN, FromInitiator};
use verbena_wire::Stag;

use super::*;

const R2T_ONLY: Terms = Terms {
    immediate_data: false,
    ..Terms::DEFAULT
};

fn with(terms: Terms) -> Rig {
    Rig::new(Setup {
        terms,
        ..Setup::default()
    })
}

/// After an early response, a PDU that was started is completed, and the consumer may reuse its buffer.
#[test]
fn early_response_lets_the_begun_pdu_finish() {
    for cut in [1, 47, 48, 49, 500, 48 + 4998, 48 + 4999] {
        for header_digest in [false, true] {
            let mut rig = with(Terms {
                header_digest,
                max_send: 4999,
                ..R2T_ONLY
            });
            let data = [rig.sge(0, 2000), rig.sge(7000, 8000)];
            let (_, itt) = rig.command(1, Direction::Write, &data);
            let (_, other) = rig.command(2, Direction::Write, &data);
            rig.take_pdus();
            rig.receive(2);
            // Padded by one byte; three PDUs, of which one was started; and one of another command behind them.
            let wire = [
                rig.target.r2t(itt, 3, 0, 10_000),
                rig.target.r2t(other, 4, 0, 100),
            ];
            rig.feed(&wire.concat());
            assert_eq!(rig.send_some(cut), Sending::Blocked);
            let response = rig.target.response(itt);
            rig.feed(&response);
            assert_eq!(rig.sent(), [(1, Status::Success)]);
            rig.memory.write(0, &[0xee; SIZE]);
            rig.transmit();
            assert!(rig.wire.is_empty(), "whole PDUs");
            let pdus = rig.take_pdus();
            assert_eq!(pdus.len(), 2, "what had not begun is taken back");
            assert_eq!(pdus[0].data, [FILL; 4999], "as it was when it ended");
            assert_eq!(pdus[1].data, [0xee; 100]);
            let response = rig.target.response(other);
            rig.deliver(&response);
            assert_eq!(rig.sent(), [(2, Status::Success)]);
        }
    }
}

/// After an early response, a write of which no data was sent sends none.
#[test]
fn early_response_cancels_unsent_data() {
    for data_digest in [false, true] {
        let mut rig = with(Terms {
            max_send: 512,
            data_digest,
            ..R2T_ONLY
        });
        let data = [rig.sge(0, 40_000)];
        let (_, itt) = rig.command(1, Direction::Write, &data);
        rig.take_pdus();
        rig.receive(1);
        let wire = [rig.target.r2t(itt, 3, 0, 40_000), rig.target.response(itt)];
        rig.deliver(&wire.concat());
        assert!(rig.take_pdus().is_empty());
        assert_eq!(rig.sent(), [(1, Status::Success)]);
    }
}

/// A separate buffer for a command, which can be deregistered.
fn separate_buffer(rig: &Rig) -> (Buffer, Sge) {
    let buffer = Buffer::new(&rig.tpt, 3000, PD, Access::ALL).unwrap();
    let (at, stag) = (buffer.at(), buffer.stag());
    (
        buffer,
        Sge {
            addr: at,
            len: 3000,
            stag,
        },
    )
}

#[test]
fn deregistering_read_memory_ends_the_connection() {
    for data_digest in [false, true] {
        for came in [0, 1000] {
            let mut rig = with(Terms {
                data_digest,
                ..Terms::DEFAULT
            });
            let (buffer, sge) = separate_buffer(&rig);
            let (_, itt) = rig.command(1, Direction::Read, &[sge]);
            rig.command(2, Direction::None, &[]);
            let pdu = rig.target.data_in_status(itt, 0, &[1; 3000]);
            if came > 0 {
                // The header and a part of the data come before the buffer is deregistered.
                rig.feed(&pdu[..BHS_LEN]);
                rig.feed(&pdu[BHS_LEN..came]);
            }
            drop(buffer);
            rig.feed(&pdu[came..]);
            rig.assert_ended("buffers of a command");
            let ends = [(1, Status::LocProtErr), (2, Status::WrFlushErr)];
            assert_eq!(rig.sent(), ends);
        }
    }
}

/// With data digests, data is copied before it is sent; if that fails, nothing else is sent in its place.
#[test]
fn deregistering_write_memory_ends_the_connection() {
    for data_digest in [false, true] {
        for immediate_data in [false, true] {
            let mut rig = with(Terms {
                data_digest,
                immediate_data,
                max_send: 1000,
                ..Terms::DEFAULT
            });
            let (buffer, sge) = separate_buffer(&rig);
            let (_, itt) = rig.command(1, Direction::Write, &[sge]);
            rig.take_pdus();
            rig.receive(2);
            rig.post(2, Direction::None, &[]);
            drop(buffer);
            let r2t = rig.target.r2t(itt, 1, 1000, 2000);
            rig.deliver(&r2t);
            assert!(rig.take_pdus().is_empty(), "no data that is not its data");
            rig.assert_ended("local memory");
            let ends = [(1, Status::LocProtErr), (2, Status::WrFlushErr)];
            assert_eq!(rig.sent(), ends);
        }
    }
}

#[test]
fn deregistering_half_sent_write_memory_ends_the_connection() {
    for responds in [false, true] {
        let mut rig = with(R2T_ONLY);
        let (buffer, sge) = separate_buffer(&rig);
        let (_, itt) = rig.command(1, Direction::Write, &[sge]);
        rig.command(2, Direction::None, &[]);
        rig.receive(2);
        let r2t = rig.target.r2t(itt, 1, 0, 3000);
        rig.feed(&r2t);
        rig.send_some(1000);
        drop(buffer);
        if responds {
            let response = rig.target.response(itt);
            rig.feed(&response);
        } else {
            assert_eq!(rig.transmit(), Sending::Ended);
        }
        rig.assert_ended("memory");
        let ends = [(1, Status::LocProtErr), (2, Status::WrFlushErr)];
        assert_eq!(rig.sent(), ends);
    }
}

/// Data that was read together with a header is copied to the same places, and counted.
#[test]
fn data_staged_with_its_header_is_copied() {
    let guess = {
        let mut rig = with(Terms::DEFAULT);
        drop(separate_buffer(&rig));
        rig.command(1, Direction::Read, &[]).1
    };
    for gone in [false, true] {
        let mut rig = with(Terms::DEFAULT);
        let (buffer, sge) = separate_buffer(&rig);
        drop(buffer);
        let kept = [rig.sge(10, 700), rig.sge(2000, 300)];
        // Two PDUs come while no command reads and no receive is posted: both are staged.
        let bytes = pattern(3, 1000);
        let wire = [
            rig.target.nop(),
            rig.target.data_in_status(guess, 0, &bytes),
        ];
        rig.feed(&wire.concat());
        assert!(rig.inbox.is_empty());
        rig.receive_of(1000);
        rig.receive_of(1000);
        rig.post(1, Direction::Read, &kept);
        rig.transmit();
        assert_eq!(rig.target.last_itt, guess);
        if gone {
            rig.qp.lock.lock_and_run(
                |inner| inner.commands.get_mut(0).unwrap().data[1] = sge,
                |_| (),
            );
        }
        rig.read();
        let counters = rig.qp.view().counters;
        assert_eq!((counters.placed, counters.copied), (0, 1000));
        if gone {
            rig.assert_ended("buffers of a command");
            assert_eq!(rig.sent(), [(1, Status::LocProtErr)]);
        } else {
            assert_eq!(rig.memory.read(10, 700), bytes[..700]);
            assert_eq!(rig.memory.read(2000, 300), bytes[700..]);
            assert_eq!(rig.sent(), [(1, Status::Success)]);
        }
    }
}

/// V5: a command whose memory is pending waits, and all requests behind it except those for immediate delivery.
#[test]
fn command_waits_for_pending_memory() {
    for comes in [true, false] {
        let mut rig = with(Terms::DEFAULT);
        let (buffer, reserved) = Buffer::pending(&rig.tpt, 600, PD, Access::ALL).unwrap();
        let (at, stag) = (buffer.at(), buffer.stag());
        let data = [
            rig.sge(0, 400),
            Sge {
                addr: at,
                len: 600,
                stag,
            },
        ];
        rig.receive(3);
        rig.post(1, Direction::Read, &data);
        rig.post(2, Direction::None, &[]);
        for _ in 0..3 {
            assert_eq!(rig.transmit(), Sending::Idle);
        }
        assert!(rig.take_pdus().is_empty());
        let ping = [&[0x40, 0x80][..], &[0; 14], &[0xff; 8], &[0; 24]].concat();
        rig.post_pdu(3, *ping.first_chunk().unwrap(), b"x");
        rig.transmit();
        assert_eq!(rig.take_pdus().len(), 1);
        assert_eq!(rig.sent(), [(3, Status::Success)]);
        if comes {
            assert_eq!(reserved.complete().waiters, [7]);
            rig.transmit();
            let pdus = rig.take_pdus();
            let FromInitiator::ScsiCommand(pdu) = pdus[0].pdu else {
                panic!("{:?}", pdus[0].pdu)
            };
            assert_eq!((pdu.expected_len, pdus.len()), (1000, 2));
            let pdu = rig.target.data_in_status(pdu.itt, 0, &[9; 1000]);
            rig.deliver(&pdu);
            assert_eq!(buffer.read(0, 600), [9; 600]);
            assert_eq!(rig.sent(), [(1, Status::Success)]);
        } else {
            assert_eq!(reserved.fail(), [7]);
            rig.transmit();
            assert_eq!(rig.state(), QpState::Sqe);
            let ends = [(1, Status::LocProtErr), (2, Status::WrFlushErr)];
            assert_eq!(rig.sent(), ends);
        }
    }
}

/// V5: a receive whose memory is pending holds the stream until it is ready.
#[test]
fn receive_waits_for_pending_memory() {
    for comes in [true, false] {
        let mut rig = with(Terms::DEFAULT);
        let (buffer, reserved) = Buffer::pending(&rig.tpt, 600, PD, Access::ALL).unwrap();
        let (at, stag) = (buffer.at(), buffer.stag());
        let scatter = &[Sge {
            addr: at,
            len: 600,
            stag,
        }];
        let wr = ReceiveWr { id: 50, scatter };
        rig.qp.post_receive(&wr, &mut rig.out).unwrap();
        rig.post(1, Direction::None, &[]);
        rig.transmit();
        let response = rig.target.response(rig.target.last_itt);
        rig.feed(&response);
        assert_eq!(rig.read(), Receiving::Held);
        assert_eq!(rig.qp.view().receives, 1);
        assert!(rig.sent().is_empty());
        let waiters = if comes {
            reserved.complete().waiters
        } else {
            reserved.fail()
        };
        assert_eq!(waiters, [7]);
        rig.read();
        let wc = poll(&rig.qp.init().recv_cq);
        if comes {
            assert_eq!((wc[0].id, wc[0].status), (50, Status::Success));
            assert_eq!(buffer.read(0, 48), response);
            assert_eq!(rig.sent(), [(1, Status::Success)]);
        } else {
            assert_eq!((wc[0].id, wc[0].status), (50, Status::LocProtErr));
            assert_eq!(rig.state(), QpState::Err);
        }
    }
}

/// The consumer removed a command's table entry by its tag: no panic, and the command is flushed with the queue pair.
#[test]
fn command_with_a_removed_entry_is_flushed() {
    for responds in [false, true] {
        let mut rig = with(Terms::DEFAULT);
        let (_, itt) = rig.command(1, Direction::None, &[]);
        rig.tpt.deregister(Stag::new(itt)).unwrap();
        if responds {
            let response = rig.target.response(itt);
            rig.deliver(&response);
            assert_eq!(rig.qp.view().counters.dropped, 1);
        }
        rig.qp.fail("enough", &mut rig.out);
        rig.assert_ended("enough");
        assert_eq!(rig.sent(), [(1, Status::WrFlushErr)]);
    }
}

/// A carrier with one result.
struct FixedCarrier(IoOutcome);

impl Carrier for FixedCarrier {
    fn read(&mut self, _: &mut Targets<'_>) -> IoOutcome {
        self.0
    }

    fn write(&mut self, _: &Sources<'_>) -> IoOutcome {
        self.0
    }
}

/// A fixture in full use: data partly sent, data partly received, requests and receives outstanding. Sends 1 to 5, receives 2 to 7.
fn busy() -> Rig {
    let mut rig = Rig::new(Setup {
        terms: R2T_ONLY,
        ..Setup::default()
    });
    let data = [rig.sge(0, 5000)];
    let (_, write) = rig.command(1, Direction::Write, &data);
    let into = [rig.sge(8000, 5000)];
    let (_, read) = rig.command(2, Direction::Read, &into);
    rig.receive(5);
    let r2t = rig.target.r2t(write, 1, 0, 5000);
    rig.feed(&r2t);
    assert_eq!(rig.received().len(), 1);
    assert_eq!(rig.send_some(1000), Sending::Blocked);
    let pdu = rig.target.data_in_status(read, 0, &[1; 5000]);
    rig.feed(&pdu[..2000]);
    rig.qp
        .lock
        .lock_and_run(|inner| inner.window.max_cmd_sn = 2, |_| ());
    rig.post(3, Direction::None, &[]);
    rig.post_pdu(4, [0; 48], &[]);
    let mut urgent = [0; 48];
    urgent[0] = 0x40;
    rig.post_pdu(5, urgent, &[]);
    rig.events();
    rig
}

#[track_caller]
fn assert_all_flushed(rig: &mut Rig, cause: &str) {
    rig.assert_ended(cause);
    let mut sends = rig.sent();
    sends.sort_by_key(|(id, _)| *id);
    let flushed = Status::WrFlushErr;
    assert_eq!(sends, [1, 2, 3, 4, 5].map(|id| (id, flushed)));
    let ups: Vec<(u64, Status)> = rig.received().iter().map(|up| (up.id, up.status)).collect();
    assert_eq!(ups, [2, 3, 4, 5, 6, 7].map(|id| (id, flushed)));
    // Only once.
    rig.qp.fail("again", &mut rig.out);
    rig.qp.handle_closed("again", &mut rig.out);
    assert_eq!(rig.read(), Receiving::Ended);
    assert_eq!(rig.transmit(), Sending::Ended);
    assert_eq!((rig.sent().len(), rig.received().len()), (0, 0));
    rig.assert_ended(cause);
}

#[test]
fn every_end_completes_everything_once() {
    let lost = [Event::Disconnected { qp: 7 }, Event::QpFatal { qp: 7 }];
    let fatal = &lost[1..];
    type End = (&'static str, fn(&mut Rig));
    let read = |rig: &mut Rig, moved| {
        let end = rig.qp.receive(&mut FixedCarrier(moved), &mut rig.out);
        assert_eq!(end, Receiving::Ended);
    };
    let write = |rig: &mut Rig, moved| {
        let end = rig.qp.try_transmit(&mut FixedCarrier(moved), &mut rig.out);
        assert_eq!(end, Some(Sending::Ended));
    };
    for (moved, cause, events) in [
        (IoOutcome::Eof, "the target closed", &lost[..]),
        (IoOutcome::Broken, "broke", &lost),
        (IoOutcome::Fault, "not mapped", fatal),
    ] {
        let mut rig = busy();
        read(&mut rig, moved);
        assert_eq!(rig.events(), events);
        assert_all_flushed(&mut rig, cause);
        if moved != IoOutcome::Eof {
            let mut rig = busy();
            // A PDU for immediate delivery completes when it is built, if there was room to build it.
            rig.qp.queues.lock().immediate.clear();
            write(&mut rig, moved);
            assert_eq!(rig.events(), events);
            rig.qp.queues.lock().sends_outstanding = 0;
            rig.assert_ended(cause);
            assert_eq!(rig.sent().len(), 4);
        }
    }
    let ends: [End; 2] = [
        ("said so", |rig| rig.qp.fail("said so", &mut rig.out)),
        ("overflowed", |rig| rig.qp.fail_overflowed(&mut rig.out)),
    ];
    for (cause, end) in ends {
        let mut rig = busy();
        end(&mut rig);
        assert_eq!(rig.events(), fatal);
        assert_all_flushed(&mut rig, cause);
    }
    let mut rig = busy();
    rig.qp.handle_closed("gone", &mut rig.out);
    assert_eq!(rig.events(), lost);
    assert_all_flushed(&mut rig, "gone");
}

#[test]
fn nothing_completes_after_retirement() {
    let mut rig = busy();
    assert!(rig.qp.retire(&mut Outbox::new()));
    assert!(!rig.qp.retire(&mut Outbox::new()), "once");
    assert_eq!((rig.sent().len(), rig.received().len()), (0, 0));
    rig.assert_ended("destroyed");
    let wr = Rig::wr(9, Direction::None, &[]);
    let gone = crate::wr::PostError::State(QpState::Reset);
    assert_eq!(rig.qp.post_command(&wr, &mut rig.out), Err(gone));
    let receive = ReceiveWr {
        id: 9,
        scatter: &[],
    };
    assert_eq!(rig.qp.post_receive(&receive, &mut rig.out), Err(gone));
    assert_eq!(rig.read(), Receiving::Ended);
    assert_eq!(rig.transmit(), Sending::Ended);
    assert_eq!((rig.sent().len(), rig.received().len()), (0, 0));
    assert!(rig.events().is_empty(), "no event is raised");
}

/// On a function: an overflow fails the queue pairs of the completion queue, once, and destruction leaves nothing.
#[test]
fn cq_overflow_fails_its_queue_pairs_once() {
    let shares = Shares {
        qps: 8,
        cqs: 8,
        srqs: 8,
        ssqs: 8,
        pds: 8,
        stags: 30,
        event_queues: 8,
        vectors: 8,
    };
    for small in ["send", "recv"] {
        let adapter = Adapter::new(shares, Policy::Verbs, 1).unwrap();
        let function = adapter.function(0).unwrap();
        let pd = function.allocate_pd().unwrap();
        let cq = |entries| function.create_cq(entries).unwrap();
        let (send, recv) = match small {
            "send" => (cq(2), cq(100)),
            _ => (cq(100), cq(2)),
        };
        let new = NewUlp {
            service: Service::Iscsi,
            pd,
            send_cq: send.number(),
            recv_cq: recv.number(),
            srq: None,
            limits: Limits::default(),
        };
        let make = |init| Qp::new(init, OnFailure::Reactive);
        let qp = function.create_ulp(new, make).unwrap();
        let mut out = Outbox::new();
        assert!(qp.attach());
        qp.begin(Terms::DEFAULT, &mut out);
        qp.lock
            .lock_and_run(|inner| inner.window.max_cmd_sn = 64, |_| ());
        let mut target = Target::new();
        for id in 0..6 {
            let receive = ReceiveWr { id, scatter: &[] };
            qp.post_receive(&receive, &mut out).unwrap();
        }
        for id in 0..5 {
            let wr = Rig::wr(id, Direction::None, &[]);
            qp.post_command(&wr, &mut out).unwrap();
        }
        let mut carrier = MemoryCarrier::with_room(usize::MAX);
        qp.try_transmit(&mut carrier, &mut out);
        target.receive(carrier.output);
        let itts: Vec<u32> = target
            .received
            .iter()
            .map(|sent| u32::from_be_bytes(sent.bhs[16..20].try_into().unwrap()))
            .collect();
        let wire: Vec<u8> = itts.iter().flat_map(|itt| target.response(*itt)).collect();
        let mut carrier = MemoryCarrier::with_input(&wire);
        while let Receiving::Some(_) = qp.receive(&mut carrier, &mut out) {}
        function.settle(&mut out);
        assert_eq!(qp.state(), QpState::Err);
        let fatal = out
            .events()
            .iter()
            .filter(|event| matches!(event, Event::QpFatal { .. }));
        assert_eq!(fatal.count(), 1, "{small}");
        assert_eq!(qp.view().cause.unwrap(), "a completion queue overflowed");
        let view = qp.view();
        assert_eq!((view.sends, view.commands, view.receives), (0, 0, 0));
        assert_eq!(poll(if small == "send" { &send } else { &recv }).len(), 2);
        let out = &mut Outbox::new();
        function.destroy_ulp(qp.number(), out).unwrap();
        assert!(function.destroy_ulp(qp.number(), out).is_err());
        assert_eq!(poll(&send).len() + poll(&recv).len(), 0);
    }
}
