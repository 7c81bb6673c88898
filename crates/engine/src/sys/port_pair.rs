//! A TCP and a UDP socket with the same port number: a queue pair's number names the port and must mean the same for both.
//! A port is bound at all addresses or at none: the first free one of a range, searched from a random start. Errors other than a port
//! in use end the search.

use core::net::{IpAddr, SocketAddr};
use core::ops::RangeInclusive;

use rustix::io::Errno;

use super::{DatagramSocket, Error, Listener, Result};

/// A TCP and a UDP socket at the same address and port.
#[derive(Debug)]
pub struct PortPair {
    /// The TCP listener.
    pub tcp: Listener,
    /// The UDP socket.
    pub udp: DatagramSocket,
}

impl PortPair {
    /// Binds both sockets to `port` at `ip`.
    pub fn bind(ip: IpAddr, port: u16) -> Result<PortPair> {
        let at = SocketAddr::new(ip, port);
        Ok(PortPair {
            tcp: Listener::bind(at, true)?,
            udp: DatagramSocket::bind(at)?,
        })
    }

    /// Binds one port of the range at all addresses: returns its number and a pair for each address. The search starts at a
    /// position chosen by `random`, so that adapters rarely collide and numbers are rarely reused soon. Ports that are `preferred` are
    /// tried first.
    pub fn bind_range(
        addresses: &[IpAddr],
        ports: RangeInclusive<u16>,
        random: u64,
        preferred: impl Fn(u16) -> bool,
    ) -> Result<(u16, Vec<PortPair>)> {
        let start = (random % (ports.len() as u64).max(1)) as usize;
        let all = ports.clone().skip(start).chain(ports.take(start));
        let first = all.clone().filter(|port| preferred(*port));
        for port in first.chain(all.filter(|port| !preferred(*port))) {
            let all = addresses.iter().map(|&ip| PortPair::bind(ip, port));
            match all.collect::<Result<Vec<PortPair>>>() {
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
