//! `verbena devinfo --profile`: the logical devices of the adapter, and both of its maps (V2). They are the maps that programs get with the
//! same settings, and services that are not implemented are marked.

use std::io::{self, Write};

use verbena::function::{DeviceFunction, DeviceProfile, HostMap, Object, Service};

/// The objects of a device: their names in JSON and in text.
const OBJECTS: [(Object, &str, &str); 7] = [
    (Object::Qp, "queue_pairs", "queue pairs"),
    (Object::Cq, "completion_queues", "completion queues"),
    (
        Object::Srq,
        "shared_receive_queues",
        "shared receive queues",
    ),
    (Object::Pd, "protection_domains", "protection domains"),
    (Object::Stag, "stags", "STag indexes"),
    (Object::EventQueue, "event_queues", "event queues"),
    (Object::Vector, "vectors", "vectors"),
];

/// The function that provides a service, or that none does.
fn provider(profile: &DeviceProfile, device: &str, service: Service) -> String {
    match profile.function(device, service) {
        Ok(function) => format!("function {function}"),
        Err(_) => "not implemented".to_owned(),
    }
}

/// As text.
pub(super) fn write(
    out: &mut impl Write,
    profile: &DeviceProfile,
    host: &HostMap,
) -> io::Result<()> {
    writeln!(out, "devices")?;
    for device in profile.devices() {
        for &service in &device.services {
            let standing = provider(profile, &device.name, service);
            writeln!(
                out,
                "  {:<18} {:<6} {standing}",
                device.name,
                service.name()
            )?;
        }
    }
    writeln!(out, "\nhost side: numbers of a device, and the adapter's")?;
    for part in host.functions() {
        for (_, words, (first, last), (inside, end)) in object_ranges(part) {
            let name = format!("{}/{}", part.device, part.services);
            writeln!(
                out,
                "  {name:<24} {words:<22} {first:>8}-{last:<8} {inside:>8}-{end}"
            )?;
        }
    }
    writeln!(
        out,
        "\nnetwork side: the owner of a packet, the most specific rule first"
    )?;
    for rule in profile.network().rules() {
        let (packets, owner) = split_rule(&rule.to_string());
        writeln!(out, "  {packets:<44} {owner}")?;
    }
    let rest = profile.network().default_owner();
    writeln!(out, "  {:<44} {rest}", "anything else")
}

/// As JSON.
pub(super) fn json(profile: &DeviceProfile, host: &HostMap) -> serde_json::Value {
    let devices = profile.devices().iter().map(|device| {
        let services = device.services.iter().map(|&service| {
            let function = profile.function(&device.name, service).ok();
            serde_json::json!({"service": service.name(), "there": service.is_implemented(), "function": function})
        });
        serde_json::json!({"name": device.name, "services": services.collect::<Vec<_>>()})
    });
    let host = host.functions().iter().flat_map(|part| {
        let row = |(key, _, numbers, internal)| {
            serde_json::json!({
                "device": part.device, "services": service_names(part), "function": part.function,
                "object": key, "numbers": numbers, "internal": internal,
            })
        };
        object_ranges(part).map(row).collect::<Vec<_>>()
    });
    let network = profile.network().rules().iter().map(|rule| {
        let (packets, owner) = split_rule(&rule.to_string());
        serde_json::json!({"packets": packets, "owner": owner})
    });
    serde_json::json!({
        "devices": devices.collect::<Vec<_>>(),
        "host": host.collect::<Vec<_>>(),
        "network": network.collect::<Vec<_>>(),
        "default_owner": profile.network().default_owner().to_string(),
    })
}

/// First and last number.
type NumberRange = (u32, u32);

/// The objects of a part: first and last number as the device has them, and as the adapter does.
fn object_ranges(
    part: &DeviceFunction,
) -> impl Iterator<Item = (&'static str, &'static str, NumberRange, NumberRange)> {
    OBJECTS.into_iter().filter_map(|(object, key, words)| {
        let (outside, inside) = part.number_ranges(object)?;
        let ends = |range: core::ops::Range<u32>| (range.start, range.end.checked_sub(1));
        match (ends(outside), ends(inside)) {
            ((a, Some(b)), (c, Some(d))) if a <= b => Some((key, words, (a, b), (c, d))),
            _ => None,
        }
    })
}

/// The services of a part.
fn service_names(part: &DeviceFunction) -> Vec<&'static str> {
    part.services.iter().map(Service::name).collect()
}

/// The packets and the owner of a rule.
fn split_rule(rule: &str) -> (String, String) {
    let (packets, owner) = rule.split_once('=').unwrap_or((rule, ""));
    (packets.to_owned(), owner.to_owned())
}
