//! One port number of both kinds: TCP for connections and UDP for datagrams, because a queue pair's number names the port
//! and must mean the same in either.
//! It promises all of the addresses or none, on the first free port of a range, searched from a random start.
//! It refuses to look further when the trouble is not that the port is taken.

use core::net::{IpAddr, SocketAddr};
use core::ops::RangeInclusive;

use rustix::io::Errno;

use super::{Datagrams, Error, Listener, Result};

/// A TCP and a UDP socket at the same address and port.
#[derive(Debug)]
pub struct Pair {
    /// Connections come here.
    pub tcp: Listener,
    /// Datagrams come here.
    pub udp: Datagrams,
}

impl Pair {
    /// Takes both kinds of `port` at `ip`.
    pub fn bind(ip: IpAddr, port: u16) -> Result<Pair> {
        let at = SocketAddr::new(ip, port);
        Ok(Pair {
            tcp: Listener::bind(at, true)?,
            udp: Datagrams::bind(at)?,
        })
    }

    /// Takes one port of the range at all of the addresses: its number and a pair for each address. The search starts
    /// at a place that `random` chooses, so that two adapters seldom meet and old numbers seldom come back.
    pub fn bind_range(
        addresses: &[IpAddr],
        ports: RangeInclusive<u16>,
        random: u64,
    ) -> Result<(u16, Vec<Pair>)> {
        let start = (random % (ports.len() as u64).max(1)) as usize;
        for port in ports.clone().skip(start).chain(ports.take(start)) {
            let all = addresses.iter().map(|&ip| Pair::bind(ip, port));
            match all.collect::<Result<Vec<Pair>>>() {
                Ok(pairs) => return Ok((port, pairs)),
                Err(error) if error.is_in_use() => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::new("bind", Errno::ADDRINUSE))
    }
}

#[cfg(test)]
mod tests;
