//! The seven checks of M12 on R2T and Data-In, one by one, and the negotiated limits. A PDU that fails one is delivered whole, writes no
//! memory and sends nothing, and the command it names, if any, continues.

use verbena_mem::WindowType;
use verbena_storage_wire::iscsi::{DataIn, Lengths, NO_TAG};
use verbena_wire::Stag;

use super::target::{Sent, r2t};
use super::*;

const LEN: u32 = 2000;

/// Offset and length that are valid for every command here.
const GOOD: (u32, u32) = (100, 500);

/// A fixture with a command of each direction, on the first and the second half of its memory.
struct Both {
    rig: Rig,
    read: (CommandId, u32),
    write: (CommandId, u32),
}

fn both(setup: Setup) -> Both {
    both_on(&Arc::new(Tpt::new(1..1000, Policy::Verbs, 5)), setup)
}

fn both_on(tpt: &Arc<Tpt>, setup: Setup) -> Both {
    let terms = Terms {
        immediate_data: false,
        ..setup.terms
    };
    let mut rig = Rig::with_tpt(tpt, Setup { terms, ..setup });
    let data = [rig.sge(1000, LEN)];
    let read = rig.command(1, Direction::Read, &data);
    let data = [rig.sge(50_000, LEN)];
    let write = rig.command(2, Direction::Write, &data);
    rig.take_pdus();
    Both { rig, read, write }
}

impl Both {
    fn data_in(&mut self, itt: u32, (offset, len): (u32, u32)) -> Vec<u8> {
        self.rig
            .target
            .data_in(itt, offset, &pattern(1, len as usize))
    }

    fn r2t(&mut self, itt: u32, (offset, len): (u32, u32)) -> Vec<u8> {
        self.rig.target.r2t(itt, 0x55, offset, len)
    }

    /// The PDU is delivered whole and has no other effect.
    #[track_caller]
    fn assert_refused(&mut self, pdu: &[u8]) {
        let before = self.rig.qp.view().counters;
        // The receives for the two responses are in front; this is one more.
        self.rig.receive(1);
        self.rig.deliver(pdu);
        let ups = self.rig.received();
        assert_eq!(ups.len(), 1);
        assert_eq!((ups[0].status, ups[0].command), (Status::Success, None));
        let lengths = Lengths::of(pdu.first_chunk().unwrap());
        assert_eq!(ups[0].bytes, pdu[..48 + lengths.data as usize], "all of it");
        self.rig.assert_untouched();
        assert!(self.rig.take_pdus().is_empty(), "nothing leaves");
        let after = self.rig.qp.view().counters;
        assert_eq!(after.refused, before.refused + 1);
        assert_eq!((after.placed, after.copied), (before.placed, before.copied));
        assert_eq!(after.bytes_out, before.bytes_out);
        assert_eq!(self.rig.state(), QpState::Rts);
    }

    /// Data-In and R2T that name this command.
    #[track_caller]
    fn assert_both_refused(&mut self, itt: u32, range: (u32, u32)) {
        let pdu = self.data_in(itt, range);
        self.assert_refused(&pdu);
        let pdu = self.r2t(itt, range);
        self.assert_refused(&pdu);
    }

    /// The commands continue and end with success.
    #[track_caller]
    fn assert_both_complete(mut self) {
        self.rig.receive(1);
        let bytes = pattern(7, LEN as usize);
        let wire = [
            self.rig.target.data_in_status(self.read.1, 0, &bytes),
            self.rig.target.r2t(self.write.1, 3, 0, LEN),
        ];
        self.rig.deliver(&wire.concat());
        assert_eq!(self.rig.memory.read(1000, LEN as usize), bytes);
        let sent: Vec<Sent> = self.rig.take_pdus();
        let out: Vec<u8> = sent.iter().flat_map(|sent| sent.data.clone()).collect();
        assert_eq!(out, [FILL; LEN as usize]);
        let response = self.rig.target.response(self.write.1);
        self.rig.deliver(&response);
        let names: Vec<Option<u32>> = self.rig.received().iter().map(|up| up.command).collect();
        assert_eq!(names, [Some(self.read.0.0), None, Some(self.write.0.0)]);
        let done = [(1, Status::Success), (2, Status::Success)];
        assert_eq!(self.rig.sent(), done);
    }
}

#[test]
fn check_one_refuses_tags_without_an_entry() {
    for way in Split::ALL {
        let mut both = both(Setup {
            split: way,
            ..Setup::default()
        });
        // An unused entry, beyond the table, the reserved tag, and the first entry.
        for tag in [900 << 8, 0x00ff_ff00, NO_TAG, 0] {
            both.assert_both_refused(tag, GOOD);
        }
        both.assert_both_complete();
    }
}

