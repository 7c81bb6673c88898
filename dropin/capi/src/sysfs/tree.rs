//! The content of the devices' sysfs files, as a list of paths relative to `/sys`.
//! Nothing is written here; links are relative, except for those to the kernel's own files.

use core::fmt::Write;
use core::net::IpAddr;
use std::collections::BTreeMap;
use std::path::Path;

use verbena::low::Personality;

use super::counters;
use crate::abi::IBV_PORT_ACTIVE;
use crate::identity::{FW_VERSION, HW_VERSION, VENDOR_ID, VENDOR_PART_ID};
use crate::port::{LinkState, gid_of};
use crate::{gids, port};

/// Classes in which adapters appear, and the file that says which release of the kernel's interface that is.
const CLASSES: &[(&str, Option<&str>)] = &[
    ("infiniband", None),
    ("infiniband_verbs", Some("6\n")),
    ("infiniband_mad", Some("5\n")),
];
/// Where the devices themselves are: the kernel has no such folder.
const DEVICES: &str = "devices/verbena";

/// A device as its files describe it.
#[derive(Debug, Clone)]
pub(super) struct TreeDevice {
    pub(super) number: usize,
    pub(super) name: String,
    /// In network order.
    pub(super) guid: u64,
    pub(super) personality: Personality,
    pub(super) addresses: Vec<IpAddr>,
    /// The interface of each address, if there is one.
    pub(super) interfaces: Vec<Option<String>>,
    /// The state of the link when the tree was rendered.
    pub(super) link: LinkState,
}

/// A file's content or a link's target.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Node {
    File(String),
    Link(String),
}

/// All files and links, by path.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) nodes: BTreeMap<String, Node>,
}

impl Tree {
    pub(super) fn of(devices: &[TreeDevice]) -> Tree {
        let mut tree = Tree::default();
        for (class, version) in CLASSES {
            if let Some(version) = version {
                tree.put(format!("class/{class}/abi_version"), *version);
            }
        }
        // `..` from a class leads to interfaces as it does in the kernel's tree.
        tree.link("class/net", "/sys/class/net");
        for device in devices {
            tree.add(device);
        }
        tree
    }

    fn put(&mut self, path: impl Into<String>, content: impl Into<String>) {
        self.nodes.insert(path.into(), Node::File(content.into()));
    }

    fn link(&mut self, path: impl Into<String>, target: impl Into<String>) {
        self.nodes.insert(path.into(), Node::Link(target.into()));
    }

    fn add(&mut self, device: &TreeDevice) {
        let (name, number) = (&device.name, device.number);
        let base = format!("{DEVICES}/{name}");
        let interface = device.interfaces.iter().flatten().next();
        for (file, content) in bus(interface.map(String::as_str)) {
            self.put(format!("{base}/{file}"), content);
        }
        for interface in device.interfaces.iter().flatten() {
            let target = format!("/sys/class/net/{interface}");
            self.link(format!("{base}/net/{interface}"), target);
        }
        let uverbs = format!("uverbs{number}");
        for (class, entry) in [("infiniband", name), ("infiniband_verbs", &uverbs)] {
            let own = format!("{base}/{class}/{entry}");
            self.link(format!("class/{class}/{entry}"), format!("../../{own}"));
            self.link(format!("{own}/device"), format!("../../../{name}"));
            let class = format!("../../../../../class/{class}");
            self.link(format!("{own}/subsystem"), class);
        }
        let verbs = format!("{base}/infiniband_verbs/{uverbs}");
        // The major number of uverbs devices, and the first of their minor ones.
        let dev = format!("231:{}\n", 192 + number);
        let uevent = format!(
            "MAJOR=231\nMINOR={}\nDEVNAME=infiniband/{uverbs}\n",
            192 + number
        );
        for (file, content) in [
            ("abi_version", "1\n".to_owned()),
            ("dev", dev),
            ("ibdev", format!("{name}\n")),
            ("uevent", uevent),
        ] {
            self.put(format!("{verbs}/{file}"), content);
        }
        let own = format!("{base}/infiniband/{name}");
        for (file, content) in identity(device) {
            self.put(format!("{own}/{file}"), content);
        }
        for (file, content) in port_files(device) {
            self.put(format!("{own}/ports/{}/{file}", port::PORT), content);
        }
    }

