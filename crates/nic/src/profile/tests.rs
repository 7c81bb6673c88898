//! Tests of profiles: what is rejected, and both maps both ways.

use core::net::SocketAddr;

use super::*;
use crate::function::Shares;

fn logical(name: &str, services: &[Service]) -> LogicalDevice {
    LogicalDevice {
        name: name.to_owned(),
        services: services.to_vec(),
    }
}

fn owner(device: &str, service: Option<Service>) -> Owner {
    Owner {
        device: device.to_owned(),
        service,
    }
}

fn rule(local: &str, peer: Option<&str>, owner: Owner) -> Rule {
    let (address, port) = match local.parse::<SocketAddr>() {
        Ok(both) => (Some(both.ip()), Some(both.port())),
        Err(_) => match local.strip_prefix("*:") {
            Some(port) => (None, Some(port.parse().unwrap())),
            None => (local.parse().ok(), None),
        },
    };
    Rule {
        address,
        port,
        peer: peer.map(|peer| peer.parse().unwrap()),
        owner,
    }
}

fn several() -> Vec<LogicalDevice> {
    vec![
        logical("verbena0", &[Service::Rdma]),
        logical("eth7", &[Service::Nic]),
        logical("verbena1", &[Service::Rdma]),
        logical("scsi0", &[Service::Iscsi]),
    ]
}

#[test]
fn invalid_profile_error_states_the_cause() {
    let new = |devices| DeviceProfile::new(devices, vec![]).unwrap_err().to_string();
    let both = [Service::Rdma, Service::Rdma];
    for (devices, part) in [
        (vec![], "not 0"),
        (vec![LogicalDevice::rdma("a"); MAX_DEVICES + 1], "not 65"),
        (
            vec![LogicalDevice::rdma("a"); 2],
            "two devices are called a",
        ),
        (vec![logical("a", &[])], "a has no service"),
        (vec![logical("a", &both)], "rdma twice"),
    ] {
        let said = new(devices);
        assert!(said.contains(part), "{said}");
    }
}

/// V2: services that are not implemented have a name and fail with a clear error; devices with the others are functions, in order.
#[test]
fn unimplemented_services_are_refused() {
    let profile = DeviceProfile::new(several(), vec![]).unwrap();
    assert_eq!(profile.function("verbena0", Service::Rdma), Ok(0));
    assert_eq!(profile.function("verbena1", Service::Rdma), Ok(1));
    assert_eq!(profile.function("scsi0", Service::Iscsi), Ok(2));
    let said = profile.function("eth7", Service::Nic).unwrap_err();
    let words = "device eth7: nic is not implemented; rdma+iscsi are";
    assert_eq!(said.to_string(), words);
    let said = profile.function("scsi0", Service::Rdma).unwrap_err();
    assert_eq!(said.to_string(), "device scsi0 has no rdma");
    let said = profile.function("eth7", Service::Rdma).unwrap_err();
    assert_eq!(said.to_string(), "device eth7 has no rdma");
    assert!(profile.function("eth8", Service::Nic).is_err());
}

#[test]
fn one_device_may_have_several_services() {
    let all = vec![logical("verbena0", &Service::ALL)];
    let profile = DeviceProfile::new(all, vec![]).unwrap();
    assert_eq!(profile.devices()[0].to_string(), "verbena0=rdma+nic+iscsi");
    assert_eq!(profile.function("verbena0", Service::Rdma), Ok(0));
    assert_eq!(profile.function("verbena0", Service::Iscsi), Ok(0));
    assert_eq!(profile.served_devices().count(), 1);
    let map = HostMap::plan(&profile, &Shares::default()).unwrap();
    assert_eq!(map.functions().len(), 1);
    assert_eq!(map.functions()[0].services.to_string(), "rdma+iscsi");
    let both =
        Service::ALL.map(|service| map.to_adapter_number("verbena0", service, (Object::Qp, 2)));
    assert_eq!((&both[0], &both[2]), (&Ok((0, 2)), &Ok((0, 2))));
    let refused = map.to_adapter_number("verbena0", Service::Nic, (Object::Qp, 2));
    assert!(matches!(refused, Err(ProfileError::NotImplemented { .. })));
}

