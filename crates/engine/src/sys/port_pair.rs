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

/// One port, bound at several addresses.
#[derive(Debug)]
pub struct BoundPort {
    /// Its number.
    pub number: u16,
    /// At each address.
    pub pairs: Vec<PortPair>,
    /// They keep the number from other programs at the shared addresses; nothing reads them.
    pub reserved: Vec<DatagramSocket>,
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

    /// Binds one port of the range at all addresses. The search starts at a position chosen by `random`, so that adapters rarely collide
    /// and numbers are rarely reused soon. Ports that are `preferred` are tried first. At the addresses of `shared` the UDP port is only
    /// kept from others, as far as the host has them.
    pub fn bind_range(
        addresses: &[IpAddr],
        shared: &[IpAddr],
        ports: RangeInclusive<u16>,
        random: u64,
        preferred: impl Fn(u16) -> bool,
    ) -> Result<BoundPort> {
        let start = (random % (ports.len() as u64).max(1)) as usize;
        let all = ports.clone().skip(start).chain(ports.take(start));
        let first = all.clone().filter(|port| preferred(*port));
        for port in first.chain(all.filter(|port| !preferred(*port))) {
            match PortPair::bind_all(addresses, shared, port) {
                Err(error) if error.is_in_use() => {}
                other => return other,
            }
        }
        Err(Error::new("bind", Errno::ADDRINUSE))
    }

    fn bind_all(addresses: &[IpAddr], shared: &[IpAddr], number: u16) -> Result<BoundPort> {
        let pairs = addresses.iter().map(|&ip| PortPair::bind(ip, number));
        let pairs = pairs.collect::<Result<_>>()?;
        let reserved = shared.iter().filter_map(|&ip| {
            let bound = DatagramSocket::bind(SocketAddr::new(ip, number));
            // A host may have no IPv6.
            match bound {
                Err(error) if !error.is_in_use() => None,
                bound => Some(bound),
            }
        });
        Ok(BoundPort {
            number,
            pairs,
            reserved: reserved.collect::<Result<_>>()?,
        })
    }
}

#[cfg(test)]
mod tests;