    /// Adds links to the entries of the kernel's own classes, so that these stay visible.
    pub(super) fn add_kernel_entries(&mut self, sys: &Path) {
        for (class, _) in CLASSES {
            let Ok(entries) = std::fs::read_dir(sys.join("class").join(class)) else {
                continue;
            };
            for entry in entries.flatten() {
                let path = format!("class/{class}/{}", entry.file_name().to_string_lossy());
                if let Ok(target) = entry.path().canonicalize()
                    && !self.nodes.contains_key(&path)
                {
                    self.link(path, target.to_string_lossy());
                }
            }
        }
    }

    /// The content of a file, with links of the tree followed.
    pub(super) fn file(&self, path: &str) -> Option<&str> {
        let mut at: Vec<&str> = Vec::new();
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(at.pop()),
                _ => at.push(part),
            }
            // No link leads through another one, so each component is resolved once.
            if let Some(Node::Link(target)) = self.nodes.get(&at.join("/")) {
                at.pop();
                for part in target.split('/') {
                    match part {
                        ".." => drop(at.pop()),
                        _ => at.push(part),
                    }
                }
            }
        }
        match self.nodes.get(&at.join("/"))? {
            Node::File(content) => Some(content),
            Node::Link(_) => None,
        }
    }
}

/// Files that the bus of an adapter would have.
fn bus(interface: Option<&str>) -> Vec<(&'static str, String)> {
    // The values of the interface's own adapter, if it is on a bus.
    let near = |file: &str, otherwise: &str| {
        let path = interface.map(|name| format!("/sys/class/net/{name}/device/{file}"));
        let read = path.and_then(|path| std::fs::read_to_string(path).ok());
        read.unwrap_or_else(|| otherwise.to_owned())
    };
    let (mask, list) = processors();
    vec![
        ("class", "0x020000\n".to_owned()),
        ("device", format!("0x{VENDOR_PART_ID:04x}\n")),
        ("local_cpulist", near("local_cpulist", &list)),
        ("local_cpus", near("local_cpus", &mask)),
        ("numa_node", near("numa_node", "-1\n")),
        ("revision", "0x00\n".to_owned()),
        ("subsystem_device", format!("0x{VENDOR_PART_ID:04x}\n")),
        (
            "subsystem_vendor",
            format!("0x{:04x}\n", VENDOR_ID & 0xffff),
        ),
        ("uevent", "DRIVER=verbena\n".to_owned()),
        ("vendor", format!("0x{:04x}\n", VENDOR_ID & 0xffff)),
    ]
}

/// All processors, as a mask in groups of 32 and as a list.
fn processors() -> (String, String) {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/possible");
    let list = list.unwrap_or_else(|_| "0\n".to_owned());
    let last = list.trim().rsplit(['-', ',']).next();
    let count = last
        .and_then(|last| last.parse::<usize>().ok())
        .unwrap_or(0)
        + 1;
    let mut mask = String::new();
    for group in (0..count.div_ceil(32)).rev() {
        let bits = (count - group * 32).min(32);
        let comma = if group == 0 { "\n" } else { "," };
        let _ = write!(mask, "{:08x}{comma}", u64::MAX >> (64 - bits));
    }
    (mask, list)
}

