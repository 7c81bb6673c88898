//! The cases without traffic: `ibv_devices` and `ibv_devinfo -v`, in both personalities.
//! The personality is set by the environment and by an option of `verbena run`.

use super::case::{Case, Side};

/// The name of the setting in the environment.
const PERSONALITY: &str = "VERBENA_PERSONALITY";

/// Personality, and the transport that `ibv_devinfo` prints for it.
const TRANSPORTS: [(&str, &str); 2] = [("roce", "InfiniBand (0)"), ("iwarp", "iWARP (1)")];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (personality, transport) in TRANSPORTS {
        let env = |mut side: Side| {
            side.env.push((PERSONALITY, personality.to_owned()));
            side
        };
        let option = |mut side: Side| {
            side.launch = Some(vec!["--personality".to_owned(), personality.to_owned()]);
            side
        };
        let list = || Side::new(["ibv_devices"]).says("verbena0");
        let info = || {
            Side::new(["ibv_devinfo", "-v"])
                .says("verbena0")
                .says(transport)
                .says("PORT_ACTIVE (4)")
                .says("Ethernet")
                .says("GID[  0]")
        };
        cases.extend([
            Case::alone(format!("devices/list/{personality}"), env(list())),
            Case::alone(format!("devices/info/{personality}"), env(info())),
            Case::alone(format!("devices/info/{personality}-option"), option(info())),
        ]);
    }
    cases
}
