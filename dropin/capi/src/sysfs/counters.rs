//! The files below `counters` and `hw_counters` of a port: names of the InfiniBand specification's PortCounters as the kernel has them,
//! names of the kernel's software adapter (rxe), and the one by which adapters count packets with a wrong ICRC.
//! Messages stand for packets; `port_*_data` is in units of four octets, as on every adapter.

use verbena::function::{DatagramDrops, FunctionCounters};

/// `counters/` of a port.
pub(super) const PORT: &[&str] = &[
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "multicast_rcv_packets",
    "multicast_xmit_packets",
    "port_rcv_constraint_errors",
    "port_rcv_data",
    "port_rcv_errors",
    "port_rcv_packets",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_xmit_data",
    "port_xmit_discards",
    "port_xmit_packets",
    "port_xmit_wait",
    "symbol_error",
    "unicast_rcv_packets",
    "unicast_xmit_packets",
];
/// `hw_counters/` of a port.
pub(super) const HARDWARE: &[&str] = &[
    "lifespan",
    "rcvd_bytes",
    "rcvd_pkts",
    "rcvd_rnr_err",
    "rx_icrc_encapsulated",
    "send_rnr_err",
    "sent_bytes",
    "sent_pkts",
];

/// The counter's name, if the path ends in one.
pub(super) fn name(path: &str) -> Option<&str> {
    let (folder, name) = path.rsplit_once('/')?;
    let known = match folder.rsplit_once('/')?.1 {
        "counters" => PORT,
        "hw_counters" => HARDWARE,
        _ => return None,
    };
    known.contains(&name).then_some(name)
}

/// The device's name in the path of a file of its port: the component before `ports`.
pub(super) fn device(path: &str) -> Option<&str> {
    let (before, _) = path.split_once("/ports/")?;
    Some(before.rsplit_once('/').map_or(before, |(_, name)| name))
}

/// What its file says, with this many connections and datagrams `refused` by `allow` and `deny`, and these dropped.
pub(super) fn value(
    name: &str,
    counted: &FunctionCounters,
    (refused, dropped): (u64, &DatagramDrops),
) -> Option<String> {
    let (pairs, datagrams) = (&counted.connections, &counted.datagrams);
    let bytes_in = pairs.bytes_in + datagrams.bytes_in;
    let bytes_out = pairs.bytes_out + datagrams.bytes_out;
    let value = match name {
        "port_rcv_data" => bytes_in / 4,
        "port_xmit_data" => bytes_out / 4,
        "rcvd_bytes" => bytes_in,
        "sent_bytes" => bytes_out,
        "port_rcv_packets" | "unicast_rcv_packets" | "rcvd_pkts" => {
            pairs.messages_in + datagrams.received
        }
        "port_xmit_packets" | "unicast_xmit_packets" | "sent_pkts" => {
            pairs.messages_out + datagrams.sent
        }
        "port_rcv_constraint_errors" => refused,
        "port_rcv_errors" => dropped.malformed + dropped.oversized + dropped.checksum,
        "rx_icrc_encapsulated" => dropped.checksum,
        "port_xmit_discards" => datagrams.lost,
        "rcvd_rnr_err" => pairs.rnr_received,
        "send_rnr_err" => pairs.rnr_sent,
        // Milliseconds that the kernel keeps a value before it asks the driver again.
        "lifespan" => 10,
        _ if PORT.contains(&name) => 0,
        _ => return None,
    };
    Some(format!("{value}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_name_has_a_value() {
        let counted = FunctionCounters::default();
        let none = DatagramDrops::default();
        for name in PORT.iter().chain(HARDWARE) {
            assert!(value(name, &counted, (0, &none)).is_some(), "{name}");
        }
        assert_eq!(value("no_such", &counted, (0, &none)), None);
    }

    #[test]
    fn port_data_counts_four_octet_units() {
        let mut counted = FunctionCounters::default();
        counted.connections.bytes_out = 4000;
        (counted.datagrams.bytes_in, counted.datagrams.bytes_out) = (60, 96);
        let dropped = DatagramDrops {
            malformed: 2,
            checksum: 5,
            ..DatagramDrops::default()
        };
        let value = |name| value(name, &counted, (3, &dropped)).unwrap();
        assert_eq!(value("port_xmit_data"), "1024\n");
        assert_eq!(value("sent_bytes"), "4096\n");
        assert_eq!(value("port_rcv_data"), "15\n");
        assert_eq!(value("rcvd_bytes"), "60\n");
        assert_eq!(value("port_rcv_constraint_errors"), "3\n");
        assert_eq!(value("port_rcv_errors"), "7\n");
        assert_eq!(value("rx_icrc_encapsulated"), "5\n");
    }

    #[test]
    fn counter_paths_yield_name_and_device() {
        let path = "class/infiniband/verbena0/ports/1/counters/port_rcv_data";
        assert_eq!(name(path), Some("port_rcv_data"));
        assert_eq!(device(path), Some("verbena0"));
        for other in ["counters", "a/b", "a/counters/b", "a/types/port_rcv_data"] {
            assert_eq!(name(other), None, "{other}");
        }
    }
}
