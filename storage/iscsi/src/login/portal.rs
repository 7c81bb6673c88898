//! The address of a target portal: `host[:port][,group]`, the syntax of TargetAddress (RFC 7143 §13.8). The host of a parsed portal is an
//! IPv6 address or consists of characters of host names; it is not resolved here.

use core::fmt;
use core::net::Ipv6Addr;

use verbena_storage_wire::iscsi::PORT;

#[cfg(test)]
mod tests;

/// Most bytes of a host.
const MAX_HOST: usize = 255;

/// The address of a target portal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Portal {
    /// A host name, or an IPv4 or IPv6 address, the latter without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// Portal group tag; absent in a redirection.
    pub group: Option<u16>,
}

impl Portal {
    /// Parses the value of a TargetAddress.
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
                host.chars().all(is_host_char).then_some((host, behind))?
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

/// Host names may be UTF-8; only characters that would delimit or change the address are rejected.
fn is_host_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '.' | '-' | '_')
}

/// A decimal number without a sign, which `parse` would accept.
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
