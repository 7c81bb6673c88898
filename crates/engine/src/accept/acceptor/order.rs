//! Order of arrival: requests of one peer are shown in the order in which it connected, independently of thread scheduling.
//! An incomplete earlier request delays later ones of the same peer by at most [`MAX_WAIT`] in all, and other peers not at all.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use verbena_stream::Time;

/// How long a request waits for earlier ones of its peer. Programs that open several connections at once and number them on both
/// sides (perftest's `-R -q`) rely on their order, which an InfiniBand connection manager keeps.
const MAX_WAIT: Duration = Duration::from_millis(50);

/// Startups in the order of arrival.
pub(super) struct Order<T> {
    next: u64,
    all: BTreeMap<u64, Arrival<T>>,
}

struct Arrival<T> {
    peer: IpAddr,
    /// The request; none before it is complete.
    request: Option<T>,
    /// Until when later ones wait for it.
    until: Option<Time>,
}

impl<T> Default for Order<T> {
    fn default() -> Self {
        let all = BTreeMap::new();
        Order { next: 0, all }
    }
}

impl<T> Order<T> {
    /// A connection was accepted; returns its number.
    pub(super) fn add(&mut self, peer: IpAddr) -> u64 {
        let number = self.next;
        self.next += 1;
        let arrival = Arrival {
            peer,
            request: None,
            until: None,
        };
        self.all.insert(number, arrival);
        number
    }

    /// No startup is in progress.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The request is complete. Returned if the number is unknown.
    pub(super) fn complete(&mut self, number: u64, shows: T) -> Option<T> {
        match self.all.get_mut(&number) {
            Some(arrival) => {
                arrival.request = Some(shows);
                None
            }
            None => Some(shows),
        }
    }

    /// The startup is over: later ones need not wait for it. Returns its request if it was not shown, and whether others wait.
    pub(super) fn remove(&mut self, number: u64) -> (Option<T>, bool) {
        match self.all.remove(&number) {
            Some(arrival) => (arrival.request, arrival.until.is_some()),
            None => (None, false),
        }
    }

    /// The requests that may be shown now, and when to call again.
    pub(super) fn release(&mut self, now: Time) -> (Vec<T>, Option<Time>) {
        let (mut free, mut again) = (Vec::new(), None);
        let complete = |(number, a): (&u64, &Arrival<T>)| a.request.is_some().then_some(*number);
        for number in self.all.iter().filter_map(complete).collect::<Vec<_>>() {
            match self.wait_for_earlier(number, now) {
                Some(until) => {
                    again = Some(again.map_or(until, |t: Time| t.min(until)));
                }
                None => free.extend(self.all.remove(&number).and_then(|a| a.request)),
            }
        }
        (free, again)
    }

    /// Until when this one waits for earlier ones of its peer.
    fn wait_for_earlier(&mut self, number: u64, now: Time) -> Option<Time> {
        let peer = self.all.get(&number)?.peer;
        let elders = self.all.range_mut(..number).map(|(_, elder)| elder);
        elders
            .filter(|elder| elder.peer == peer)
            .map(|elder| *elder.until.get_or_insert(now + MAX_WAIT))
            .filter(|until| *until > now)
            .min()
    }

    /// All complete requests, in order.
    pub(super) fn take_all(&mut self) -> Vec<T> {
        let all = core::mem::take(&mut self.all);
        all.into_values().filter_map(|a| a.request).collect()
    }
}

#[cfg(test)]
mod tests;
