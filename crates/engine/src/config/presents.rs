//! The settings `presents` and `owners`: logical devices and network rules (V2).
//! Here they are parsed and printed; their meaning is that of [`verbena_nic::profile`], and an invalid profile is a problem with its reason.

use core::net::{IpAddr, SocketAddr};

use verbena_nic::profile::{
    DeviceProfile, LogicalDevice, Owner, ProfileError, Rule, Service, Services,
};

use super::form::{Form, Keyword, Label};
use super::problem::ConfigError;
use super::settings::Settings;

const SERVICES: &[(&str, Service)] = &[
    (Service::Rdma.name(), Service::Rdma),
    (Service::Nic.name(), Service::Nic),
    (Service::Iscsi.name(), Service::Iscsi),
];

/// Logical devices.
pub(super) struct Presents;

impl Form<Vec<LogicalDevice>> for Presents {
    fn read(&self, text: &str) -> Option<Vec<LogicalDevice>> {
        let one = |text: &str| {
            let (name, services) = text.split_once('=')?;
            let services = services
                .split('+')
                .map(|word| Keyword(SERVICES).read(word.trim()));
            Some(LogicalDevice {
                name: Label.read(name.trim())?,
                services: services.collect::<Option<_>>()?,
            })
        };
        text.split(',').map(one).collect()
    }

    fn show(&self, value: &Vec<LogicalDevice>) -> String {
        let all: Vec<String> = value.iter().map(ToString::to_string).collect();
        all.join(",")
    }

    fn wants(&self) -> String {
        let words = Keyword(SERVICES).wants();
        format!("a list such as verbena0=rdma,eth7=nic or verbena0=rdma+nic+iscsi with {words}")
    }
}

/// Rules for packets.
pub(super) struct Owners;

impl Form<Vec<Rule>> for Owners {
    fn read(&self, text: &str) -> Option<Vec<Rule>> {
        let parts = text.split(',').map(str::trim).filter(|one| !one.is_empty());
        parts.map(parse_rule).collect()
    }

    fn show(&self, value: &Vec<Rule>) -> String {
        let all: Vec<String> = value.iter().map(ToString::to_string).collect();
        all.join(",")
    }

    fn wants(&self) -> String {
        "a list such as 192.0.2.1=verbena0,*:3260=scsi0,192.0.2.1:4420<192.0.2.9:5000=verbena1/rdma"
            .to_owned()
    }
}

fn parse_rule(text: &str) -> Option<Rule> {
    let (packets, owner) = text.split_once('=')?;
    let (local, peer) = match packets.split_once('<') {
        Some((local, peer)) => (local, Some(peer.trim().parse().ok()?)),
        None => (packets, None),
    };
    let (device, service) = match owner.split_once('/') {
        Some((device, word)) => (device, Some(Keyword(SERVICES).read(word.trim())?)),
        None => (owner, None),
    };
    let (address, port) = parse_endpoint(local.trim())?;
    Some(Rule {
        address,
        port,
        peer,
        owner: Owner {
            device: Label.read(device.trim())?,
            service,
        },
    })
}

/// An address, a port, or both.
fn parse_endpoint(text: &str) -> Option<(Option<IpAddr>, Option<u16>)> {
    if text == "*" {
        return Some((None, None));
    }
    if let Some(port) = text.strip_prefix("*:") {
        return Some((None, Some(port.parse().ok()?)));
    }
    match text.parse::<SocketAddr>() {
        Ok(both) => Some((Some(both.ip()), Some(both.port()))),
        Err(_) => Some((Some(text.parse().ok()?), None)),
    }
}

impl Settings {
    /// The device profile of the settings (V2).
    pub fn device_profile(&self) -> Result<DeviceProfile, ProfileError> {
        let devices = self.presents.clone().unwrap_or_else(|| {
            let others = (1..=self.functions).map(|n| format!("{}v{n}", self.name));
            let names = core::iter::once(self.name.clone()).chain(others);
            names.map(LogicalDevice::with_all_services).collect()
        });
        DeviceProfile::new(devices, self.owners.clone())
    }

    /// The services of the function of this name; without a name, of the physical function. A name that is not in the profile has the
    /// services of the physical function.
    pub(crate) fn services(&self, name: Option<&str>) -> Services {
        // `Config` accepts only valid profiles, so this does not fail.
        let Ok(profile) = self.device_profile() else {
            return Services::default();
        };
        let known = name.and_then(|name| profile.device(name).ok());
        let device = known.or_else(|| profile.served_devices().next());
        device.map_or(Services::default(), LogicalDevice::implemented_services)
    }

    /// The problem of the profile, if it is invalid.
    pub(super) fn profile_problem(&self) -> Option<ConfigError> {
        if let (Some(presents), 1..) = (&self.presents, self.functions) {
            let why = "expected 0 beside presents, which says how many devices there are";
            let shown = Presents.show(presents);
            let (count, remedy) = (self.functions.to_string(), format!("{why}: {shown}"));
            return Some(ConfigError::contradiction("functions", count, remedy));
        }
        let why = self.device_profile().err()?;
        let (key, value) = match &why {
            ProfileError::Devices(_)
            | ProfileError::DuplicateName(_)
            | ProfileError::NoServices(_)
            | ProfileError::DuplicateService { .. } => {
                let shown = self.presents.as_ref().map(|all| Presents.show(all));
                ("presents", shown.unwrap_or_else(|| "auto".to_owned()))
            }
            _ => ("owners", Owners.show(&self.owners)),
        };
        Some(ConfigError::contradiction(key, value, why.to_string()))
    }
}
