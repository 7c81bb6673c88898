//! The UDP addresses of peers' ports, for a listener. The address of a port that is connected, or whose request waits for an answer, does
//! not change, whatever datagrams arrive, and the table is bounded. Addresses are learnt from connection requests with a valid cookie only.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Instant;

use verbena_split_wire::cell::PortAddress;

/// The address of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) to: SocketAddr,
    /// Bytes of the longest datagram to it.
    pub(super) max_datagram: usize,
    /// Pairs connected to it.
    pairs: usize,
    /// A request waits for an answer until then.
    request_deadline: Option<Instant>,
    /// The order in which it was learnt.
    age: u64,
}

/// The table.
#[derive(Debug)]
pub(super) struct Routes {
    table: HashMap<PortAddress, Route>,
    limit: usize,
    next_age: u64,
}

/// The result of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Learnt {
    /// The port has this address.
    Current,
    /// The port has another address, and is connected or waiting.
    Conflict,
    /// All ports in the table are connected or waiting.
    Full,
}

impl Route {
    fn is_pinned(&self, now: Instant) -> bool {
        self.pairs > 0 || self.request_deadline.is_some_and(|until| now < until)
    }
}

impl Routes {
    pub(super) fn new(limit: usize) -> Routes {
        Routes {
            table: HashMap::new(),
            limit: limit.max(1),
            next_age: 0,
        }
    }

    pub(super) fn get(&self, port: PortAddress) -> Option<&Route> {
        self.table.get(&port)
    }

    /// Records the source of a request of this port. `room` is called for a new address.
    pub(super) fn learn(
        &mut self,
        port: PortAddress,
        from: SocketAddr,
        now: Instant,
        room: impl FnOnce() -> usize,
    ) -> Learnt {
        match self.table.get(&port) {
            Some(route) if route.to == from => return Learnt::Current,
            Some(route) if route.is_pinned(now) => return Learnt::Conflict,
            Some(_) => {}
            None if self.table.len() < self.limit => {}
            None => {
                let idle = self.table.iter().filter(|(_, route)| !route.is_pinned(now));
                let Some(oldest) = idle.min_by_key(|(_, route)| route.age) else {
                    return Learnt::Full;
                };
                let oldest = *oldest.0;
                self.table.remove(&oldest);
            }
        }
        self.next_age += 1;
        let route = Route {
            to: from,
            max_datagram: room(),
            pairs: 0,
            request_deadline: None,
            age: self.next_age,
        };
        self.table.insert(port, route);
        Learnt::Current
    }

    /// A request of this port waits for an answer.
    pub(super) fn add_request(&mut self, port: PortAddress, until: Instant) {
        if let Some(route) = self.table.get_mut(&port) {
            route.request_deadline = Some(until);
        }
    }

    /// No request of this port waits any more.
    pub(super) fn remove_request(&mut self, port: PortAddress) {
        if let Some(route) = self.table.get_mut(&port) {
            route.request_deadline = None;
        }
    }

    /// A pair was connected to this port.
    pub(super) fn add_pair(&mut self, port: PortAddress) {
        if let Some(route) = self.table.get_mut(&port) {
            route.pairs += 1;
        }
    }

    /// A pair to this port has ended.
    pub(super) fn remove_pair(&mut self, port: PortAddress) {
        if let Some(route) = self.table.get_mut(&port) {
            route.pairs = route.pairs.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    fn addr(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    const A: PortAddress = PortAddress([2, 0, 0, 0, 0, 1]);
    const B: PortAddress = PortAddress([2, 0, 0, 0, 0, 2]);
    const C: PortAddress = PortAddress([2, 0, 0, 0, 0, 3]);

    #[test]
    fn connected_port_keeps_its_route() {
        let now = Instant::now();
        let mut routes = Routes::new(8);
        assert_eq!(routes.learn(A, addr(1), now, || 1400), Learnt::Current);
        routes.add_pair(A);
        assert_eq!(routes.learn(A, addr(2), now, || 9000), Learnt::Conflict);
        assert_eq!(routes.learn(A, addr(1), now, || 9000), Learnt::Current);
        assert_eq!(
            routes.get(A).map(|r| (r.to, r.max_datagram)),
            Some((addr(1), 1400))
        );
        routes.remove_pair(A);
        assert_eq!(routes.learn(A, addr(2), now, || 9000), Learnt::Current);
        assert_eq!(
            routes.get(A).map(|r| (r.to, r.max_datagram)),
            Some((addr(2), 9000))
        );
    }

    #[test]
    fn pending_request_keeps_its_route_until_deadline() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut routes = Routes::new(8);
        routes.learn(A, addr(1), now, || 1400);
        routes.add_request(A, now + second);
        assert_eq!(routes.learn(A, addr(2), now, || 1400), Learnt::Conflict);
        routes.add_request(A, now + 2 * second);
        assert_eq!(
            routes.learn(A, addr(2), now + second, || 1400),
            Learnt::Conflict
        );
        let later = now + 2 * second;
        assert_eq!(routes.learn(A, addr(2), later, || 1400), Learnt::Current);
        routes.add_request(A, later + second);
        routes.remove_request(A);
        assert_eq!(routes.learn(A, addr(3), later, || 1400), Learnt::Current);
    }

    #[test]
    fn full_table_drops_the_oldest_unused_route() {
        let now = Instant::now();
        let mut routes = Routes::new(2);
        routes.learn(A, addr(1), now, || 1400);
        routes.learn(B, addr(2), now, || 1400);
        routes.add_pair(A);
        assert_eq!(routes.learn(C, addr(3), now, || 1400), Learnt::Current);
        assert!(routes.get(B).is_none() && routes.get(A).is_some());
        routes.add_pair(C);
        assert_eq!(routes.learn(B, addr(2), now, || 1400), Learnt::Full);
    }
}
