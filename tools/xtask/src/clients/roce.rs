//! Cases of the other families once more with `wire = roce` (docs/roce.md), in variants: on the loopback interface and between two
//! namespaces, with an MTU of 1500 and of 9000 bytes, and with no, 0.1 and 1 % loss, which the receiving Verbena causes.
//! The quick set has one case for each program on the loopback interface, one between namespaces and one with loss.

use super::case::{Case, PEER, PORT, Side, Topology};
use super::rping::RPING_STDERR;

/// A case of another family.
struct Base {
    /// Its name here.
    name: &'static str,
    /// Its name there.
    case: &'static str,
    /// It also runs with loss.
    with_loss: bool,
    quick: bool,
}

const fn base(name: &'static str, case: &'static str) -> Base {
    Base {
        name,
        case,
        with_loss: true,
        quick: false,
    }
}

const fn quick(name: &'static str, case: &'static str) -> Base {
    Base {
        quick: true,
        ..base(name, case)
    }
}

const fn without_loss(name: &'static str, case: &'static str) -> Base {
    Base {
        with_loss: false,
        ..base(name, case)
    }
}

const BASES: &[Base] = &[
    quick("pingpong/rc", "pingpong/rc/4096/poll/check"),
    base("pingpong/rc/events", "pingpong/rc/4096/events/check"),
    base("pingpong/rc/long", "pingpong/rc/1048576/poll/check"),
    base("pingpong/srq", "pingpong/srq/4096/events/check"),
    // An unreliable connection loses the message, and the program waits for it without end.
    without_loss("pingpong/uc", "pingpong/uc/4096/poll/check"),
    // Datagrams are not lost on purpose.
    base("pingpong/ud", "pingpong/ud/1024/poll/check"),
    quick("ib_send_bw", "perftest/ib_send_bw/rc"),
    base("ib_send_bw/eight", "perftest/ib_send_bw/eight"),
    base("ib_send_bw/ud", "perftest/ib_send_bw/ud"),
    base("ib_send_bw/cm", "perftest/ib_send_bw/cm"),
    // It has one channel for both completion queues, and takes the event of a receive for that of a send if an acknowledgement was lost. Its
    // completion queue with one entry overflows then.
    without_loss("ib_send_lat/events", "perftest/ib_send_lat/events"),
    base("ib_write_bw/both", "perftest/ib_write_bw/both"),
    quick("ib_write_lat/cm", "perftest/ib_write_lat/cm"),
    base("ib_read_bw", "perftest/ib_read_bw/rc"),
    base("ib_read_bw/cm/eight", "perftest/ib_read_bw/cm/eight"),
    base("ib_atomic_bw", "perftest/ib_atomic_bw/rc"),
    base("ib_atomic_lat/cm", "perftest/ib_atomic_lat/cm"),
    quick("rping", "rping/65535"),
    base("rping/own-qp", "rping/own-qp"),
    base("rping/ipv6", "rping/ipv6/plain"),
    quick("ucmatose", "cm/ucmatose/100"),
    base("ucmatose/ipv6", "cm/ucmatose/ipv6"),
    base("ucmatose/data", "cm/ucmatose/data"),
    quick("udaddy", "cm/udaddy/100"),
    base("rdma_client", "cm/rdma_client/default"),
    base("cmtime", "cm/cmtime/100"),
    quick("ucx/rc", "ucx/rc_verbs/am_lat"),
    base("ucx/rc/put", "ucx/rc_verbs/put_bw/zcopy"),
    base("ucx/rc/get", "ucx/rc_verbs/get/zcopy"),
    base("ucx/ud", "ucx/ud_verbs/am_lat"),
    base("ucx/tag_bw", "ucx/ucp/tag_bw/65536"),
    quick("pyverbs", "pyverbs/rc"),
    base("rstream", "rstream/both/65536"),
];

/// Losses in a million, and how a case names them.
const LOSSES: [(u32, &str); 3] = [(0, ""), (1000, "/loss-0.1"), (10_000, "/loss-1")];
/// Path MTUs of 1024 and of 4096 bytes fit.
const MTUS: [u32; 2] = [1500, 9000];

