//! The setting `port`: a port of the adapter's own, on which it speaks Ethernet, IP and TCP itself (docs/tcpip.md).
//! A value has at least one address, and each prefix fits its address.

use core::fmt;
use core::net::IpAddr;
use std::path::PathBuf;

/// What carries the frames of the port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortLink {
    /// A TAP interface with this name.
    Tap(String),
    /// A cable: a local socket of `verbena switch`.
    Cable(PathBuf),
}

/// A port of the adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortSetting {
    /// What carries its frames.
    pub link: PortLink,
    /// Its addresses, each with the length of its prefix.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Routers for other networks, at most one for each family.
    pub gateways: Vec<IpAddr>,
    /// Bytes of an IP packet on the link.
    pub mtu: u16,
    /// The TAP interface by which the kernel shares the addresses: it gets the frames that belong to nothing of the port.
    pub host: Option<String>,
}

/// The MTU of a port for which none is set.
const USUAL_MTU: u16 = 1500;
/// Values of the MTU: IPv6 needs the first (RFC 8200, 5), and frames of 64 KiB have room for the last.
const LEAST_MTU: u16 = 1280;
const LARGEST_MTU: u16 = 65_000;
/// Addresses of a port.
const MAX_ADDRESSES: usize = 16;

impl fmt::Display for PortSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.link {
            PortLink::Tap(name) => write!(f, "tap:{name}")?,
            PortLink::Cable(path) => write!(f, "cable:{}", path.display())?,
        }
        for (address, prefix) in &self.addresses {
            write!(f, ",{address}/{prefix}")?;
        }
        for gateway in &self.gateways {
            write!(f, ",gateway={gateway}")?;
        }
        if self.mtu != USUAL_MTU {
            write!(f, ",mtu={}", self.mtu)?;
        }
        match &self.host {
            Some(host) => write!(f, ",host={host}"),
            None => Ok(()),
        }
    }
}

impl PortSetting {
    /// Whether this is one of its addresses.
    pub fn has_address(&self, ip: IpAddr) -> bool {
        self.addresses.iter().any(|(own, _)| *own == ip)
    }

    pub(super) fn read(text: &str) -> Option<PortSetting> {
        let mut words = text.split(',').map(str::trim);
        let link = words.next()?;
        let link = match link.split_once(':')? {
            ("tap", name) if is_interface(name) => PortLink::Tap(name.to_owned()),
            ("cable", path) if !path.is_empty() => PortLink::Cable(PathBuf::from(path)),
            _ => return None,
        };
        let mut port = PortSetting {
            link,
            addresses: Vec::new(),
            gateways: Vec::new(),
            mtu: USUAL_MTU,
            host: None,
        };
        for word in words {
            port.add(word)?;
        }
        let fits = !port.addresses.is_empty() && port.addresses.len() <= MAX_ADDRESSES;
        fits.then_some(port)
    }

    fn add(&mut self, word: &str) -> Option<()> {
        if let Some(gateway) = word.strip_prefix("gateway=") {
            let gateway: IpAddr = gateway.parse().ok()?;
            let same = |other: &IpAddr| other.is_ipv4() == gateway.is_ipv4();
            if self.gateways.iter().any(same) || !is_host(gateway) {
                return None;
            }
            self.gateways.push(gateway);
        } else if let Some(mtu) = word.strip_prefix("mtu=") {
            let mtu = mtu.parse().ok()?;
            self.mtu = (LEAST_MTU..=LARGEST_MTU).contains(&mtu).then_some(mtu)?;
        } else if let Some(host) = word.strip_prefix("host=") {
            let is_other = self.link != PortLink::Tap(host.to_owned());
            if self.host.is_some() || !is_interface(host) || !is_other {
                return None;
            }
            self.host = Some(host.to_owned());
        } else {
            let (address, prefix) = word.split_once('/')?;
            let (address, prefix): (IpAddr, u8) = (address.parse().ok()?, prefix.parse().ok()?);
            let bits = if address.is_ipv4() { 32 } else { 128 };
            let is_new = !self.has_address(address);
            if !is_host(address) || !(1..=bits).contains(&prefix) || !is_new {
                return None;
            }
            self.addresses.push((address, prefix));
        }
        Some(())
    }
}

/// It can be the address of a host on a network.
fn is_host(ip: IpAddr) -> bool {
    let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !(ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || is_broadcast)
}

/// A name that Linux accepts for an interface.
fn is_interface(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=15).contains(&name.len()) && name.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_read_and_show_the_same() {
        for text in [
            "tap:tap0,10.7.0.2/24",
            "cable:/run/sw.sock,10.7.0.2/24,fd07::2/64,gateway=10.7.0.1,gateway=fd07::1,mtu=9000",
            "cable:/run/sw.sock,10.7.0.2/24,host=tap0",
        ] {
            let port = PortSetting::read(text).expect(text);
            assert_eq!(port.to_string(), text);
        }
    }

    #[test]
    fn senseless_ports_are_refused() {
        for text in [
            "",
            "tap",
            "tap:",
            "tap:tap0",
            "tap:a/b,10.7.0.2/24",
            "tap:a-name-that-is-too-long,10.7.0.2/24",
            "cable:,10.7.0.2/24",
            "tap:tap0,10.7.0.2",
            "tap:tap0,10.7.0.2/33",
            "tap:tap0,10.7.0.2/0",
            "tap:tap0,127.0.0.1/8",
            "tap:tap0,224.0.0.1/24",
            "tap:tap0,10.7.0.2/24,10.7.0.2/24",
            "tap:tap0,10.7.0.2/24,gateway=10.7.0.1,gateway=10.7.0.3",
            "tap:tap0,10.7.0.2/24,mtu=100",
            "tap:tap0,10.7.0.2/24,host=tap0",
            "tap:tap0,10.7.0.2/24,host=tap1,host=tap2",
            "tap:tap0,gateway=10.7.0.1",
            "other:tap0,10.7.0.2/24",
        ] {
            assert_eq!(PortSetting::read(text), None, "{text}");
        }
    }
}
