//! The text of a failed run, and that a panic in a run is reported and does not end the other runs.
//! The printed command line names the seed and the workload. The seeds themselves are run by tests/seeds.rs.

use verbena_stream::Time;

use super::{Failure, run_session};
use crate::link::LinkOptions;
use crate::peer::Profile;
use crate::plan::Builder;
use crate::rng::Rng;
use crate::session::Session;
use crate::workload::Workload;
use crate::world::{Event, EventKind};

#[test]
fn failure_text_names_the_command_to_repeat() {
    let event = Event {
        at: Time::from_nanos(1_500_000),
        side: 1,
        kind: EventKind::Arrived(7),
    };
    let failure = Failure {
        seed: 42,
        workload: Workload::Rnr,
        why: "once: side 0: 3 completions for 2 works".into(),
        options: "…".into(),
        events: vec![event],
    };
    let text = failure.to_string();
    assert!(text.starts_with("seed 42 failed in rnr: once: side 0"));
    assert!(text.contains("1.500000ms responder gets 7 bytes"));
    assert!(text.ends_with("reproduce: cargo xtask sim --seed 42 --workload rnr"));
}

#[test]
fn panic_inside_a_run_is_reported() {
    let clumsy = Profile {
        private_data: vec![0; 600],
        ..Profile::default()
    };
    let session = Session {
        profiles: [Profile::default(), clumsy],
        links: [LinkOptions::without_faults(), LinkOptions::without_faults()],
        reset_after: None,
        plan: Builder::new(Rng::new(0), 100).supply_all(),
    };
    let crash = run_session(&session, &mut Rng::new(0), Time::ZERO).expect_err("it panics");
    let why = crash.why;
    assert!(why.starts_with("panic: a request waits and the"), "{why}");
    let request = |e: &Event| e.side == 1 && matches!(e.kind, EventKind::Arrived(_));
    assert!(crash.events.iter().any(request), "what came before it");
}
