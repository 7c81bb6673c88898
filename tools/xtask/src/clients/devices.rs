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
        let list = || Side::new(["ibv_devices"]).must_print("verbena0");
        let info = || {
            Side::new(["ibv_devinfo", "-v"])
                .must_print("verbena0")
                .must_print(transport)
                .must_print("PORT_ACTIVE (4)")
                .must_print("Ethernet")
                .must_print("GID[  0]")
        };
        cases.extend([
            Case::single(format!("devices/list/{personality}"), env(list())),
            Case::single(format!("devices/info/{personality}"), env(info())),
            Case::single(format!("devices/info/{personality}-option"), option(info())),
        ]);
    }
    cases
}
