//! Where a target can be reached: `host[:port][,group]`, as TargetAddress says it (RFC 7143 §13.8). A portal promises a host that is a
//! name or an address and nothing else. Whether the name leads anywhere is not known here.

use core::fmt;
use core::net::Ipv6Addr;

use verbena_wire::iscsi::PORT;

#[cfg(test)]
mod tests;

/// Most bytes of a host's name.
const MAX_HOST: usize = 255;

/// An address of a target.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Portal {
    /// A name, or an address of IPv4 or IPv6; the latter without its brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// Number of the portal group; a target that moved does not say it.
    pub group: Option<u16>,
}

impl Portal {
    /// Reads the value of a TargetAddress.
    pub fn parse(value: &str) -> Option<Portal> {
        let (place, group) = match value.split_once(',') {
            Some((place, group)) => (place, Some(digits(group)?)),
            None => (value, None),
        };
        let (host, port) = match place.strip_prefix('[') {
            Some(rest) => {
                let (host, behind) = rest.split_once(']')?;
                host.parse::<Ipv6Addr>().ok()?;
                (host, behind)
            }
            None => {
                let at = place.find(':').unwrap_or(place.len());
                let (host, behind) = place.split_at_checked(at)?;
                host.chars().all(is_of_a_name).then_some((host, behind))?
            }
        };
        let port = match port {
            "" => PORT,
            port => digits(port.strip_prefix(':')?)?,
        };
        let fits = !host.is_empty() && host.len() <= MAX_HOST && port != 0;
        fits.then(|| Portal {
            host: host.to_owned(),
            port,
            group,
        })
    }
}

/// Names beyond ASCII come in UTF-8 as well; only what could end or change the address is refused.
fn is_of_a_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '.' | '-' | '_')
}

/// A plain decimal number: a sign, which Rust would take, is none.
fn digits(text: &str) -> Option<u16> {
    let plain = text.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| text.parse().ok())?
}

impl fmt::Display for Portal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port)?,
            false => write!(f, "{}:{}", self.host, self.port)?,
        }
        match self.group {
            Some(group) => write!(f, ",{group}"),
            None => Ok(()),
        }
    }
}
