//! What follows from the topology as a whole: the links that are blocked so that switches form no loop, and the routes of all routers. Both
//! are pure functions of the links that are up, so that every cut and every mended link has one result.

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::prefix::Prefix;
use crate::router::{Hop, Route};

/// A link between two nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Edge {
    pub(crate) nodes: [usize; 2],
    pub(crate) up: bool,
}

/// An interface of a router.
#[derive(Debug, Clone)]
pub(crate) struct Attachment {
    pub(crate) router: usize,
    pub(crate) interface: usize,
    pub(crate) edge: usize,
    pub(crate) addresses: Vec<Prefix>,
}

/// The links between switches that are not part of the spanning tree. A switch with a lower number is nearer to the root.
pub(crate) fn blocked(edges: &[Edge], is_switch: impl Fn(usize) -> bool) -> BTreeSet<usize> {
    let mut at: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
    let mut blocked = BTreeSet::new();
    for (index, edge) in edges.iter().enumerate() {
        let [a, b] = edge.nodes;
        if edge.up && is_switch(a) && is_switch(b) {
            blocked.insert(index);
            at.entry(a).or_default().push((index, b));
            at.entry(b).or_default().push((index, a));
        }
    }
    let mut reached = BTreeSet::new();
    for root in at.keys() {
        let mut queue = VecDeque::from([*root]);
        if !reached.insert(*root) {
            continue;
        }
        while let Some(node) = queue.pop_front() {
            for (edge, other) in at.get(&node).into_iter().flatten() {
                if reached.insert(*other) {
                    blocked.remove(edge);
                    queue.push_back(*other);
                }
            }
        }
    }
    blocked
}

/// The segment of each link that is up: links with one number exchange frames without a router.
pub(crate) fn segments(edges: &[Edge], is_switch: impl Fn(usize) -> bool) -> Vec<Option<usize>> {
    let up = |edge: &Edge| edge.up;
    let mut of: Vec<Option<usize>> = edges
        .iter()
        .enumerate()
        .map(|(index, edge)| up(edge).then_some(index))
        .collect();
    // The lowest number of a switch's links is carried on until nothing changes.
    loop {
        let mut lowest: BTreeMap<usize, usize> = BTreeMap::new();
        for (edge, segment) in edges.iter().zip(&of) {
            let switches = edge.nodes.into_iter().filter(|node| is_switch(*node));
            for (node, segment) in switches.zip(segment.iter().cycle()) {
                let entry = lowest.entry(node).or_insert(*segment);
                *entry = (*entry).min(*segment);
            }
        }
        let mut changed = false;
        for (edge, segment) in edges.iter().zip(&mut of) {
            let Some(segment) = segment else { continue };
            let least = edge.nodes.iter().filter_map(|node| lowest.get(node)).min();
            if let Some(least) = least.filter(|least| **least < *segment) {
                *segment = *least;
                changed = true;
            }
        }
        if !changed {
            return of;
        }
    }
}

