//! Tests of the configuration: precedence, errors and their messages, and that the documentation lists every setting.

use core::time::Duration;

use verbena_nic::Personality;

use super::*;

fn from(file: &str, environment: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
    let file = File {
        name: "config.toml",
        text: file,
    };
    Config::from_parts(Some(file), environment.iter().copied())
}

fn sentences(file: &str, environment: &[(&str, &str)]) -> Vec<String> {
    let problems = from(file, environment).expect_err("something is wrong");
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn empty_sources_give_default_settings() {
    let config = Config::from_parts(None, []).unwrap();
    assert_eq!(*config, Settings::default());
    let rows = config.describe();
    assert_eq!(rows.len(), KEYS.len());
    assert!(rows.iter().all(|row| row.source == Source::Default));
}

#[test]
fn defaults_are_accepted_in_text_form() {
    for row in Config::default().describe() {
        let mut config = Config::default();
        config.set(row.key, &row.value).expect(row.key);
        assert_eq!(*config, Settings::default(), "{}", row.key);
        assert_eq!(config.source(row.key), Some(Source::Call));
        let name = format!("VERBENA_{}", row.key.to_uppercase());
        let config = Config::from_parts(None, [(name.as_str(), row.value.as_str())]).unwrap();
        assert_eq!(config.source(row.key), Some(Source::Environment));
    }
}

#[test]
fn every_setting_refuses_invalid_text_by_name() {
    for row in Config::default().describe() {
        // Any text but the empty one is a file name.
        let files = [
            "key_file",
            "tls_cert",
            "tls_key",
            "tls_ca",
            "same_host_path",
            "check",
        ];
        let is_file = files.contains(&row.key);
        let nonsense = if is_file { "" } else { "?!" };
        let problems = Config::default().set(row.key, nonsense).unwrap_err();
        let sentence = problems.to_string();
        let expected = format!("the program's call: {} = ", row.key);
        assert!(sentence.starts_with(&expected), "{sentence}");
        assert!(sentence.contains("expected "), "{sentence}");
    }
}

#[test]
fn environment_overrides_the_file() {
    let file = "personality = \"iwarp\"\n\n# a note\ncrc = \"on\"\n";
    let config = from(file, &[("VERBENA_CRC", "off"), ("OTHER_CRC", "?")]).unwrap();
    assert_eq!(config.personality, Personality::Iwarp);
    assert_eq!(config.source("personality"), Some(Source::File(1)));
    assert_eq!(config.crc, Choice::Off);
    assert_eq!(config.source("crc"), Some(Source::Environment));
    assert_eq!(config.source("nothing"), None);
    let rows = config.describe();
    let row = rows.iter().find(|row| row.key == "personality").unwrap();
    assert_eq!(
        (row.value.as_str(), row.source.to_string().as_str()),
        ("iwarp", "file, line 1")
    );
}

#[test]
fn file_accepts_native_toml_types() {
    let file = r#"
        device = ["192.0.2.1", "2001:db8::1"]
        markers = true
        shards = 0x2
        direct_min = "8K"
        batch = 65_536
        mpa_revision = 1
        startup_timeout = "250ms"
        rtr = ["read"]
        ports = "30000-30100"
        [peers]
        "192.0.2.0/24" = "siw"
        "2001:db8::7" = "standard"
    "#;
    let config = from(file, &[]).unwrap();
    let addresses = ["192.0.2.1", "2001:db8::1"].map(|ip| ip.parse().unwrap());
    assert_eq!(config.device, Device::Addresses(addresses.to_vec()));
    assert!(config.markers);
    assert_eq!(config.shards, Some(2));
    assert_eq!((config.direct_min, config.batch), (8 << 10, 65_536));
    assert_eq!(config.startup_timeout, Duration::from_millis(250));
    assert!(config.rtr.read && !config.rtr.write);
    assert_eq!(config.ports, 30_000..=30_100);
    let profile = |ip: &str| config.peers.find(ip.parse().unwrap());
    assert_eq!(profile("192.0.2.200"), Some(Profile::Siw));
    assert_eq!(profile("2001:db8::7"), Some(Profile::Standard));
    assert_eq!(profile("198.51.100.1"), None);
    assert_eq!(config.source("peers"), Some(Source::File(11)));
}

/// E8, N5.
#[test]
fn steering_is_set_in_toml_and_text() {
    let key = "6d5a".repeat(20);
    let file = format!(
        "handlers = 4\ninterrupt_table = [3, 0]\ninterrupt_hash_key = \"{key}\"\ncompletion_vector_cpus = [0, \"2-3\"]"
    );
    let config = from(&file, &[]).unwrap();
    assert_eq!(config.interrupt_table, Some(vec![3, 0]));
    assert_eq!(config.completion_vector_cpus, Some(vec![0..=0, 2..=3]));
    let bytes = config.interrupt_hash_key.unwrap().0;
    assert_eq!(bytes[..4], [0x6d, 0x5a, 0x6d, 0x5a]);
    let rows = config.describe();
    let shown = |key: &str| {
        rows.iter()
            .find(|row| row.key == key)
            .unwrap()
            .value
            .clone()
    };
    assert_eq!(shown("interrupt_table"), "3,0");
    assert_eq!(shown("interrupt_hash_key"), key);
    assert_eq!(shown("completion_vector_cpus"), "0,2-3");
    // With colons, as `ethtool` shows it.
    let colons: Vec<&str> = (0..40).map(|at| &key[2 * at..2 * at + 2]).collect();
    let again = from("", &[("VERBENA_INTERRUPT_HASH_KEY", &colons.join(":"))]).unwrap();
    assert_eq!(again.interrupt_hash_key, config.interrupt_hash_key);
}

#[test]
fn bad_value_error_names_source_and_expectation() {
    assert_eq!(
        sentences("crc = \"maybe\"", &[("VERBENA_HALF_OPEN", "-1")]),
        [
            "config.toml, line 1: crc = \"…\": expected auto, on or off",
            "environment variable VERBENA_HALF_OPEN: half_open = \"-1\": expected a number from 1 to 65535",
        ]
    );
    assert_eq!(
        sentences("\nlinger = 2", &[]),
        [
            "config.toml, line 2: linger = \"…\": expected a time from 0s to 600s with its unit (us, ms, s)"
        ]
    );
}

#[test]
fn unknown_key_error_suggests_a_setting() {
    assert_eq!(
        sentences("personalty = 1", &[("VERBENA_WHATEVER_IT_IS", "1")]),
        [
            "config.toml, line 1: … = \"…\": unknown setting; did you mean personality?",
            "environment variable VERBENA_WHATEVER_IT_IS: whatever_it_is = \"…\": \
             unknown setting; docs/configuration.md lists them",
        ]
    );
}

#[test]
fn invalid_toml_error_names_the_line() {
    let all = sentences("crc = \"on\"\nkey = \"secret\n", &[]);
    assert!(
        all[0].starts_with("config.toml, line 2: key = \"…\": expected TOML ("),
        "{all:?}"
    );
    assert!(!all[0].contains("secret"), "{all:?}");
    let all = sentences("crc = 1.5\nlog = 2026-01-01\nrtr = [[1]]", &[]);
    assert_eq!(all.len(), 3, "{all:?}");
    let all = sentences("crc = \"on\"\ncrc = \"off\"", &[]);
    assert!(all[0].contains("line 2"), "{all:?}");
}

#[test]
fn contradicting_settings_are_refused() {
    assert_eq!(
        sentences("redial_min = \"1s\"", &[]),
        [
            "settings taken together: redial_min = \"1s\": expected at most redial_max, which is 200ms"
        ]
    );
    assert_eq!(sentences("held_per_qp = 100", &[]).len(), 1);
    assert_eq!(sentences("multicast_port = 20000", &[]).len(), 1);
    let key = "0123456789abcdef";
    let both = format!("key = \"{key}\"\nkey_file = \"/etc/keys\"");
    assert!(
        sentences(&both, &[])
            .concat()
            .contains("either key or key_file")
    );
    let off = format!("key = \"{key}\"\nextensions = false");
    assert!(sentences(&off, &[]).concat().contains("expected on"));
    // Both set consistently are accepted.
    from("redial_min = \"1s\"\nredial_max = \"2s\"", &[]).unwrap();
}

#[test]
fn key_is_never_shown() {
    let config = from("", &[("VERBENA_KEY", " s3cret of all of us ")]).unwrap();
    assert_eq!(
        config.key.as_ref().unwrap().bytes(),
        b" s3cret of all of us "
    );
    assert!(!format!("{config:?} {:?}", config.describe()).contains("s3cret"));
    let long = "s3cret".repeat(1000);
    let sentence = sentences("", &[("VERBENA_KEY", &long)]).concat();
    assert!(!sentence.contains("s3cret"), "{sentence}");
    // A short key is refused with a message that names the accepted length.
    let sentence = sentences("", &[("VERBENA_KEY", "s3cret of 15 by")]).concat();
    assert!(sentence.contains("16 to 1024 bytes"), "{sentence}");
    assert!(!sentence.contains("s3cret"), "{sentence}");
    // The value of an unknown key may be a secret, too.
    let sentence = sentences("", &[("VERBENA_KEYS", "s3cret")]).concat();
    assert!(!sentence.contains("s3cret"), "{sentence}");
}

#[test]
fn non_utf8_value_is_refused() {
    let value = String::from_utf8_lossy(b"se\xffret");
    let all = sentences("", &[("VERBENA_KEY", &value)]);
    assert_eq!(all.len(), 1);
}

#[test]
fn zero_time_needs_no_unit() {
    let mut config = Config::default();
    config.set("busy_poll", "20us").unwrap();
    assert_eq!(config.busy_poll, Duration::from_micros(20));
    config.set("poll_sleep", "0").unwrap();
    assert_eq!(config.poll_sleep, Duration::ZERO);
    assert!(config.set("poll_sleep", "1").is_err());
}

#[test]
fn invalid_change_leaves_settings_unchanged() {
    let mut config = Config::default();
    config.change(|s| s.half_open = 7).unwrap();
    assert_eq!(
        (config.half_open, config.source("half_open")),
        (7, Some(Source::Call))
    );
    assert_eq!(config.source("crc"), Some(Source::Default));
    let refused = config.change(|s| {
        s.crc = Choice::On;
        s.half_open = 0;
    });
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("half_open = \"0\"")
    );
    assert_eq!(
        (config.crc, config.half_open),
        (Choice::Auto, 7),
        "all or none"
    );
    assert!(config.set("redial_min", "10s").is_err());
    let expected = Settings {
        half_open: 7,
        ..Settings::default()
    };
    assert_eq!(*config, expected);
}

