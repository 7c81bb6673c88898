//! The functions of the adapter that the settings define (V1, V2): their numbers and names. Nothing is opened for that, so that it can be
//! asked before the adapter exists.

use verbena::Config;
use verbena::function::{DeviceProfile, LogicalDevice, Service};

/// Numbers and names of the functions that do RDMA; verbs do not show others (V2).
pub(crate) fn names(config: &Config) -> Vec<(usize, String)> {
    let mut all = all_functions(config);
    all.retain(|(_, device)| device.implemented_services().has(Service::Rdma));
    let name = |(number, device): (usize, LogicalDevice)| (number, device.name);
    all.into_iter().map(name).collect()
}

/// Devices of all functions; the physical one is 0.
pub(crate) fn all_functions(config: &Config) -> Vec<(usize, LogicalDevice)> {
    // An invalid profile was refused when the settings were read.
    let profile = config.device_profile().into_iter();
    let all = |profile: DeviceProfile| profile.served_devices().cloned().collect::<Vec<_>>();
    profile.flat_map(all).enumerate().collect()
}
