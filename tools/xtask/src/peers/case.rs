//! The cases: contender, measure, size and place.
//! All contenders of one place, measure and size are adjacent, so that rounds measure them by turns.
//! What a contender cannot do is not in the list.

use super::contender::{CONTENDERS, Contender};
use super::series::Measure;

/// Where the two sides are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Topology {
    Loopback,
    /// Two network namespaces joined by a veth pair with this MTU.
    Veth(u32),
}

impl Topology {
    pub(crate) fn name(self) -> String {
        match self {
            Topology::Loopback => "loopback".to_owned(),
            Topology::Veth(mtu) => format!("veth{mtu}"),
        }
    }

    /// Bytes of the longest UDP datagram that is not fragmented, over IPv4.
    pub(crate) fn datagram(self) -> u32 {
        match self {
            Topology::Loopback => 65_507,
            Topology::Veth(mtu) => mtu - 28,
        }
    }
}

/// One thing to measure, in every round.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) topology: Topology,
    pub(crate) measure: Measure,
    /// Bytes per message; for many connections their number.
    pub(crate) size: u32,
    pub(crate) contender: &'static Contender,
}

impl Case {
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.group(), self.contender.name)
    }

    /// The cases that are compared with each other.
    pub(crate) fn group(&self) -> String {
        let (place, measure) = (self.topology.name(), self.measure.name());
        format!("{place}/{measure}/{}", shown(self.size))
    }
}

/// A size with a binary prefix.
pub(crate) fn shown(size: u32) -> String {
    match size {
        s if s >= 1 << 20 && s.is_multiple_of(1 << 20) => format!("{}Mi", s >> 20),
        s if s >= 1 << 10 && s.is_multiple_of(1 << 10) => format!("{}Ki", s >> 10),
        s => s.to_string(),
    }
}

const KI: u32 = 1 << 10;
const MI: u32 = 1 << 20;
/// All sizes.
pub(crate) const SIZES: &[u32] = &[8, 64, 512, 4 * KI, 64 * KI, MI, 4 * MI];
/// The sizes at which contenders that are not of the first row are measured.
const FEW: &[u32] = &[8, 4 * KI, 64 * KI, MI];
const BULK: &[u32] = &[64 * KI, MI];
const CONNECTIONS: &[u32] = &[1, 100, 10_000];

/// Every case; those that are compared are adjacent.
pub(crate) fn all(quick: bool, veth: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |place, measure, sizes: &[u32], wanted: &dyn Fn(&Contender, u32) -> bool| {
        for &size in sizes {
            let fitting = CONTENDERS
                .iter()
                .filter(|c| c.measures(measure, size) && wanted(c, size));
            cases.extend(fitting.map(|contender| Case {
                topology: place,
                measure,
                size,
                contender,
            }));
        }
    };
    let (latency, bandwidth) = if quick {
        (&SIZES[..1], BULK)
    } else {
        (SIZES, SIZES)
    };
    for (measure, sizes) in [(Measure::Latency, latency), (Measure::Bandwidth, bandwidth)] {
        add(Topology::Loopback, measure, sizes, &|contender, size| {
            contender.loopback && (contender.first_row || FEW.contains(&size))
        });
    }
    add(Topology::Loopback, Measure::Rate, &[64], &|c, _| c.loopback);
    add(
        Topology::Loopback,
        Measure::Connections,
        CONNECTIONS,
        &|_, _| true,
    );
    add(Topology::Loopback, Measure::Idle, &[1], &|_, _| true);
    let small = &[8];
    add(Topology::Loopback, Measure::RoceLatency, small, &|_, _| {
        true
    });
    add(Topology::Loopback, Measure::RoceBandwidth, BULK, &|_, _| {
        true
    });
    let few = if quick {
        BULK
    } else {
        &[4 * KI, 64 * KI, MI, 4 * MI]
    };
    let short: &[u32] = if quick { small } else { &[8, 64, 4 * KI] };
    add(Topology::Loopback, Measure::ShmLatency, short, &|_, _| true);
    add(Topology::Loopback, Measure::ShmBandwidth, few, &|_, _| true);
    add(Topology::Loopback, Measure::ShmRate, &[64], &|_, _| true);
    let mtus: &[u32] = match (veth, quick) {
        (false, _) => &[],
        (true, true) => &[1500],
        (true, false) => &[1500, 9000],
    };
    for &mtu in mtus {
        let place = Topology::Veth(mtu);
        add(place, Measure::Latency, &[8], &|c, _| c.veth);
        add(place, Measure::Bandwidth, BULK, &|c, _| c.veth);
        add(place, Measure::RoceBandwidth, &BULK[..1], &|_, _| true);
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn case_names_are_unique_and_groups_adjacent() {
        for quick in [false, true] {
            let cases = all(quick, true);
            let names: BTreeSet<String> = cases.iter().map(Case::name).collect();
            assert_eq!(names.len(), cases.len());
            let mut groups: Vec<String> = cases.iter().map(Case::group).collect();
            let distinct: BTreeSet<String> = groups.iter().cloned().collect();
            groups.dedup();
            assert_eq!(groups.len(), distinct.len(), "a group is torn apart");
        }
    }

    #[test]
    fn full_run_contains_every_quick_case() {
        let full: BTreeSet<String> = all(false, true).iter().map(Case::name).collect();
        assert!(
            all(true, true)
                .iter()
                .all(|case| full.contains(&case.name()))
        );
        assert!(
            all(true, false)
                .iter()
                .all(|case| case.topology == Topology::Loopback)
        );
    }

    #[test]
    fn sizes_have_short_names() {
        let said: Vec<String> = SIZES.iter().map(|size| shown(*size)).collect();
        assert_eq!(said, ["8", "64", "512", "4Ki", "64Ki", "1Mi", "4Mi"]);
        assert_eq!(shown(10_000), "10000");
    }
}
