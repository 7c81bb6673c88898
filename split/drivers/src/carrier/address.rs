//! The address of a unit in text form: `iwarp://HOST:DEFAULT_PORT`, `udp://HOST:DEFAULT_PORT`, `ethernet://INTERFACE[/MAC]`. What is printed can be
//! parsed again. Names are not resolved here, but when a carrier is opened.

use core::fmt;
use core::str::FromStr;

use verbena_lan::Mac;

use crate::lane::Lane;

/// The default port of units.
pub const DEFAULT_PORT: u16 = 7471;

/// The address of a unit, and the carrier to reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// RDMA over TCP.
    Iwarp(String),
    /// Cells in UDP datagrams.
    Udp(String),
    /// Cells in Ethernet frames.
    Ethernet {
        /// The local interface.
        interface: String,
        /// The unit's address; `None` to listen.
        unit: Option<Mac>,
    },
}

/// Not an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not an address of a unit: iwarp://HOST[:PORT], udp://HOST[:PORT] or ethernet://INTERFACE[/MAC] ({1})"
)]
pub struct ParseAddressError(String, &'static str);

/// An address that cannot be used with several queues.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueueAddressError {
    /// Cells of one interface carry no queue number.
    #[error("{0}: several queues need iwarp or udp")]
    Carrier(Address),
    /// The ports of the other queues would not be known.
    #[error("{0}: several queues need a port (the further queues use the ports after it)")]
    Port(Address),
    /// Some ports would be beyond 65535.
    #[error(
        "{address}: {queues} queues need the ports from there to {last}, and the last one is 65535"
    )]
    PortOutOfRange {
        /// The first queue's address.
        address: Address,
        /// The number of queues.
        queues: u8,
        /// The last queue's port.
        last: u32,
    },
}

impl Address {
    /// The address of a queue if this is the first one's: each further one is at the next port.
    pub fn of_queue(&self, lane: Lane) -> Result<Address, QueueAddressError> {
        let name = match self {
            _ if lane == Lane::ONLY => return Ok(self.clone()),
            Address::Iwarp(name) | Address::Udp(name) => name,
            Address::Ethernet { .. } => return Err(QueueAddressError::Carrier(self.clone())),
        };
        let parts = name.rsplit_once(':');
        let parts = parts.and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
        let Some((host, first @ 1..)) = parts else {
            return Err(QueueAddressError::Port(self.clone()));
        };
        let last = u32::from(first) + u32::from(lane.queue_count()) - 1;
        let port = first.checked_add(u16::from(lane.queue()));
        let port = port.filter(|_| last <= u32::from(u16::MAX));
        let port = port.ok_or_else(|| QueueAddressError::PortOutOfRange {
            address: self.clone(),
            queues: lane.queue_count(),
            last,
        })?;
        let name = format!("{host}:{port}");
        Ok(match self {
            Address::Udp(_) => Address::Udp(name),
            _ => Address::Iwarp(name),
        })
    }
}

impl FromStr for Address {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Address, ParseAddressError> {
        let no = |why| ParseAddressError(text.to_owned(), why);
        let (scheme, rest) = text.split_once("://").unwrap_or(("iwarp", text));
        if rest.is_empty() {
            return Err(no("nothing follows the scheme"));
        }
        match scheme {
            "iwarp" => Ok(Address::Iwarp(with_port(rest))),
            "udp" => Ok(Address::Udp(with_port(rest))),
            "ethernet" => {
                let (interface, unit) = match rest.split_once('/') {
                    None => (rest, None),
                    Some((interface, mac)) => {
                        let mac = mac.parse().map_err(|_| no("not an Ethernet address"))?;
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

/// Adds the default port if there is none.
fn with_port(host: &str) -> String {
    let bare = host.strip_prefix('[').map_or(
        // A name or an address; several colons are IPv6 without brackets.
        !host.contains(':') || host.matches(':').count() > 1,
        |v6| v6.ends_with(']'),
    );
    match bare {
        true if host.starts_with('[') || !host.contains(':') => format!("{host}:{DEFAULT_PORT}"),
        true => format!("[{host}]:{DEFAULT_PORT}"),
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
    fn printed_addresses_parse_again() {
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
    fn queues_have_consecutive_ports() {
        let at = |text: &str, queue, of| {
            let address: Address = text.parse().unwrap();
            let queue = address.of_queue(Lane::new(queue, of).unwrap());
            queue.map(|queue| queue.to_string())
        };
        let each = [
            ("10.0.0.1", 0, 2, "iwarp://10.0.0.1:7471"),
            ("10.0.0.1", 1, 2, "iwarp://10.0.0.1:7472"),
            ("udp://fe80::1", 15, 16, "udp://[fe80::1]:7486"),
            ("udp://unit:65534", 1, 2, "udp://unit:65535"),
            ("unit:65535", 0, 1, "iwarp://unit:65535"),
            ("unit:0", 0, 1, "iwarp://unit:0"),
            ("ethernet://eth0", 0, 1, "ethernet://eth0"),
        ];
        for (text, queue, of, expected) in each {
            assert_eq!(at(text, queue, of).as_deref(), Ok(expected), "{text}");
        }
        // Fails for every queue, so that none is opened without the others.
        for queue in [0, 1] {
            let no = |text| at(text, queue, 2).unwrap_err().to_string();
            let said = no("ethernet://eth0/02:00:00:00:00:01");
            assert!(said.contains("several queues need iwarp or udp"), "{said}");
            assert!(no("udp://unit:0").contains("need a port"));
            assert!(no("unit:http").contains("need a port"));
            let said = no("unit:65535");
            assert!(said.contains("to 65536"), "{said}");
        }
    }

    #[test]
    fn invalid_address_error_shows_a_valid_form() {
        for text in ["", "udp://", "tcp://a", "ethernet://eth0/zz", "ethernet://"] {
            let no = text.parse::<Address>().unwrap_err().to_string();
            assert!(no.contains("iwarp://"), "{no}");
        }
    }
}
