//! Where a unit is, as people write it: `iwarp://HOST:PORT`, `udp://HOST:PORT`, `ethernet://INTERFACE[/MAC]`.
//! It promises that what is printed can be read again.
//! It refuses to look anything up: names are resolved by whoever opens a carrier.

use core::fmt;
use core::str::FromStr;

use verbena_lan::Mac;

/// The port that units listen on unless told otherwise.
pub const PORT: u16 = 7471;

/// Where a unit is, and what leads there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// RDMA over TCP.
    Iwarp(String),
    /// Cells in UDP datagrams.
    Udp(String),
    /// Cells in Ethernet frames.
    Ethernet {
        /// Our interface.
        interface: String,
        /// The unit's address; none for the unit itself.
        unit: Option<Mac>,
    },
}

/// Not an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no address of a unit: iwarp://HOST[:PORT], udp://HOST[:PORT] or ethernet://INTERFACE[/MAC] ({1})"
)]
pub struct NotAddress(String, &'static str);

impl FromStr for Address {
    type Err = NotAddress;

    fn from_str(text: &str) -> Result<Address, NotAddress> {
        let no = |why| NotAddress(text.to_owned(), why);
        let (scheme, rest) = text.split_once("://").unwrap_or(("iwarp", text));
        if rest.is_empty() {
            return Err(no("nothing behind the scheme"));
        }
        match scheme {
            "iwarp" => Ok(Address::Iwarp(with_port(rest))),
            "udp" => Ok(Address::Udp(with_port(rest))),
            "ethernet" => {
                let (interface, unit) = match rest.split_once('/') {
                    None => (rest, None),
                    Some((interface, mac)) => {
                        let mac = mac.parse().map_err(|_| no("no Ethernet address"))?;
                        (interface, Some(mac))
                    }
                };
                Ok(Address::Ethernet {
                    interface: interface.to_owned(),
                    unit,
                })
            }
            _ => Err(no("no such carrier")),
        }
    }
}

/// With the usual port if there is none.
fn with_port(host: &str) -> String {
    let bare = host.strip_prefix('[').map_or(
        // A name or an address; several colons are IPv6 without brackets.
        !host.contains(':') || host.matches(':').count() > 1,
        |v6| v6.ends_with(']'),
    );
    match bare {
        true if host.starts_with('[') || !host.contains(':') => format!("{host}:{PORT}"),
        true => format!("[{host}]:{PORT}"),
        false => host.to_owned(),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Iwarp(host) => write!(f, "iwarp://{host}"),
            Address::Udp(host) => write!(f, "udp://{host}"),
            Address::Ethernet {
                interface,
                unit: None,
            } => write!(f, "ethernet://{interface}"),
            Address::Ethernet {
                interface,
                unit: Some(mac),
            } => write!(f, "ethernet://{interface}/{mac}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_can_be_read_again() {
        let each = [
            ("10.0.0.1", "iwarp://10.0.0.1:7471"),
            ("unit:9", "iwarp://unit:9"),
            ("udp://[fe80::1]", "udp://[fe80::1]:7471"),
            ("udp://fe80::1", "udp://[fe80::1]:7471"),
            ("udp://[fe80::1]:5", "udp://[fe80::1]:5"),
            ("ethernet://eth0", "ethernet://eth0"),
            (
                "ethernet://eth0/02:00:00:00:00:01",
                "ethernet://eth0/02:00:00:00:00:01",
            ),
        ];
        for (text, printed) in each {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), printed);
            assert_eq!(printed.parse(), Ok(address));
        }
    }

    #[test]
    fn what_is_no_address_says_why() {
        for text in ["", "udp://", "tcp://a", "ethernet://eth0/zz", "ethernet://"] {
            let no = text.parse::<Address>().unwrap_err().to_string();
            assert!(no.contains("iwarp://"), "{no}");
        }
    }
}
