//! Where libraries are found, how the environment changes, and which settings are rejected.

use super::*;

/// A folder that is removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("verbena-launch-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// A folder inside with all libraries.
    fn with_libraries(&self, name: &str) -> PathBuf {
        let folder = self.0.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        for library in NEEDED {
            std::fs::write(folder.join(library), "").unwrap();
        }
        folder
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn libraries_are_found_near_the_command() {
    for (name, place, command) in [
        ("beside", "bin", "bin/verbena"),
        ("tree", "dropin", "debug/verbena"),
        ("installed", "lib/verbena", "bin/verbena"),
    ] {
        let folder = Folder::new(name);
        let place = folder.with_libraries(place);
        let command = folder.0.join(command);
        let found = Libraries::find(None, &command).unwrap();
        assert_eq!(found.folder, place);
        std::fs::remove_file(place.join(SHIM)).unwrap();
        let error = Libraries::find(None, &command).unwrap_err().to_string();
        assert!(error.contains(&place.display().to_string()), "{error}");
        assert!(error.contains("cargo xtask dropin"), "{error}");
    }
}

#[test]
fn named_folder_is_the_only_one_searched() {
    let folder = Folder::new("named");
    let command = folder.with_libraries("bin").join("verbena");
    let error = Libraries::find(Some(&folder.0), &command).unwrap_err();
    let Error::NoLibraries(places) = error else {
        panic!("{error}");
    };
    assert_eq!(places, core::slice::from_ref(&folder.0));
    let colon = folder.with_libraries("a:b");
    let error = Libraries::find(Some(&colon), &command).unwrap_err();
    assert!(matches!(error, Error::Separator(_)), "{error}");
}

const USUAL: Extras = Extras {
    sockets: false,
    audit: true,
};

fn value(all: &[Variable], name: &str) -> String {
    let found = all.iter().find(|(n, _)| n == name);
    found.unwrap().1.to_string_lossy().into_owned()
}

#[test]
fn existing_variables_are_kept_behind_ours() {
    let libraries = Libraries {
        folder: "/l".into(),
    };
    let fresh = libraries.variables(USUAL, |_| None);
    assert_eq!(value(&fresh, "LD_LIBRARY_PATH"), "/l");
    assert_eq!(value(&fresh, "LD_PRELOAD"), "/l/libverbena-uverbs.so");
    assert_eq!(value(&fresh, "LD_AUDIT"), "/l/libverbena-audit.so");
    let set = |name: &str| name.starts_with("LD_").then(|| "".into());
    let empty = libraries.variables(USUAL, set);
    assert_eq!(empty, fresh, "an empty entry would be the current folder");
    let kept = libraries.variables(USUAL, |name| Some(format!("/{name}:/x").into()));
    assert_eq!(value(&kept, "LD_LIBRARY_PATH"), "/l:/LD_LIBRARY_PATH:/x");
    assert_eq!(
        value(&kept, "LD_PRELOAD"),
        "/l/libverbena-uverbs.so:/LD_PRELOAD:/x"
    );
    let again = libraries.variables(USUAL, |name| {
        let set = kept.iter().find(|(known, _)| known == name);
        Some(set.map_or("said".into(), |(_, value)| value.clone()))
    });
    assert_eq!(again, kept, "a second time adds nothing");
}

#[test]
fn program_variables_are_set_unless_present() {
    let libraries = Libraries {
        folder: "/l".into(),
    };
    let fresh = libraries.variables(USUAL, |_| None);
    assert_eq!(value(&fresh, "NCCL_GIN_TYPE"), "0");
    assert_eq!(value(&fresh, "UCX_FENCE_MODE"), "weak");
    let kept = libraries.variables(USUAL, |_| Some("3".into()));
    let said = |(name, _): &Variable| PROGRAMS.iter().any(|(said, _)| name == said);
    assert!(!kept.iter().any(said));
}

#[test]
fn audit_library_can_be_left_out() {
    let libraries = Libraries {
        folder: "/l".into(),
    };
    let extras = Extras {
        audit: false,
        ..USUAL
    };
    let all = libraries.variables(extras, |_| None);
    assert!(all.iter().all(|(name, _)| name != "LD_AUDIT"));
}

#[test]
fn rsocket_preload_is_opt_in() {
    let libraries = Libraries {
        folder: "/l".into(),
    };
    let extras = Extras {
        sockets: true,
        ..USUAL
    };
    let all = libraries.variables(extras, |_| None);
    let both = "/l/libverbena-uverbs.so:/l/libverbena-rsocket.so";
    assert_eq!(value(&all, "LD_PRELOAD"), both);
}

#[test]
fn folder_with_space_preloads_by_name() {
    let libraries = Libraries {
        folder: "/my libs".into(),
    };
    let all = libraries.variables(USUAL, |_| None);
    assert_eq!(value(&all, "LD_LIBRARY_PATH"), "/my libs");
    assert_eq!(value(&all, "LD_PRELOAD"), SHIM);
}

fn variables(texts: &[&str], environment: &[(&str, &str)]) -> Result<Vec<Variable>, String> {
    let mut wishes = RequestedSettings::default();
    for text in texts {
        wishes.add_text(text).map_err(|error| error.to_string())?;
    }
    let environment = environment.iter().map(|(n, v)| (n.into(), v.into()));
    let made = wishes.variables(environment);
    made.map_err(|error| error.to_string())
}

#[test]
fn later_settings_override_earlier_and_environment() {
    let made = variables(
        &["crc=on", "crc=off", "DEVICE=127.0.0.1"],
        &[("VERBENA_CRC", "perhaps")],
    );
    let expected: Vec<Variable> = vec![
        ("VERBENA_CRC".into(), "off".into()),
        ("VERBENA_DEVICE".into(), "127.0.0.1".into()),
    ];
    assert_eq!(made.unwrap(), expected);
}

#[test]
fn invalid_settings_are_refused_with_the_reason() {
    for (text, said) in [
        ("crc", "--set crc: expected key=value"),
        ("crc=perhaps", "--set crc=perhaps: expected auto, on or off"),
        ("crx=on", "did you mean crc?"),
        ("config=x", "unknown setting"),
        ("redial_min=1s", "expected at most redial_max"),
    ] {
        let error = variables(&[text], &[]).unwrap_err();
        assert!(error.contains(said), "{error}");
    }
    let error = variables(&[], &[("VERBENA_CRC", "perhaps")]).unwrap_err();
    assert!(
        error.starts_with("environment variable VERBENA_CRC"),
        "{error}"
    );
}