#[test]
fn check_two_refuses_regions_and_windows() {
    let mut both = both(Setup::default());
    let region = both.rig.memory.stag();
    both.assert_both_refused(region.get(), GOOD);
    let window = both.rig.tpt.allocate_window(WindowType::One, PD).unwrap();
    both.assert_both_refused(window.get(), GOOD);
    both.assert_both_complete();
}

#[test]
fn check_three_refuses_another_protection_domain() {
    let tpt = Arc::new(Tpt::new(1..1000, Policy::Verbs, 5));
    let mut ours = both_on(&tpt, Setup::default());
    let theirs = both_on(
        &tpt,
        Setup {
            pd: Pd(2),
            number: 8,
            ..Setup::default()
        },
    );
    let data_in = ours.data_in(theirs.read.1, GOOD);
    ours.assert_refused(&data_in);
    let r2t = ours.r2t(theirs.write.1, GOOD);
    ours.assert_refused(&r2t);
    theirs.rig.assert_untouched();
    ours.assert_both_complete();
    theirs.assert_both_complete();
}

#[test]
fn check_four_refuses_a_wrong_key() {
    let mut both = both(Setup::default());
    for change in [1, 0x80, 0xff] {
        let pdu = both.data_in(both.read.1 ^ change, GOOD);
        both.assert_refused(&pdu);
        let pdu = both.r2t(both.write.1 ^ change, GOOD);
        both.assert_refused(&pdu);
    }
    both.assert_both_complete();
}

/// The tag of a command that has ended is invalid, also when its table entry is used again.
#[test]
fn check_four_refuses_tags_of_ended_commands() {
    // Entries for the memory, the receives, and four commands.
    let tpt = Arc::new(Tpt::new(1..7, Policy::Verbs, 5));
    let mut both = both_on(&tpt, Setup::default());
    let mut old = Vec::new();
    for id in 10..30 {
        let (_, itt) = both.rig.command(id, Direction::Read, &[]);
        let response = both.rig.target.response(itt);
        both.rig.deliver(&response);
        assert!(!old.contains(&itt));
        old.push(itt);
    }
    let again = old.iter().filter(|itt| **itt >> 8 == old[19] >> 8).count();
    assert!(again > 1, "the same place, another instance");
    let seen = (both.rig.received().len(), both.rig.sent().len());
    assert_eq!((seen, both.rig.take_pdus().len()), ((20, 20), 20));
    for itt in old {
        both.assert_both_refused(itt, (0, 1));
    }
    both.assert_both_complete();
}

#[test]
fn check_five_refuses_ranges_out_of_bounds() {
    let mut both = both(Setup::default());
    let out = [
        (0, LEN + 1),
        (1, LEN),
        (LEN, 1),
        (LEN - 1, 2),
        (u32::MAX, 1),
        (u32::MAX - 499, 500),
        (u32::MAX, 600),
    ];
    for (offset, len) in out {
        // The PDU must fit a receive of this fixture.
        let len_in = len.min(900);
        let offset_in = offset.max(LEN + 1 - len_in.min(LEN));
        let pdu = both.data_in(both.read.1, (offset_in, len_in));
        both.assert_refused(&pdu);
        let pdu = both.r2t(both.write.1, (offset, len));
        both.assert_refused(&pdu);
    }
    let pdu = both.r2t(both.write.1, (0, u32::MAX));
    both.assert_refused(&pdu);
    // Not even length 0 beyond the end.
    let pdu = both.data_in(both.read.1, (LEN + 1, 0));
    both.assert_refused(&pdu);
    both.assert_both_complete();
}

/// Normally checks six and seven fail together: a read gives the target the right to write, and a write the right to read.
#[test]
fn checks_six_and_seven_refuse_swapped_tags() {
    let mut both = both(Setup::default());
    let pdu = both.data_in(both.write.1, GOOD);
    both.assert_refused(&pdu);
    let pdu = both.r2t(both.read.1, GOOD);
    both.assert_refused(&pdu);
    both.assert_both_complete();
}

fn set_direction(both: &Both, itt: u32, direction: Direction) {
    both.rig.qp.lock.lock_and_run(
        |inner| {
            let stag = Some(Stag::new(itt));
            let found =
                (0..9).find(|slot| inner.commands.get(*slot).is_some_and(|c| c.stag == stag));
            inner.commands.get_mut(found.unwrap()).unwrap().direction = direction;
        },
        |_| (),
    );
}

/// The direction is right, and the entry lacks the access right.
#[test]
fn check_six_refuses_missing_access_rights() {
    let mut both = both(Setup::default());
    let (read, write) = (both.read.1, both.write.1);
    set_direction(&both, read, Direction::Write);
    set_direction(&both, write, Direction::Read);
    let pdu = both.r2t(read, GOOD);
    both.assert_refused(&pdu);
    let pdu = both.data_in(write, GOOD);
    both.assert_refused(&pdu);
    set_direction(&both, read, Direction::Read);
    set_direction(&both, write, Direction::Write);
    both.assert_both_complete();
}