/// The shortest routes of every router to the networks of the others; equal ones are hops of one route.
pub(crate) fn routes(
    attachments: &[Attachment],
    segments: &[Option<usize>],
) -> BTreeMap<usize, Vec<Route>> {
    let segment = |a: &Attachment| segments.get(a.edge).copied().flatten();
    let live: Vec<&Attachment> = attachments
        .iter()
        .filter(|a| segment(a).is_some())
        .collect();
    let networks: BTreeSet<Prefix> = live
        .iter()
        .flat_map(|a| a.addresses.iter().map(Prefix::network))
        .collect();
    // From a router to the neighbours that share a network with it, and their addresses there.
    let mut neighbours: BTreeMap<usize, Vec<(usize, Hop)>> = BTreeMap::new();
    for own in &live {
        for other in &live {
            if own.router == other.router || segment(own) != segment(other) {
                continue;
            }
            for address in other.addresses.iter().map(Prefix::address) {
                if own.addresses.iter().any(|prefix| prefix.contains(address)) {
                    let hop = Hop {
                        interface: own.interface,
                        via: Some(address),
                    };
                    let all = neighbours.entry(own.router).or_default();
                    all.push((other.router, hop));
                }
            }
        }
    }
    let mut routes: BTreeMap<usize, Vec<Route>> = BTreeMap::new();
    for network in networks {
        let is_v4 = network.address().is_ipv4();
        let same = |address: Option<IpAddr>| address.is_some_and(|a| a.is_ipv4() == is_v4);
        let connected = live.iter().filter(|a| {
            let mut own = a.addresses.iter().map(Prefix::network);
            own.any(|own| own == network)
        });
        let mut distance: BTreeMap<usize, usize> = connected.map(|a| (a.router, 0)).collect();
        let mut queue: VecDeque<usize> = distance.keys().copied().collect();
        while let Some(router) = queue.pop_front() {
            let next = distance[&router] + 1;
            for (other, hop) in neighbours.get(&router).into_iter().flatten() {
                if same(hop.via) && !distance.contains_key(other) {
                    distance.insert(*other, next);
                    queue.push_back(*other);
                }
            }
        }
        for (router, own) in distance.iter().filter(|(_, own)| **own > 0) {
            let all = neighbours.get(router).into_iter().flatten();
            let nearer = all.filter(|(other, hop)| {
                same(hop.via) && distance.get(other).is_some_and(|d| d + 1 == *own)
            });
            let hops: BTreeSet<Hop> = nearer.map(|(_, hop)| *hop).collect();
            let hops = hops.into_iter().collect();
            let route = Route { network, hops };
            routes.entry(*router).or_default().push(route);
        }
    }
    routes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(all: &[(usize, usize, bool)]) -> Vec<Edge> {
        let edge = |&(a, b, up)| Edge { nodes: [a, b], up };
        all.iter().map(edge).collect()
    }

    #[test]
    fn tree_blocks_each_loop_once() {
        // A triangle, a parallel link, a link to a host, and a triangle of its own.
        let all = [
            (0, 1, true),
            (1, 2, true),
            (2, 0, true),
            (0, 1, true),
            (2, 9, true),
        ];
        let others = [(3, 4, true), (4, 5, true), (5, 3, true)];
        let all = edges(&[&all[..], &others].concat());
        assert_eq!(blocked(&all, |node| node < 9), BTreeSet::from([1, 3, 6]));
    }

    #[test]
    fn cut_link_opens_a_blocked_one() {
        let all = edges(&[(0, 1, false), (1, 2, true), (2, 0, true)]);
        assert_eq!(blocked(&all, |_| true), BTreeSet::new());
    }

    #[test]
    fn segments_end_at_routers_and_cuts() {
        // Hosts 10.., switches 0..4, router 20.
        let all = edges(&[
            (10, 0, true),
            (0, 1, true),
            (1, 20, true),
            (20, 2, true),
            (2, 11, true),
            (1, 3, false),
            (3, 12, true),
        ]);
        let found = segments(&all, |node| node < 4);
        assert_eq!(
            found,
            [Some(0), Some(0), Some(0), Some(3), Some(3), None, Some(6)]
        );
    }

    #[test]
    fn equal_paths_become_hops_of_one_route() {
        // Routers 1 and 4, joined through 2 and through 3.
        let all = edges(&[
            (1, 2, true),
            (2, 4, true),
            (1, 3, true),
            (3, 4, true),
            (4, 9, true),
        ]);
        let attachment = |router, interface, edge, text: &str| Attachment {
            router,
            interface,
            edge,
            addresses: vec![text.parse().unwrap()],
        };
        let attachments = [
            attachment(1, 0, 0, "10.0.1.1/24"),
            attachment(2, 0, 0, "10.0.1.2/24"),
            attachment(2, 1, 1, "10.0.2.2/24"),
            attachment(4, 0, 1, "10.0.2.4/24"),
            attachment(1, 1, 2, "10.0.3.1/24"),
            attachment(3, 0, 2, "10.0.3.3/24"),
            attachment(3, 1, 3, "10.0.4.3/24"),
            attachment(4, 1, 3, "10.0.4.4/24"),
            attachment(4, 2, 4, "10.9.0.1/24"),
        ];
        let found = routes(&attachments, &segments(&all, |_| false));
        let to_host = |routes: &[Route]| -> Vec<Hop> {
            let network: Prefix = "10.9.0.0/24".parse().unwrap();
            let found = routes.iter().find(|route| route.network == network);
            found.map(|route| route.hops.clone()).unwrap_or_default()
        };
        let hop = |interface, via: &str| Hop {
            interface,
            via: via.parse().ok(),
        };
        assert_eq!(
            to_host(&found[&1]),
            [hop(0, "10.0.1.2"), hop(1, "10.0.3.3")]
        );
        let mut cut = all;
        cut[0].up = false;
        let found = routes(&attachments, &segments(&cut, |_| false));
        assert_eq!(to_host(&found[&1]), [hop(1, "10.0.3.3")]);
    }
}