/// The identity of the device.
fn identity(device: &TreeDevice) -> Vec<(&'static str, String)> {
    let guid = device.guid.to_ne_bytes();
    let quad = |at: usize| u16::from_be_bytes([guid[at], guid[at + 1]]);
    let guid = format!(
        "{:04x}:{:04x}:{:04x}:{:04x}\n",
        quad(0),
        quad(2),
        quad(4),
        quad(6)
    );
    let kind = match device.personality {
        Personality::Roce => "1: CA\n",
        Personality::Iwarp => "4: RNIC\n",
    };
    vec![
        ("board_id", "VERBENA\n".to_owned()),
        ("fw_ver", format!("{FW_VERSION}\n")),
        ("hca_type", "Verbena\n".to_owned()),
        ("hw_rev", format!("0x{HW_VERSION:x}\n")),
        ("node_desc", format!("{}\n", device.name)),
        ("node_guid", guid.clone()),
        ("node_type", kind.to_owned()),
        ("sys_image_guid", guid),
        ("uevent", format!("NAME={}\n", device.name)),
    ]
}

fn port_files(device: &TreeDevice) -> Vec<(String, String)> {
    let all = &device.addresses;
    let mut files: Vec<(String, String)> = [
        ("cap_mask", format!("0x{:08x}\n", port::CAPABILITIES)),
        ("lid", "0x0\n".to_owned()),
        ("lid_mask_count", "0\n".to_owned()),
        ("link_layer", "Ethernet\n".to_owned()),
        ("phys_state", link_file("phys_state", device.link)),
        ("pkeys/0", "0xffff\n".to_owned()),
        // The width and speed that `ibv_query_port` reports.
        ("rate", "100 Gb/sec (4X EDR)\n".to_owned()),
        ("sm_lid", "0x0\n".to_owned()),
        ("sm_sl", "0\n".to_owned()),
        ("state", link_file("state", device.link)),
    ]
    .map(|(file, content)| (file.to_owned(), content))
    .into();
    for index in 0..gids::len(all) {
        let address = gids::at(all, index);
        let gid = address.map_or([0; 8], groups);
        let gid = gid.map(|group| format!("{group:04x}")).join(":");
        files.push((format!("gids/{index}"), format!("{gid}\n")));
        // In the kernel's tree, reading the type of an empty entry is an error; here the file is empty.
        let kind = match (address, device.personality) {
            (None, _) => "",
            (Some(_), Personality::Roce) => "RoCE v2\n",
            (Some(_), Personality::Iwarp) => "IB/RoCE v1\n",
        };
        files.push((format!("gid_attrs/types/{index}"), kind.to_owned()));
        let position = all.iter().position(|ip| Some(*ip) == address);
        let interface = position.and_then(|at| device.interfaces.get(at)?.as_ref());
        let interface = interface.map_or(String::new(), |name| format!("{name}\n"));
        files.push((format!("gid_attrs/ndevs/{index}"), interface));
    }
    let none = verbena::function::FunctionCounters::default();
    let no_drops = verbena::function::DatagramDrops::default();
    for (folder, names) in [
        ("counters", counters::PORT),
        ("hw_counters", counters::HARDWARE),
    ] {
        for name in names {
            let value = counters::value(name, &none, (0, &no_drops)).unwrap_or_default();
            files.push((format!("{folder}/{name}"), value));
        }
    }
    files
}

/// The content of `state` or `phys_state` of a port.
pub(super) fn link_file(name: &str, link: LinkState) -> String {
    let text = match (name, link.port == IBV_PORT_ACTIVE) {
        ("state", true) => "4: ACTIVE\n",
        ("state", false) => "1: DOWN\n",
        (_, true) => "5: LinkUp\n",
        (_, false) => "3: Disabled\n",
    };
    text.to_owned()
}

fn groups(address: IpAddr) -> [u16; 8] {
    // SAFETY: `gid_of` writes this member.
    let raw = unsafe { gid_of(address).raw };
    core::array::from_fn(|at| u16::from_be_bytes([raw[2 * at], raw[2 * at + 1]]))
}

#[cfg(test)]
mod tests;