#[test]
fn file_location_follows_precedence() {
    let all = [
        ("VERBENA_CONFIG", "/a"),
        ("XDG_CONFIG_HOME", "/x"),
        ("HOME", "/h"),
    ];
    let place = |from: usize| {
        let find = |name: &str| {
            let found = all[from..].iter().find(|(n, _)| *n == name);
            found.map(|(_, value)| *value)
        };
        config_path(find)
    };
    assert_eq!(place(0), Some(("/a".into(), true)));
    assert_eq!(place(1), Some(("/x/verbena/config.toml".into(), false)));
    assert_eq!(
        place(2),
        Some(("/h/.config/verbena/config.toml".into(), false))
    );
    assert_eq!(place(3), None);
    let relative = super::config_path(|name| (name == "XDG_CONFIG_HOME").then_some("x"));
    assert_eq!(relative, None);
}

#[test]
fn explicitly_named_file_must_exist() {
    let nowhere = Path::new("/nonexistent/verbena.toml");
    assert_eq!(read(nowhere, false), Ok(None));
    let sentence = read(nowhere, true).unwrap_err().to_string();
    assert!(
        sentence.contains("VERBENA_CONFIG = \"/nonexistent/verbena.toml\""),
        "{sentence}"
    );
}

#[test]
fn user_file_is_read_from_xdg_config_home() {
    let home = std::env::temp_dir().join(format!("verbena-config-{}", std::process::id()));
    let folder = home.join("verbena");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("config.toml"), "half_open = 9\ncrc = \"on\"").unwrap();
    let variables = |more: &[(&str, &str)]| {
        let own = |(name, value): &(&str, &str)| (OsString::from(name), OsString::from(value));
        let home = (
            OsString::from("XDG_CONFIG_HOME"),
            home.clone().into_os_string(),
        );
        let all = more.iter().map(own).chain([home]);
        all.collect::<Vec<_>>()
    };
    let config = Config::from_variables(variables(&[("VERBENA_CRC", "off")]));
    let missing = Config::from_variables(variables(&[("VERBENA_CONFIG", "/nonexistent/x")]));
    std::fs::remove_dir_all(&home).unwrap();
    let config = config.unwrap();
    assert_eq!((config.half_open, config.crc), (9, Choice::Off));
    assert!(
        missing
            .unwrap_err()
            .to_string()
            .contains("a file that can be read")
    );
    let absent = Config::from_variables(variables(&[])).unwrap();
    assert_eq!(*absent, Settings::default());
}