#[test]
fn host_map_translates_both_ways() {
    let profile = DeviceProfile::new(several(), vec![]).unwrap();
    let shares = Shares {
        qps: 10,
        cqs: 20,
        ..Shares::default()
    };
    let map = HostMap::plan(&profile, &shares).unwrap();
    let find =
        |device, object, number| map.to_adapter_number(device, Service::Rdma, (object, number));
    assert_eq!(find("verbena0", Object::Qp, 2), Ok((0, 2)));
    assert_eq!(find("verbena1", Object::Qp, 2), Ok((1, 12)));
    assert_eq!(find("verbena1", Object::Cq, 20), Ok((1, 40)));
    for (object, number) in [(Object::Qp, 12), (Object::Qp, 1), (Object::Cq, 21)] {
        let missing = ProfileError::NoQueue { object, number };
        assert_eq!(find("verbena1", object, number), Err(missing));
    }
    for object in [Object::Qp, Object::Cq, Object::Srq, Object::EventQueue] {
        for part in map.functions() {
            let (outside, _) = part.number_ranges(object).unwrap();
            for number in [outside.start, outside.end - 1] {
                let service = part.services.iter().next().unwrap();
                let found = map.to_adapter_number(&part.device, service, (object, number));
                let (function, internal) = found.unwrap();
                let (back, again) = map.owner(object, internal).unwrap();
                assert_eq!((back, again), (part, number));
                assert_eq!(function, part.function);
            }
        }
    }
    assert!(map.owner(Object::Qp, 32).is_err());
}

#[test]
fn profile_error_names_device_without_share() {
    let many = (0..16)
        .map(|n| LogicalDevice::rdma(format!("v{n}")))
        .collect();
    let profile = DeviceProfile::new(many, vec![]).unwrap();
    let said = HostMap::plan(&profile, &Shares::default()).unwrap_err();
    let said = said.to_string();
    assert!(
        said.contains("device v15") && said.contains("1048575 contiguous"),
        "{said}"
    );
}

/// V2: the most specific rule decides; packets that match no rule have an owner, too.
#[test]
fn most_specific_rule_owns_the_packet() {
    let on = |device| owner(device, None);
    let rules = vec![
        rule("192.0.2.1", None, on("eth7")),
        rule("*:3260", None, on("scsi0")),
        rule("192.0.2.1:4420", None, on("verbena0")),
        rule("192.0.2.1:4420", Some("192.0.2.9:5000"), on("verbena1")),
    ];
    let profile = DeviceProfile::new(several(), rules).unwrap();
    let whose = |local: &str, peer: Option<&str>| {
        let tuple = Tuple {
            local: local.parse().unwrap(),
            peer: peer.map(|peer| peer.parse().unwrap()),
        };
        profile.network().owner(&tuple).device.as_str()
    };
    let (known, other) = (Some("192.0.2.9:5000"), Some("192.0.2.9:5001"));
    assert_eq!(whose("192.0.2.1:80", None), "eth7");
    assert_eq!(whose("192.0.2.1:3260", known), "scsi0");
    assert_eq!(whose("192.0.2.1:4420", other), "verbena0");
    assert_eq!(whose("192.0.2.1:4420", known), "verbena1");
    assert_eq!(
        whose("198.51.100.1:4420", known),
        "verbena0",
        "no rule names it"
    );
}

#[test]
fn invalid_rule_error_states_the_cause() {
    let refuse = |rules: Vec<Rule>, part: &str| {
        let mut devices = several();
        devices.push(logical("multi", &[Service::Rdma, Service::Nic]));
        let said = DeviceProfile::new(devices, rules).unwrap_err().to_string();
        assert!(said.contains(part), "{said}");
    };
    let on = |device| owner(device, None);
    refuse(
        vec![rule("192.0.2.1", None, on("verbena7"))],
        "called verbena7",
    );
    refuse(vec![rule("192.0.2.1", None, on("multi"))], "name one");
    let both = vec![logical("both", &[Service::Rdma, Service::Iscsi])];
    let clear = vec![rule("192.0.2.1", None, on("both"))];
    DeviceProfile::new(both, clear).expect("connections tell queue pairs apart (M13)");
    let iscsi = owner("multi", Some(Service::Iscsi));
    refuse(vec![rule("*:80", None, iscsi)], "multi has no iscsi");
    refuse(vec![rule("*:0", None, on("eth7"))], "port 0");
    let peer = Some("192.0.2.9:1");
    refuse(vec![rule("192.0.2.1", peer, on("eth7"))], "both ports");
    refuse(
        vec![rule("[2001:db8::1]:5", peer, on("eth7"))],
        "one family",
    );
    refuse(
        vec![
            rule("192.0.2.1:80", None, on("eth7")),
            rule("192.0.2.1:80", None, on("verbena0")),
        ],
        "192.0.2.1:80=verbena0 conflicts with 192.0.2.1:80=eth7",
    );
}
