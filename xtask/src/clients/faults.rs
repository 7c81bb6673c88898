//! One side dies or sleeps in the middle: what the other one sees of it.
//! It promises that a death is an error completion and an end within the limit, and a sleep of some seconds nothing at all.
//! The rounds are many enough that the disturbance meets a run under way.

use std::time::Duration;

use super::case::{Case, Disturbance, Ending, Figure, PEER, PORT, Side};
use super::pingpong;

/// After the start of the client.
const MOMENT: Duration = Duration::from_millis(1500);
const SLEEP: Duration = Duration::from_secs(3);
/// More than any machine does before the disturbance.
const ENDLESS: u64 = 100_000_000;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (side, word) in [(0, "server"), (1, "client")] {
        for (mode, options) in [("poll", &[][..]), ("events", &["-e"][..])] {
            let name = format!("faults/kill/rc_pingpong/{mode}/{word}");
            let case = pingpong::pair(&name, "rc", options, ENDLESS);
            cases.push(killed(case, side).quick_if(mode == "events"));
            let name = format!("faults/pause/rc_pingpong/{mode}/{word}");
            let case = pingpong::pair(&name, "rc", options, 60_000);
            cases.push(paused(case, side).quick_if(mode == "poll"));
        }
        let name = format!("faults/kill/ib_send_bw/{word}");
        let case = bandwidth(&name, &["-n", "100000000", "-N"]);
        cases.push(killed(case, side));
        let name = format!("faults/pause/ib_send_bw/{word}");
        let case = bandwidth(&name, &["-n", "200000", "-N"]);
        cases.push(paused(case, side).quick_if(false));
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

/// The side is killed; the other must end by itself, with an error.
fn killed(mut case: Case, victim: usize) -> Case {
    for (index, side) in case.sides.iter_mut().enumerate() {
        side.says.clear();
        side.ending = if index == victim {
            Ending::Killed
        } else {
            Ending::Failure
        };
    }
    case.figure = Figure::None;
    case.disturbance = Some((victim, MOMENT, Disturbance::Kill));
    case.limit(30)
}

fn paused(mut case: Case, victim: usize) -> Case {
    case.disturbance = Some((victim, MOMENT, Disturbance::Pause(SLEEP)));
    case.figure = Figure::None;
    case.limit(90)
}
