//! The network side of a profile: the owner of a packet, by address, port or tuple (V2).
//! Every packet has one owner: the most specific matching rule decides, and there is a default. Two rules for the same packets and
//! rules whose owner does not exist are errors.

use core::cmp::Reverse;
use core::fmt;
use core::net::{IpAddr, SocketAddr};

use super::{LogicalDevice, ProfileError, Service};

/// The owner of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The device.
    pub device: String,
    /// Which of its services; `None` if the device alone determines it.
    pub service: Option<Service>,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.service {
            Some(service) => write!(f, "{}/{service}", self.device),
            None => f.write_str(&self.device),
        }
    }
}

/// A rule: packets that match all given fields belong to the owner; a field that is not given matches anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Local address.
    pub address: Option<IpAddr>,
    /// Local port.
    pub port: Option<u16>,
    /// The peer's address and port: the rule is for one connection.
    pub peer: Option<SocketAddr>,
    /// Their owner.
    pub owner: Owner,
}

impl Rule {
    /// How specific it is: the more fields, the narrower, and a port is narrower than an address.
    fn specificity(&self) -> (bool, bool, bool) {
        (
            self.peer.is_some(),
            self.port.is_some(),
            self.address.is_some(),
        )
    }

    fn matches(&self, tuple: &Tuple) -> bool {
        let (local, peer) = (tuple.local, tuple.peer);
        self.address.is_none_or(|address| address == local.ip())
            && self.port.is_none_or(|port| port == local.port())
            && self.peer.is_none_or(|wanted| Some(wanted) == peer)
    }

    /// It matches the same packets as another.
    fn has_same_match(&self, other: &Rule) -> bool {
        (self.address, self.port, self.peer) == (other.address, other.port, other.peer)
    }

    fn check(&self) -> Result<(), ProfileError> {
        let wrong = |why| {
            let rule = self.to_string();
            Err(ProfileError::Rule { rule, why })
        };
        if self.port == Some(0) {
            return wrong("no packet has port 0");
        }
        let Some(peer) = self.peer else {
            return Ok(());
        };
        match (self.address, self.port) {
            (Some(address), Some(_)) if address.is_ipv4() != peer.is_ipv4() => {
                wrong("both addresses of a connection are of one family")
            }
            (Some(_), Some(_)) => Ok(()),
            _ => wrong("a connection has both addresses and both ports"),
        }
    }
}

/// As in settings: `192.0.2.1:4420<192.0.2.9:5000=verbena0/rdma`, with `*` for any address.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.address, self.port) {
            (Some(address), Some(port)) => write!(f, "{}", SocketAddr::new(address, port))?,
            (Some(address), None) => write!(f, "{address}")?,
            (None, Some(port)) => write!(f, "*:{port}")?,
            (None, None) => f.write_str("*")?,
        }
        if let Some(peer) = self.peer {
            write!(f, "<{peer}")?;
        }
        write!(f, "={}", self.owner)
    }
}

/// Destination of a packet and, if it belongs to a connection, its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuple {
    /// Local end.
    pub local: SocketAddr,
    /// The peer's end.
    pub peer: Option<SocketAddr>,
}

/// The network side of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkMap {
    /// The narrowest first.
    rules: Vec<Rule>,
    /// The owner of packets that match no rule.
    default: Owner,
}

impl NetworkMap {
    pub(super) fn new(
        devices: &[LogicalDevice],
        mut rules: Vec<Rule>,
    ) -> Result<NetworkMap, ProfileError> {
        for (at, rule) in rules.iter().enumerate() {
            rule.check()?;
            check_owner(devices, &rule.owner)?;
            if let Some(other) = rules[..at].iter().find(|other| other.has_same_match(rule)) {
                return Err(ProfileError::ConflictingRules {
                    rule: rule.to_string(),
                    other: other.to_string(),
                });
            }
        }
        rules.sort_by_key(|rule| Reverse(rule.specificity()));
        let first = devices.first().ok_or(ProfileError::Devices(0))?;
        let default = Owner {
            device: first.name.clone(),
            service: first.services.first().copied(),
        };
        Ok(NetworkMap { rules, default })
    }

    /// The owner of a packet.
    pub fn owner(&self, tuple: &Tuple) -> &Owner {
        self.rule(tuple).map_or(&self.default, |rule| &rule.owner)
    }

    /// The rule that decides about a packet, if one does.
    pub fn rule(&self, tuple: &Tuple) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.matches(tuple))
    }

    /// The rules, the narrowest first.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The owner of packets that match no rule.
    pub fn default_owner(&self) -> &Owner {
        &self.default
    }
}

/// Checks that the owner exists, and that its service is unambiguous.
fn check_owner(devices: &[LogicalDevice], owner: &Owner) -> Result<(), ProfileError> {
    let device = devices.iter().find(|device| device.name == owner.device);
    let device = device.ok_or_else(|| ProfileError::NoDevice(owner.device.clone()))?;
    match owner.service {
        Some(service) if !device.services.contains(&service) => {
            let device = owner.device.clone();
            Err(ProfileError::NoService { device, service })
        }
        // Among queue pairs the connection decides (M13); a network card would take every packet.
        None if device.services.len() > 1 && device.services.contains(&Service::Nic) => {
            Err(ProfileError::AmbiguousService(owner.device.clone()))
        }
        _ => Ok(()),
    }
}
