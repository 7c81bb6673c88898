//! One side is killed or stopped during a run, and the behaviour of the other is checked.
//! A sender must end with an error completion and never crash; a stop of some seconds must have no effect.
//! The number of rounds is large enough for the disturbance to happen during the run.

use std::time::Duration;

use super::case::{Case, Disturbance, Ending, Figure, PEER, PORT, Side};
use super::pingpong;

/// Time of the disturbance, after the start of the client.
const MOMENT: Duration = Duration::from_millis(700);
const PAUSE: Duration = Duration::from_secs(3);
/// More rounds than any machine completes before the disturbance.
const ENDLESS: u64 = 100_000_000;
/// At least a second at the highest speed measured: asleep, and polling shared memory.
const ROUNDS: u64 = 100_000;
const POLLED_ROUNDS: u64 = 600_000;
/// The same for messages in one direction, through shared memory and over TCP.
pub(super) const MESSAGES: &str = "3100000";
pub(super) const MESSAGES_TCP: &str = "900000";

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (victim, word) in [(0, "server"), (1, "client")] {
        for (mode, options) in [("poll", &[][..]), ("events", &["-e"][..])] {
            let name = format!("faults/kill/rc_pingpong/{mode}/{word}");
            let case = pingpong::pair(&name, "rc", options, ENDLESS);
            // Either side may have no unacknowledged request at that moment.
            cases.push(killed(case, victim, Ending::FailureOrEndless).quick_if(mode == "events"));
            let name = format!("faults/pause/rc_pingpong/{mode}/{word}");
            let rounds = if mode == "poll" {
                POLLED_ROUNDS
            } else {
                ROUNDS
            };
            let case = pingpong::pair(&name, "rc", options, rounds);
            cases.push(paused(case, victim).quick_if(mode == "poll" && victim == 0));
        }
        let name = format!("faults/kill/ib_send_bw/{word}");
        let case = bandwidth(&name, &["-n", "100000000", "-N"]);
        // The client sends all the time; the server only receives.
        let ending = if victim == 0 {
            Ending::Failure
        } else {
            Ending::FailureOrEndless
        };
        cases.push(killed(case, victim, ending).quick_if(victim == 0));
        let name = format!("faults/pause/ib_send_bw/{word}");
        let case = bandwidth(&name, &["-n", MESSAGES, "-N"]);
        cases.push(paused(case, victim).quick_if(victim == 1));
    }
    cases
}

fn bandwidth(name: &str, options: &[&str]) -> Case {
    let side = |last: &[&str]| {
        let head = ["ib_send_bw", "-F", "-s", "4096", "-p", PORT];
        Side::new([&head[..], options, last].concat())
    };
    Case::pair(name, side(&[]), side(&[PEER]))
}

/// Kills side `victim`; the other must end as `other` says.
fn killed(mut case: Case, victim: usize, other: Ending) -> Case {
    for (index, side) in case.sides.iter_mut().enumerate() {
        side.must_print.clear();
        side.ending = if index == victim {
            Ending::Killed
        } else {
            other
        };
    }
    case.figure = Figure::None;
    case.disturbance = Some((victim, MOMENT, Disturbance::Kill));
    // Far above `dead_after` and the time that a request is retried, for busy machines.
    case.limit(if other == Ending::FailureOrEndless {
        6
    } else {
        30
    })
}

fn paused(mut case: Case, victim: usize) -> Case {
    case.disturbance = Some((victim, MOMENT, Disturbance::Pause(PAUSE)));
    case.figure = Figure::None;
    case.limit(90)
}
