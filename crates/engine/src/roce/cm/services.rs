//! The services of this side by port: a listener at an address, or at all of them. A listener that was dropped is not found.
//! Several listeners may have one port, each at another address.

use core::net::{IpAddr, SocketAddr};
use std::collections::HashMap;

use verbena_sync::locks::RwLock;

/// Listeners of one port space.
pub(super) struct Services<T> {
    by_port: RwLock<HashMap<u16, Vec<Listener<T>>>>,
}

struct Listener<T> {
    token: u64,
    address: IpAddr,
    target: T,
}

impl<T> Default for Services<T> {
    fn default() -> Services<T> {
        Services {
            by_port: RwLock::default(),
        }
    }
}

impl<T: Clone> Services<T> {
    /// Adds a listener; the token identifies it.
    pub(super) fn add(&self, at: SocketAddr, token: u64, target: T) {
        let listener = Listener {
            token,
            address: at.ip(),
            target,
        };
        let mut by_port = self.by_port.write();
        by_port.entry(at.port()).or_default().push(listener);
    }

    /// Removes it.
    pub(super) fn remove(&self, port: u16, token: u64) {
        let mut by_port = self.by_port.write();
        if let Some(listeners) = by_port.get_mut(&port) {
            listeners.retain(|listener| listener.token != token);
            if listeners.is_empty() {
                by_port.remove(&port);
            }
        }
    }

    /// The listener of this port at this address: one that was bound to it before one that was bound to all.
    pub(super) fn find(&self, local: IpAddr, port: u16) -> Option<T> {
        let by_port = self.by_port.read();
        let listeners = by_port.get(&port)?;
        let exact = listeners.iter().find(|listener| listener.address == local);
        let any = |listener: &&Listener<T>| {
            listener.address.is_unspecified() && listener.address.is_ipv4() == local.is_ipv4()
        };
        let found = exact.or_else(|| listeners.iter().find(any))?;
        Some(found.target.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bound_listener_precedes_one_at_all_addresses() {
        let services = Services::default();
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        services.add(at("0.0.0.0:7"), 1, "any");
        services.add(at("127.0.0.2:7"), 2, "bound");
        let find = |ip: &str, port| services.find(ip.parse().unwrap(), port);
        assert_eq!(find("127.0.0.2", 7), Some("bound"));
        assert_eq!(find("127.0.0.3", 7), Some("any"));
        assert_eq!(find("::1", 7), None);
        assert_eq!(find("127.0.0.2", 8), None);
        services.remove(7, 2);
        assert_eq!(find("127.0.0.2", 7), Some("any"));
        services.remove(7, 1);
        assert_eq!(find("127.0.0.2", 7), None);
    }
}
