//! The addresses at which the first side of a case is reached: the loopback's, or a global address of this machine.
//! They are read from the system at each call, and absent if there is none. Namespaces have addresses of their own.

use std::path::Path;

use crate::command::Tool;

/// The addresses of the first side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) v4: String,
    pub(crate) v6: String,
}

impl Peer {
    pub(crate) fn loopback() -> Peer {
        Peer {
            v4: "127.0.0.1".to_owned(),
            v6: "::1".to_owned(),
        }
    }

    /// With the first global IPv4 address of an interface that is up.
    pub(crate) fn own() -> Option<Peer> {
        let arguments = ["-4", "-oneline", "address", "show", "up", "scope", "global"];
        let text = Tool::new("ip").args(arguments).output().ok()?;
        let v4 = first(&text)?.to_owned();
        Some(Peer {
            v4,
            ..Peer::loopback()
        })
    }
}

/// Whether the loopback interface has an IPv6 address.
pub(crate) fn has_ipv6() -> bool {
    std::fs::read_to_string(Path::new("/proc/net/if_inet6"))
        .is_ok_and(|text| text.lines().any(|line| line.ends_with(" lo")))
}

/// Lines read `2: eth0    inet 192.0.2.2/24 brd …`.
fn first(text: &str) -> Option<&str> {
    text.lines().find_map(|line| {
        let (_, rest) = line.split_once(" inet ")?;
        rest.trim_start().split(['/', ' ']).next()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_address_is_parsed() {
        let text = "2: eth0    inet 192.0.2.2/24 brd 192.0.2.255 scope global eth0\\       valid\n\
                    3: eth1    inet 192.0.2.9/24 scope global eth1\n";
        assert_eq!(first(text), Some("192.0.2.2"));
        assert_eq!(
            first("4: tun0    inet 192.0.2.7 peer 192.0.2.8/32"),
            Some("192.0.2.7")
        );
        assert_eq!(first(""), None);
    }
}
