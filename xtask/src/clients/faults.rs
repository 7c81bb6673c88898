//! One side dies or sleeps in the middle: what the other one sees of it.
//! It promises that a death is an error completion to who sends, never a crash, and a sleep of some seconds nothing at all.
//! The rounds are many enough that the disturbance meets a run under way.

use std::time::Duration;

use super::case::{Case, Disturbance, Ending, Figure, PEER, PORT, Side};
use super::pingpong;

/// After the start of the client.
const MOMENT: Duration = Duration::from_millis(700);
const SLEEP: Duration = Duration::from_secs(3);
/// More than any machine does before the disturbance.
const ENDLESS: u64 = 100_000_000;
/// A second and more at the best speed seen.
const ROUNDS: u64 = 150_000;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (victim, word) in [(0, "server"), (1, "client")] {
        for (mode, options) in [("poll", &[][..]), ("events", &["-e"][..])] {
            let name = format!("faults/kill/rc_pingpong/{mode}/{word}");
            let case = pingpong::pair(&name, "rc", options, ENDLESS);
            // Either of them may have nothing under way that an acknowledgement is missing for.
            cases.push(killed(case, victim, Ending::Bereft).quick_if(mode == "events"));
            let name = format!("faults/pause/rc_pingpong/{mode}/{word}");
            let case = pingpong::pair(&name, "rc", options, ROUNDS);
            cases.push(paused(case, victim).quick_if(mode == "poll" && victim == 0));
        }
        let name = format!("faults/kill/ib_send_bw/{word}");
        let case = bandwidth(&name, &["-n", "100000000", "-N"]);
        // The client sends all the time; the server does nothing but receive.
        let ending = if victim == 0 {
            Ending::Failure
        } else {
            Ending::Bereft
        };
        cases.push(killed(case, victim, ending).quick_if(victim == 0));
        let name = format!("faults/pause/ib_send_bw/{word}");
        let case = bandwidth(&name, &["-n", "200000", "-N"]);
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

/// The side is killed; how the other must end is said.
fn killed(mut case: Case, victim: usize, other: Ending) -> Case {
    for (index, side) in case.sides.iter_mut().enumerate() {
        side.says.clear();
        side.ending = if index == victim {
            Ending::Killed
        } else {
            other
        };
    }
    case.figure = Figure::None;
    case.disturbance = Some((victim, MOMENT, Disturbance::Kill));
    // Far above `dead_after` and the time that a request is retried, for busy machines.
    case.limit(if other == Ending::Bereft { 6 } else { 30 })
}

fn paused(mut case: Case, victim: usize) -> Case {
    case.disturbance = Some((victim, MOMENT, Disturbance::Pause(SLEEP)));
    case.figure = Figure::None;
    case.limit(90)
}
