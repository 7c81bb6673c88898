//! Two network namespaces joined by a veth pair: two machines as far as addresses and routes go. Or one with a loopback interface only.
//! They are removed on drop, also after a failure; their names contain the process number.
//! It needs root, and does not change existing interfaces.

use anyhow::Result;

use super::address::{self, Peer};
use crate::command::Tool;

/// The addresses of the two ends, from the block reserved for documentation (RFC 5737).
const ADDRESSES: [&str; 2] = ["198.51.100.1", "198.51.100.2"];
/// The same for IPv6 (RFC 3849), where the machine has it.
const ADDRESSES6: [&str; 2] = ["2001:db8::1", "2001:db8::2"];

/// The namespaces.
pub(crate) struct Namespaces {
    names: Vec<String>,
    links: [String; 2],
}

impl Namespaces {
    /// `mark` distinguishes pairs of one process; it is short, as an interface's name has at most 15 bytes.
    pub(crate) fn create(mark: &str) -> Result<Namespaces> {
        let id = std::process::id();
        let names = ["a", "b"]
            .map(|end| format!("verbena-{id}-{mark}{end}"))
            .into();
        let links = ["a", "b"].map(|end| format!("vb{id}{mark}{end}"));
        // From here on the drop removes what exists, also if a later step fails.
        let namespaces = Namespaces { names, links };
        for name in &namespaces.names {
            ip(&["netns", "add", name])?;
        }
        let [left, right] = &namespaces.links;
        ip(&["link", "add", left, "type", "veth", "peer", "name", right])?;
        let ends = namespaces.names.iter().zip(&namespaces.links);
        for ((name, link), (address, address6)) in ends.zip(ADDRESSES.iter().zip(ADDRESSES6)) {
            ip(&["link", "set", link, "netns", name])?;
            let address = format!("{address}/24");
            ip(&["-n", name, "address", "add", &address, "dev", link])?;
            if address::has_ipv6() {
                let address = format!("{address6}/64");
                // No other host can have the address: duplicate address detection is skipped.
                ip(&["-n", name, "address", "add", &address, "dev", link, "nodad"])?;
            }
            ip(&["-n", name, "link", "set", link, "up"])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
        }
        Ok(namespaces)
    }

    /// One namespace, in which both sides are reached by the loopback address.
    pub(crate) fn loopback(mark: &str) -> Result<Namespaces> {
        let name = format!("verbena-{}-{mark}lo", std::process::id());
        let names = vec![name.clone()];
        let links = ["lo", "lo"].map(str::to_owned);
        let namespaces = Namespaces { names, links };
        ip(&["netns", "add", &name])?;
        ip(&["-n", &name, "link", "set", "lo", "up"])?;
        Ok(namespaces)
    }

    /// Sets the MTU of the interfaces between the sides.
    pub(crate) fn set_mtu(&self, mtu: u32) -> Result<()> {
        let mtu = mtu.to_string();
        for (name, link) in self.names.iter().zip(&self.links) {
            ip(&["-n", name, "link", "set", link, "mtu", &mtu])?;
        }
        Ok(())
    }

    /// The words before a command that run it at this end.
    pub(crate) fn enter(&self, side: usize) -> Vec<String> {
        let name = self.names[side % self.names.len()].clone();
        let words = ["ip", "netns", "exec"].map(ToOwned::to_owned);
        words.into_iter().chain([name]).collect()
    }

    /// The interfaces of both ends.
    pub(crate) fn links(&self) -> &[String; 2] {
        &self.links
    }

    /// The addresses of the first side.
    pub(crate) fn peer() -> Peer {
        Peer {
            v4: ADDRESSES[0].to_owned(),
            v6: ADDRESSES6[0].to_owned(),
        }
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.names {
            // Deleting the first namespace deletes the pair of interfaces.
            if let Err(error) = ip(&["netns", "del", name]) {
                println!("cannot remove the network namespace {name}: {error:#}");
            }
        }
    }
}

fn ip(arguments: &[&str]) -> Result<()> {
    Tool::new("ip").args(arguments).run_quietly()
}