/// V2: the profile is configurable, and an invalid one is refused with its reason.
#[test]
fn device_profile_is_configured_and_checked() {
    let auto = from("functions = 2", &[]).unwrap();
    let profile = auto.device_profile().unwrap();
    let names: Vec<String> = profile.devices().iter().map(ToString::to_string).collect();
    let whole = |name: &&str| format!("{name}=rdma+iscsi");
    let expected: Vec<String> = ["verbena0", "verbena0v1", "verbena0v2"]
        .iter()
        .map(whole)
        .collect();
    assert_eq!(names, expected);
    // A rule needs no service for a device with several services, if `nic` is not one of them.
    from("owners = \"192.0.2.1=verbena0\"", &[]).unwrap();
    let file = "presents = [\"verbena0=rdma+nic\", \"scsi0=iscsi\"]\n\
                owners = [\"192.0.2.1:4420=verbena0/rdma\", \"*:3260=scsi0\", \
                \"[2001:db8::1]:5<[2001:db8::2]:6=verbena0/nic\", \"192.0.2.1=verbena0/nic\"]";
    let config = from(file, &[]).unwrap();
    let profile = config.device_profile().unwrap();
    assert_eq!(profile.devices().len(), 2);
    assert_eq!(profile.network().rules().len(), 4);
    for row in config.describe() {
        let mut again = Config::default();
        again
            .set("presents", "verbena0=rdma+nic,scsi0=iscsi")
            .unwrap();
        again.set(row.key, &row.value).expect(row.key);
    }
    for (presents, owners, part) in [
        (
            "a=rdma,a=nic",
            "",
            "presents = \"a=rdma,a=nic\": two devices are called a",
        ),
        ("a=rdma+rdma", "", "a has rdma twice"),
        (
            "a=rdma",
            "192.0.2.1=b",
            "owners = \"192.0.2.1=b\": no device is called b",
        ),
        ("a=rdma+nic", "192.0.2.1=a", "name one"),
        ("a=rdma", "*:80=a,*:80=a", "conflicts with"),
        ("a=rdma", "*:80<192.0.2.9:1=a", "both addresses"),
        ("a=toaster", "", "expected auto or a list such as"),
        ("a=rdma", "nowhere=a", "expected a list such as"),
    ] {
        let said = sentences(
            &format!("presents = {presents:?}\nowners = {owners:?}"),
            &[],
        );
        assert!(said.iter().any(|s| s.contains(part)), "{said:?}");
    }
    let said = sentences("functions = 1\npresents = \"a=rdma\"", &[]);
    assert!(said[0].contains("expected 0 beside presents"), "{said:?}");
}

