//! Which queue pairs of this machine are connected to each other: each names the address of the other, and over RoCEv2 the number as well.
//! Only what both ends say counts here, so that a process that answers is not drawn as the peer of another against its word.

use std::collections::HashMap;

use crate::top::{Pair, Process};

/// A queue pair among those of all processes: the position of its process, and its own in it.
pub(super) type Place = (usize, usize);

/// The ends of a connection as one of them sees it: own address and number, the peer's address and number.
type Ends<'a> = (&'a str, u64, &'a str, u64);

fn ends(pair: &Pair) -> Option<Ends<'_>> {
    let (own, other) = pair.numbers.unwrap_or_default();
    let is_known = pair.local != "-" && pair.peer != "-" && !pair.local.is_empty();
    is_known.then_some((pair.local.as_str(), own, pair.peer.as_str(), other))
}

/// The other end of each queue pair that has one here.
pub(super) fn join(processes: &[Process]) -> HashMap<Place, Place> {
    let all = || {
        processes.iter().enumerate().flat_map(|(at, process)| {
            let pairs = process.pairs.iter().enumerate();
            pairs.filter_map(move |(number, pair)| Some(((at, number), ends(pair)?)))
        })
    };
    let by_ends: HashMap<Ends<'_>, Place> = all().map(|(place, ends)| (ends, place)).collect();
    let other = |(place, (local, own, peer, theirs)): (Place, Ends<'_>)| {
        let other = by_ends.get(&(peer, theirs, local, own))?;
        Some((place, *other))
    };
    all().filter_map(other).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(local: &str, peer: &str, numbers: Option<(u64, u64)>) -> Pair {
        Pair {
            local: local.to_owned(),
            peer: peer.to_owned(),
            numbers,
            ..Pair::default()
        }
    }

    fn process(pid: u32, pairs: Vec<Pair>) -> Process {
        Process {
            pid,
            program: "p".to_owned(),
            is_silent: false,
            wakeups: 0.0,
            pairs,
        }
    }

    #[test]
    fn ends_of_a_connection_find_each_other() {
        let processes = [
            process(
                1,
                vec![
                    pair("127.0.0.1:5000", "127.0.0.1:6000", None),
                    pair("127.0.0.1:4791", "127.0.0.1:4791", Some((17, 18))),
                    pair("127.0.0.1:7", "192.0.2.1:7", None),
                    pair("-", "-", None),
                ],
            ),
            process(
                2,
                vec![
                    pair("127.0.0.1:4791", "127.0.0.1:4791", Some((18, 17))),
                    pair("127.0.0.1:6000", "127.0.0.1:5000", None),
                    // It says so, and the other end says otherwise.
                    pair("127.0.0.1:8000", "127.0.0.1:5000", None),
                ],
            ),
        ];
        let mut joined: Vec<_> = join(&processes).into_iter().collect();
        joined.sort_unstable();
        assert_eq!(
            joined,
            [
                ((0, 0), (1, 1)),
                ((0, 1), (1, 0)),
                ((1, 0), (0, 1)),
                ((1, 1), (0, 0))
            ]
        );
    }

    #[test]
    fn queue_pair_connected_to_itself_is_its_own_peer() {
        let itself = pair("127.0.0.1:4791", "127.0.0.1:4791", Some((17, 17)));
        let joined = join(&[process(1, vec![itself])]);
        assert_eq!(joined.get(&(0, 0)), Some(&(0, 0)));
    }
}
