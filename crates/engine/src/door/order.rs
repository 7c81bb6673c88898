//! Who came first: the requests of one peer are shown in the order in which it connected, not in that of our threads.
//! It promises to hold nobody up for long: an elder that dawdles is waited for once, by all that came after it together.
//! It refuses to hold one peer up for another.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use verbena_stream::Time;

/// How long a request waits for those that its peer began earlier. Programs that open several connections at once and
/// count them on both sides (perftest's `-R -q`) rely on their order, as a fabric's manager would keep it.
const PATIENCE: Duration = Duration::from_millis(50);

/// Startups in the order in which they came.
pub(super) struct Order<T> {
    next: u64,
    all: BTreeMap<u64, Arrival<T>>,
}

struct Arrival<T> {
    peer: IpAddr,
    /// What it has to show; none before its request is complete.
    shows: Option<T>,
    /// Younger ones wait for it no longer than this.
    until: Option<Time>,
}

impl<T> Default for Order<T> {
    fn default() -> Self {
        let all = BTreeMap::new();
        Order { next: 0, all }
    }
}

impl<T> Order<T> {
    /// Somebody came; the number stands for it.
    pub(super) fn came(&mut self, peer: IpAddr) -> u64 {
        let number = self.next;
        self.next += 1;
        let arrival = Arrival {
            peer,
            shows: None,
            until: None,
        };
        self.all.insert(number, arrival);
        number
    }

    /// Nobody is on the way.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Its request is complete. Given back if nobody of that number is known.
    pub(super) fn complete(&mut self, number: u64, shows: T) -> Option<T> {
        match self.all.get_mut(&number) {
            Some(arrival) => {
                arrival.shows = Some(shows);
                None
            }
            None => Some(shows),
        }
    }

    /// It is over: whoever waits for it may go on. Returns what it would have shown, and whether somebody waits.
    pub(super) fn gone(&mut self, number: u64) -> (Option<T>, bool) {
        match self.all.remove(&number) {
            Some(arrival) => (arrival.shows, arrival.until.is_some()),
            None => (None, false),
        }
    }

    /// Everybody whose turn it is, and when to ask again.
    pub(super) fn release(&mut self, now: Time) -> (Vec<T>, Option<Time>) {
        let (mut free, mut again) = (Vec::new(), None);
        let complete = |(number, a): (&u64, &Arrival<T>)| a.shows.is_some().then_some(*number);
        for number in self.all.iter().filter_map(complete).collect::<Vec<_>>() {
            match self.wait_for_elders(number, now) {
                Some(until) => {
                    again = Some(again.map_or(until, |t: Time| t.min(until)));
                }
                None => free.extend(self.all.remove(&number).and_then(|a| a.shows)),
            }
        }
        (free, again)
    }

    /// Until when this one waits for those of its peer that came before it.
    fn wait_for_elders(&mut self, number: u64, now: Time) -> Option<Time> {
        let peer = self.all.get(&number)?.peer;
        let elders = self.all.range_mut(..number).map(|(_, elder)| elder);
        elders
            .filter(|elder| elder.peer == peer)
            .map(|elder| *elder.until.get_or_insert(now + PATIENCE))
            .filter(|until| *until > now)
            .min()
    }

    /// Everybody who is complete, in order.
    pub(super) fn take_all(&mut self) -> Vec<T> {
        let all = core::mem::take(&mut self.all);
        all.into_values().filter_map(|a| a.shows).collect()
    }
}

#[cfg(test)]
mod tests;