/// The table in the documentation is generated from the same list; if this fails, paste the printed table.
#[test]
fn documentation_lists_every_setting() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let page = std::fs::read_to_string(page).unwrap();
    let table = settings::table();
    assert!(
        page.contains(&table),
        "docs/configuration.md wants this table:\n\n{table}"
    );
}

/// N2: one handler per processor, up to the 1024 processors of a Linux CPU set.
#[test]
fn default_is_one_handler_per_processor() {
    for (processors, handlers) in [
        (0, 1),
        (1, 1),
        (30, 30),
        (384, 384),
        (1024, 1024),
        (70_000, 1024),
    ] {
        assert_eq!(peer_settings::default_handlers(processors), handlers);
    }
}

#[test]
fn every_arrangement_has_a_name() {
    use verbena_events::arrangement::Arrangement;
    let named: Vec<Arrangement> = settings::ARRANGEMENTS.iter().map(|(_, a)| *a).collect();
    assert_eq!(named, Arrangement::ALL);
}

#[test]
fn moderation_is_a_time_and_count() {
    use verbena_events::moderation::{Hold, Moderation};
    let mut config = Config::default();
    let hold = |count, micros| {
        let delay = Duration::from_micros(micros);
        Moderation::Fixed(Hold { count, delay })
    };
    for (text, value) in [
        ("off", Moderation::Off),
        ("adaptive", Moderation::Adaptive),
        ("50us", hold(u32::MAX, 50)),
        ("1ms,16", hold(16, 1000)),
    ] {
        config.set("event_moderation", text).unwrap();
        assert_eq!(config.event_moderation, value);
        let shown = config.describe();
        let row = shown.iter().find(|row| row.key == "event_moderation");
        assert_eq!(row.unwrap().value, text);
    }
    for text in ["0us,1", "0", "50us,1", "101ms,4", "16", "50us,", "50us,4,4"] {
        let refused = config.set("event_moderation", text).unwrap_err();
        assert!(
            refused.to_string().contains("such as 50us or 50us,16"),
            "{refused}"
        );
        assert_eq!(config.event_moderation, hold(16, 1000), "unchanged");
    }
}

#[test]
fn arrangement_limits_the_handlers() {
    let mut config = Config::default();
    config.set("handlers", "338").unwrap();
    config
        .set("interrupt_arrangement", "all_queues_all_vectors")
        .unwrap();
    let refused = config.set("handlers", "339").unwrap_err().to_string();
    let says = "handlers = \"339\": expected at most 338 with interrupt_arrangement = all_queues_all_vectors";
    assert!(refused.contains(says), "{refused}");
    assert_eq!(config.handlers, Some(338), "unchanged");
}
