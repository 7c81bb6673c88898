//! The event loop itself: the same seed gives the same events, and damage by an actor is detected.
//! The checkers' own tests are with the checkers.

use verbena_stream::{Role, Terms, Time};

use super::{Transcript, World};
use crate::actor::{Actor, Leftovers};
use crate::checker;
use crate::image::Image;
use crate::peer::{Peer, Profile};
use crate::plan::Builder;
use crate::rng::Rng;
use crate::session::Session;
use crate::work::{Report, Work};
use crate::workload::Workload;

fn transcripts(seed: u64) -> Vec<Transcript> {
    let mut rng = Rng::new(seed);
    let workload = rng.pick(&Workload::ALL);
    let sessions = workload.sessions(&mut rng);
    let worlds = sessions.into_iter();
    worlds
        .map(|s| World::of_peers(s, &mut rng, Time::ZERO).run())
        .collect()
}

#[test]
fn a_seed_gives_the_same_events_every_time() {
    for seed in 0..12 {
        assert!(
            transcripts(seed) == transcripts(seed),
            "seed {seed} differs from itself"
        );
    }
}

#[test]
fn two_seeds_give_different_events() {
    assert!(transcripts(1) != transcripts(2));
}

/// A peer that damages the last byte of everything it sends behind its startup frame.
struct CorruptingPeer {
    peer: Peer,
    sent: usize,
    corrupts: bool,
}

impl Actor for CorruptingPeer {
    fn receive(&mut self, bytes: &[u8], now: Time) {
        self.peer.receive(bytes, now);
    }
    fn transmit(&mut self, room: usize, now: Time) -> Vec<u8> {
        let mut bytes = self.peer.transmit(room, now);
        if self.corrupts && self.sent > 0 && bytes.len() > 1000 {
            bytes[500] ^= 1;
        }
        self.sent += bytes.len();
        bytes
    }
    fn deadline(&self) -> Option<Time> {
        self.peer.deadline()
    }
    fn handle_timeout(&mut self, now: Time) {
        self.peer.handle_timeout(now);
    }
    fn handle_eof(&mut self, reset: bool, now: Time) {
        self.peer.handle_eof(reset, now);
    }
    fn wants_close(&self) -> bool {
        self.peer.wants_close()
    }
    fn post(&mut self, id: u64, work: Work, now: Time) {
        self.peer.post(id, work, now);
    }
    fn supply(&mut self, id: u64, capacity: u32, now: Time) {
        self.peer.supply(id, capacity, now);
    }
    fn close(&mut self, now: Time) {
        self.peer.close(now);
    }
    fn poll_reports(&mut self) -> Vec<Report> {
        self.peer.poll_reports()
    }
    fn image(&self) -> Image {
        self.peer.image()
    }
    fn leftovers(&self) -> Leftovers {
        self.peer.leftovers()
    }
}

/// One long Write from a damaging or a correct peer, without checksums.
fn run_with(lies: bool) -> Result<(), String> {
    let mut builder = Builder::new(Rng::new(1), 2000);
    builder.write(0, 1200);
    let profile = Profile {
        terms: Terms {
            crc: false,
            ..Terms::default()
        },
        ..Profile::default()
    };
    let calm = crate::link::LinkOptions::without_faults();
    let session = Session {
        profiles: [profile.clone(), profile],
        links: [calm.clone(), calm],
        reset_after: None,
        plan: builder.supply_all(),
    };
    let actors = [0, 1].map(|k| {
        let role = [Role::Initiator, Role::Responder][k];
        let regions = &session.plan.sides[k].regions;
        let profile = session.profiles[k].clone();
        CorruptingPeer {
            peer: Peer::new(role, profile, regions, Rng::new(2), Time::ZERO),
            sent: 0,
            corrupts: lies && k == 0,
        }
    });
    let transcript = World::new(session, actors, &mut Rng::new(3), Time::ZERO).run();
    checker::check(&transcript)
}

#[test]
fn damaged_byte_without_crc_is_found() {
    assert_eq!(run_with(false), Ok(()));
    let why = run_with(true).expect_err("the damage goes unnoticed");
    assert!(why.starts_with("bytes: side 1: region"), "{why}");
}
