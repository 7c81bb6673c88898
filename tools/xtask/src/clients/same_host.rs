//! Shared memory between containers: two network and process namespaces with a folder that both see (docs/same-host.md). And cases of
//! the other families over TCP, which they no longer use between programs of one host.
//! The client of a container case asks `verbena devinfo` for the path of its connection while it runs.

use super::case::{Case, Ending, PEER, PORT, SCRIPTS, Side, Topology};
use super::faults::{MESSAGES, MESSAGES_TCP};

/// Cases of other families that run over TCP, too: at least one for each.
const BASES: &[(&str, &str)] = &[
    ("rc_pingpong", "pingpong/rc/4096/poll/check"),
    ("rc_pingpong/events", "pingpong/rc/4096/events/check"),
    ("rc_pingpong/long", "pingpong/rc/1048576/poll/check"),
    ("srq_pingpong", "pingpong/srq/4096/events/check"),
    ("uc_pingpong", "pingpong/uc/4096/poll/check"),
    ("ib_send_bw", "perftest/ib_send_bw/rc"),
    ("ib_write_bw", "perftest/ib_write_bw/both"),
    ("ib_read_bw", "perftest/ib_read_bw/rc"),
    ("ib_atomic_bw", "perftest/ib_atomic_bw/rc"),
    ("ib_send_lat", "perftest/ib_send_lat/events"),
    ("rping", "rping/65535"),
    ("ucmatose", "cm/ucmatose/100"),
    ("rdma_client", "cm/rdma_client/default"),
    ("ucx", "ucx/rc_verbs/am_lat"),
    ("pyverbs", "pyverbs/rc"),
    ("rstream", "rstream/both/65536"),
    ("fi_pingpong", "fabric/pingpong/msg"),
    ("kill", "faults/kill/ib_send_bw/server"),
    ("pause", "faults/pause/ib_send_bw/client"),
];

const OFF: (&str, &str) = ("VERBENA_SAME_HOST", "off");

pub(crate) fn cases(others: &[Case]) -> Vec<Case> {
    let over_tcp = BASES.iter().filter_map(|(name, base)| {
        let mut case = others.iter().find(|other| other.name == *base)?.clone();
        case.name = format!("tcp/{name}");
        for side in &mut case.sides {
            side.env.push((OFF.0, OFF.1.to_owned()));
            for word in side.command.iter_mut().filter(|word| *word == MESSAGES) {
                MESSAGES_TCP.clone_into(word);
            }
        }
        Some(case.quick_if(true))
    });
    let folder = format!(
        "export VERBENA_SAME_HOST_PATH={SCRIPTS}/same-host-{PORT}; mkdir -p -m 700 $VERBENA_SAME_HOST_PATH"
    );
    let containers = [
        ("folder", "on", folder.as_str(), "shared-memory"),
        (
            "without",
            "on",
            ":",
            "the-peer's-local-socket-cannot-be-reached",
        ),
        (
            "auto",
            "auto",
            folder.as_str(),
            "same_host-is-auto-and-the-peer-has-an-address-of-another-host",
        ),
    ];
    let containers = containers
        .map(|(word, choice, prepare, expected)| container(word, choice, prepare, expected));
    over_tcp.chain(containers).collect()
}

/// The client asks until what it expects is printed, and ends its program then.
fn container(word: &str, choice: &str, prepare: &str, expected: &str) -> Case {
    let side = |script: String| {
        let mut side = Side::new(["sh".to_owned(), "-c".to_owned(), script]);
        side.env.push(("VERBENA_SAME_HOST", choice.to_owned()));
        side
    };
    // However it ends when the client is killed.
    let mut server = side(format!("{prepare}; rping -s -a 0.0.0.0 -p {PORT}; exit 1"));
    server.ending = Ending::FailureOrEndless;
    let client = side(format!(
        "{prepare}; rping -c -a {PEER} -p {PORT} -C 100000000 2>/dev/null & pid=$!; \
         until {SCRIPTS}/verbena devinfo $pid 2>&1 | grep -F \"{expected}\"; do kill -0 $pid || exit 1; sleep 0.1; done; \
         {{ kill $pid; wait $pid; }} 2>/dev/null; exit 0"
    ));
    let client = client.must_print(expected);
    Case::pair(format!("namespaces/same_host/{word}"), server, client)
        .at(Topology::SeparateHosts)
        .limit(30)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::{cm, fabric, faults, perftest, pingpong, pyverbs, rping, rsockets, ucx};

    #[test]
    fn every_base_exists() {
        let others: Vec<Case> = [
            pingpong::cases(),
            perftest::cases(),
            ucx::cases(),
            pyverbs::cases(),
            rsockets::cases(),
            rping::cases(),
            cm::cases(),
            fabric::cases(),
            faults::cases(),
        ]
        .concat();
        for (name, base) in BASES {
            assert!(others.iter().any(|other| other.name == *base), "{name}");
        }
    }
}