/// The entry has the access right, and the direction is wrong.
#[test]
fn check_seven_refuses_the_wrong_direction() {
    let mut both = both(Setup::default());
    let (read, write) = (both.read.1, both.write.1);
    set_direction(&both, read, Direction::Write);
    set_direction(&both, write, Direction::Read);
    let pdu = both.data_in(read, GOOD);
    both.assert_refused(&pdu);
    let pdu = both.r2t(write, GOOD);
    both.assert_refused(&pdu);
    set_direction(&both, read, Direction::None);
    set_direction(&both, write, Direction::None);
    let pdu = both.data_in(read, GOOD);
    both.assert_refused(&pdu);
    let pdu = both.r2t(write, GOOD);
    both.assert_refused(&pdu);
    set_direction(&both, read, Direction::Read);
    set_direction(&both, write, Direction::Write);
    both.assert_both_complete();
}

/// A protection domain may be shared by queue pairs, a command may not.
#[test]
fn command_of_another_queue_pair_is_refused() {
    let tpt = Arc::new(Tpt::new(1..1000, Policy::Verbs, 5));
    let mut ours = both_on(&tpt, Setup::default());
    let theirs = both_on(
        &tpt,
        Setup {
            number: 8,
            ..Setup::default()
        },
    );
    let data_in = ours.data_in(theirs.read.1, GOOD);
    ours.assert_refused(&data_in);
    let r2t = ours.r2t(theirs.write.1, GOOD);
    ours.assert_refused(&r2t);
    theirs.rig.assert_untouched();
    ours.assert_both_complete();
    theirs.assert_both_complete();
}

#[test]
fn r2t_beyond_negotiated_limits_is_refused() {
    let terms = Terms {
        max_burst: 2000,
        max_r2t: 2,
        ..Terms::DEFAULT
    };
    let mut both = both(Setup {
        terms: Terms {
            max_burst: 1999,
            ..terms
        },
        ..Setup::default()
    });
    let itt = both.write.1;
    let pdu = both.r2t(itt, (0, LEN));
    both.assert_refused(&pdu);
    let pdu = both.rig.target.r2t(itt, NO_TAG, 0, 10);
    both.assert_refused(&pdu);

    // Two outstanding, of which nothing was sent; a third is too many until one was sent.
    let mut rig = Rig::new(Setup {
        terms: Terms {
            immediate_data: false,
            max_send: 50,
            ..terms
        },
        ..Setup::default()
    });
    let data = [rig.sge(0, 6000)];
    let (_, itt) = rig.command(1, Direction::Write, &data);
    rig.take_pdus();
    rig.receive(5);
    let wire = [(1, 0), (2, 2000), (3, 4000)].map(|(ttt, at)| rig.target.r2t(itt, ttt, at, 2000));
    rig.feed(&wire.concat());
    assert_eq!(rig.qp.view().counters.refused, 1);
    rig.transmit();
    assert_eq!(rig.take_pdus().len(), 80);
    rig.deliver(&wire[2]);
    assert_eq!(rig.take_pdus().len(), 40);
    assert_eq!(rig.qp.view().counters.refused, 1);
    let ups = rig.received();
    assert_eq!(ups.len(), 4);
    for (up, pdu) in ups.iter().zip([0, 1, 2, 2]) {
        assert_eq!(up.bytes, wire[pdu]);
    }
}

/// An R2T of length 0 and one with a data segment are delivered, and no data is sent.
#[test]
fn invalid_r2t_is_delivered_and_sends_nothing() {
    let mut both = both(Setup::default());
    let empty = r2t(both.write.1, 3, 0, 0).emit();
    let mut full = r2t(both.write.1, 3, 0, 10).emit();
    full[7] = 4;
    both.rig.receive(2);
    let wire = [
        both.rig.target.pdu(&empty, &[]),
        both.rig.target.pdu(&full, &[1, 2, 3, 4]),
    ];
    both.rig.deliver(&wire.concat());
    let ups = both.rig.received();
    assert_eq!(ups[0].bytes, wire[0]);
    assert_eq!(ups[1].bytes, wire[1]);
    assert!(both.rig.take_pdus().is_empty());
    both.assert_both_complete();
}

/// The StatSN of a Data-In that fails a check is consumed: the next status is in sequence.
#[test]
fn refused_data_in_with_status_consumes_its_statsn() {
    for way in Split::ALL {
        let mut both = both(Setup {
            split: way,
            ..Setup::default()
        });
        let itt = both.read.1 ^ 1;
        let stat_sn = both.rig.target.status();
        let pdu = DataIn {
            is_final: true,
            status: Some(0),
            stat_sn,
            ..both.rig.target.data_in_header(itt, 0, 100)
        };
        let pdu = both.rig.target.pdu(&pdu.emit(), &pattern(0, 100));
        both.assert_refused(&pdu);
        both.assert_both_complete();
    }
}