/// The cases, made from those of the other families.
pub(crate) fn cases(others: &[Case]) -> Vec<Case> {
    let mut cases = vec![shared()];
    for base in BASES {
        let Some(other) = others.iter().find(|other| other.name == base.case) else {
            continue;
        };
        let near = variant(base, other, "lo", 0);
        cases.push(near.over_roce(0).quick_if(base.quick));
        for (loss, word) in LOSSES {
            if loss > 0 && !base.with_loss {
                continue;
            }
            for mtu in MTUS {
                for (place, topology) in [("lo", Topology::Loopback), ("ns", Topology::Namespaces)]
                {
                    // A program without a peer runs in one place.
                    if topology == Topology::Namespaces && other.sides.len() < 2 {
                        continue;
                    }
                    let mut case = variant(base, other, &format!("{place}{mtu}{word}"), mtu);
                    case.topology = topology;
                    case.mtu = Some(mtu);
                    let quick = base.name == "ib_send_bw" && place == "ns" && mtu == 1500;
                    cases.push(case.over_roce(loss).quick_if(quick && loss != 1000));
                }
            }
        }
    }
    cases
}

/// The case under another name. It is not judged by its speed, and has more time.
fn variant(base: &Base, other: &Case, place: &str, mtu: u32) -> Case {
    let mut case = other.clone();
    case.name = format!("roce/{place}/{}", base.name);
    case.figure = case.figure.without_limit();
    case.limit *= 2;
    // A datagram fits into a packet.
    if mtu == MTUS[0] {
        for word in case.sides.iter_mut().flat_map(|side| &mut side.command) {
            if word == "2048" {
                "1024".clone_into(word);
            }
        }
    }
    case
}

/// Two servers and two clients at once: four processes share UDP port 4791.
fn shared() -> Case {
    let second = format!("$(({PORT} + 10000))");
    let text = format!(
        "rping -s -a {PEER} -p {PORT} -C 200 -V & a=$!; rping -s -a {PEER} -p {second} -C 200 -V & b=$!; sleep 1; \
         rping -c -a {PEER} -p {PORT} -C 200 -V & c=$!; rping -c -a {PEER} -p {second} -C 200 -V & d=$!; \
         for i in $a $b $c $d; do wait $i || exit 1; done; echo all four ended"
    );
    let side = Side::new(["sh", "-c", &text])
        .noise(RPING_STDERR)
        .must_print("all four ended");
    Case::single("roce/lo/shared", side)
        .over_roce(0)
        .limit(60)
        .quick_if(false)
}

#[cfg(test)]
mod tests {
    use super::super::all;
    use super::*;

    #[test]
    fn each_variant_of_a_program_exists() {
        let names: Vec<String> = all().into_iter().map(|case| case.name).collect();
        for base in BASES {
            assert!(names.contains(&base.case.to_owned()), "{}", base.case);
            assert!(names.contains(&format!("roce/lo/{}", base.name)));
        }
        for place in ["lo1500", "lo9000", "ns1500", "ns9000"] {
            for loss in ["", "/loss-0.1", "/loss-1"] {
                for program in [
                    "pingpong/rc",
                    "ib_send_bw/cm",
                    "rping",
                    "ucmatose",
                    "udaddy",
                ] {
                    let name = format!("roce/{place}{loss}/{program}");
                    assert!(names.contains(&name), "{name}");
                }
            }
        }
    }

    #[test]
    fn losses_are_settings_of_both_sides() {
        let all = all();
        let lossy = all
            .iter()
            .find(|case| case.name == "roce/lo1500/loss-1/rping");
        for side in &lossy.unwrap().sides {
            let has = |name, value: &str| side.env.iter().any(|(n, v)| *n == name && v == value);
            assert!(has("VERBENA_WIRE", "roce"));
            assert!(has("VERBENA_ROCE_LOSS", "10000"));
            assert!(has("VERBENA_DEVICE", "127.0.0.1"));
        }
    }
}
