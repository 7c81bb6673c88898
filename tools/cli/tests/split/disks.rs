//! A disk of a unit at a host (P8), used by real NBD clients, beside the LAN. Also the loss of either side: requests in progress fail with
//! an I/O error, the device goes away at the host, and the disk is free again at the unit.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;

use crate::program::{Running, ping, sh, try_sh};
use crate::space::{self, wait_until};
use crate::world::{CarrierKind, LAN, SHORT, VERBENA, World, in_parallel, privileged};

/// Runs a test if the NBD clients are installed.
fn with_clients(name: &str, test: impl FnOnce()) {
    for (program, package) in [("nbdcopy", "libnbd-bin"), ("qemu-io", "qemu-utils")] {
        if let Err(error) = Command::new(program).arg("--version").output() {
            let why = format!("{program} (Debian package {package}): {error}");
            return space::skip(name, &why);
        }
    }
    privileged(name, test);
}

/// Bytes that do not repeat.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// A disk at a host.
struct AttachedDisk {
    driver: Running,
    socket: PathBuf,
    uri: String,
}

/// Starts the driver of a disk at a host, without waiting.
fn start(world: &World, n: usize, disk: &str, more: &[&str]) -> AttachedDisk {
    let socket = world.folder.file(&format!("disk{n}.sock"));
    let log = world.folder.file(&format!("disk{n}.log"));
    // An earlier driver wrote to the same file.
    let _ = fs::remove_file(&log);
    let mut command = world.verbena();
    let (unit, name) = (world.unit_for(n), format!("host{n}"));
    command.args(["host", "--connect", &unit, "--disk", disk, "--name", &name]);
    command.arg("--nbd-socket").arg(&socket);
    command.args(["--patience", world.timeout]).args(more);
    let driver = Running::start(world.host(n), &mut command, &log);
    let uri = format!("nbd+unix:///?socket={}", socket.display());
    AttachedDisk {
        driver,
        socket,
        uri,
    }
}

/// The same, and waits until clients can connect.
fn attach(world: &World, n: usize, disk: &str, more: &[&str]) -> AttachedDisk {
    let mut attached = start(world, n, disk, more);
    wait_until("the disk is attached", || {
        assert!(!attached.driver.has_exited(), "the driver ended");
        attached.driver.output().contains("Ctrl-C ends it")
    });
    attached
}

impl AttachedDisk {
    /// Runs commands of qemu-io on the disk; returns whether it succeeded, and its output.
    fn qemu_io(&self, world: &World, n: usize, commands: &[&str]) -> (bool, String) {
        self.qemu_io_with(world, n, "", commands)
    }

    fn qemu_io_with(
        &self,
        world: &World,
        n: usize,
        flag: &str,
        commands: &[&str],
    ) -> (bool, String) {
        let commands: Vec<String> = commands.iter().map(|c| format!("-c '{c}'")).collect();
        let line = format!(
            "qemu-io {flag} -f raw {} '{}'",
            commands.join(" "),
            self.uri
        );
        try_sh(world.host(n), &line)
    }
}

fn both_ways(way: CarrierKind, more: &[&str]) {
    let world = World::new(way, 1);
    let [file, new, back] = ["disk.img", "new", "back"].map(|name| world.folder.file(name));
    let bytes = noise(12 << 20);
    fs::write(&file, vec![0; bytes.len()]).unwrap();
    fs::write(&new, &bytes).unwrap();
    let disk = format!("data={}", file.display());
    let _unit = world.start_unit(&["--disk", &disk, "--disk", "ram:1M"]);
    // Frames pass beside it, by a driver of their own. Over Ethernet it would have the same address.
    let with_lan = way != CarrierKind::Ethernet;
    let _host = with_lan.then(|| world.bring_up(1, "b"));
    let mut attached = attach(&world, 1, "data", more);
    let (uri, new, back) = (&attached.uri, new.display(), back.display());
    std::thread::scope(|scope| {
        if with_lan {
            scope.spawn(|| ping(world.host(1), LAN, 200));
        }
        sh(world.host(1), &format!("nbdcopy --flush {new} '{uri}'"));
        sh(world.host(1), &format!("nbdcopy '{uri}' {back}"));
    });
    let read = fs::read(back.to_string()).unwrap();
    assert!(read == bytes, "there and back");
    assert!(fs::read(&file).unwrap() == bytes, "at the unit");
    let size = sh(world.host(1), &format!("nbdinfo --size '{uri}'"));
    assert_eq!(size.trim(), bytes.len().to_string());
    let status = world.status("unit", "lan0");
    let disks = &status["disks"];
    assert_eq!(disks[0]["name"], "data", "{disks}");
    assert_eq!(disks[0]["bytes"], bytes.len(), "{disks}");
    assert!(disks[0]["requests"].as_u64() > Some(300), "{disks}");
    assert_eq!(disks[0]["failed"], 0, "{disks}");
    assert_eq!(
        (&disks[1]["name"], &disks[1]["requests"]),
        (&"ram".into(), &0.into())
    );
    let hosts = status["hosts"].as_array().unwrap();
    let with_disk = hosts.iter().find(|host| host["disk"] == "data").unwrap();
    assert_eq!(with_disk["name"], "host1");
    assert_eq!(with_disk["messages"]["violations"], 0, "{with_disk}");
    // Ctrl-C leaves in good order.
    attached.driver.signal(Signal::INT);
    assert!(attached.driver.wait().success());
    let said = attached.driver.output();
    assert!(said.contains("disconnected in good order"), "{said}");
    assert!(!attached.socket.exists());
    wait_until("the unit forgets the host of the disk", || {
        world.guests().len() == usize::from(with_lan)
    });
}

macro_rules! carriers {
    ($($name:ident: $way:ident $more:expr;)*) => {$(
        #[test]
        fn $name() {
            let name = concat!("disks::", stringify!($name));
            with_clients(name, || both_ways(CarrierKind::$way, &$more));
        }
    )*};
}

carriers! {
    nbdcopy_over_iwarp: Iwarp [];
    nbdcopy_over_iwarp_in_messages: Iwarp ["--arrangement", "c"];
    nbdcopy_over_udp: Udp ["--indication", "address"];
    nbdcopy_over_udp_connectionless: Udp ["--data-channel", "connectionless"];
    nbdcopy_over_ethernet: Ethernet ["--arrangement", "a", "--delivery", "acknowledged"];
}

/// Reads, writes, flushes, and bytes that were never written; then what the disk does not allow.
#[test]
fn memory_and_read_only_disks_work() {
    with_clients("disks::memory_and_read_only_disks_work", || {
        let world = World::new(CarrierKind::Iwarp, 2);
        let file = world.folder.file("fixed.img");
        fs::write(&file, vec![0xa5; 1 << 20]).unwrap();
        let fixed = format!("fixed={},ro", file.display());
        let _unit = world.start_unit(&["--disk", "ram:4M", "--disk", &fixed]);
        let ram = attach(&world, 1, "ram", &[]);
        let (well, said) = ram.qemu_io(
            &world,
            1,
            &[
                "write -P 0x5a 64k 128k",
                "write -f -P 0x77 512 512",
                "flush",
                "write -z 1M 64k",
                "read -P 0x5a 64k 128k",
                "read -P 0x77 512 512",
                "read -P 0 1M 1M",
            ],
        );
        assert!(well && !said.contains("failed"), "{said}");
        let fixed = attach(&world, 2, "fixed", &[]);
        let (well, said) = fixed.qemu_io_with(&world, 2, "-r", &["read -P 0xa5 0 1M"]);
        assert!(well, "{said}");
        let info = sh(world.host(2), &format!("nbdinfo --json '{}'", fixed.uri));
        assert!(info.contains("\"is_read_only\": true"), "{info}");
        let (well, said) = fixed.qemu_io(&world, 2, &["write 0 4k"]);
        assert!(!well, "{said}");
        assert!(fs::read(&file).unwrap() == vec![0xa5; 1 << 20]);
    });
}

#[test]
fn frozen_unit_fails_requests_with_io_error() {
    with_clients("disks::frozen_unit_fails_requests_with_io_error", || {
        in_parallel([CarrierKind::Iwarp, CarrierKind::Udp], |way| {
            let mut world = World::new(way, 1);
            world.timeout = SHORT;
            let unit = world.start_unit(&["--disk", "ram:4M"]);
            let mut attached = attach(&world, 1, "ram", &[]);
            unit.signal(Signal::STOP);
            let read = format!("qemu-io -f raw -c 'read 0 1M' '{}'", attached.uri);
            let (well, said) = try_sh(world.host(1), &read);
            assert!(!well, "{said}");
            assert!(said.contains("Input/output error"), "{said}");
            // The device goes away.
            assert_eq!(attached.driver.wait().code(), Some(1));
            let said = attached.driver.output();
            assert!(said.contains("silent for"), "{said}");
            assert!(!attached.socket.exists());
            unit.signal(Signal::CONT);
        });
    });
}

#[test]
fn killed_unit_ends_the_device() {
    with_clients("disks::killed_unit_ends_the_device", || {
        let mut world = World::new(CarrierKind::Udp, 1);
        world.timeout = SHORT;
        let mut unit = world.start_unit(&["--disk", "ram:4M"]);
        let mut attached = attach(&world, 1, "", &[]);
        unit.kill();
        assert_eq!(attached.driver.wait().code(), Some(1));
        assert!(!attached.socket.exists());
        // The next unit has a new disk, which is attached by the same command.
        let _unit = world.start_unit(&["--disk", "ram:4M"]);
        let attached = attach(&world, 1, "", &[]);
        let (well, said) = attached.qemu_io(&world, 1, &["read -P 0 0 4M"]);
        assert!(well, "{said}");
    });
}

#[test]
fn killed_host_frees_its_disk() {
    with_clients("disks::killed_host_frees_its_disk", || {
        in_parallel([CarrierKind::Iwarp, CarrierKind::Udp], |way| {
            let mut world = World::new(way, 2);
            world.timeout = SHORT;
            let _unit = world.start_unit(&["--disk", "data=ram:4M"]);
            let mut one = attach(&world, 1, "data", &[]);
            let (well, said) = one.qemu_io(&world, 1, &["write -P 7 0 1M", "flush"]);
            assert!(well, "{said}");
            // While it is in use, no other host gets it.
            let mut other = start(&world, 2, "data", &[]);
            assert_eq!(other.driver.wait().code(), Some(1));
            let said = other.driver.output();
            assert!(said.contains("disk data is in use by host host1"), "{said}");
            one.driver.kill();
            wait_until("the unit forgets the host", || world.guests().is_empty());
            let other = attach(&world, 2, "data", &[]);
            let (well, said) = other.qemu_io(&world, 2, &["read -P 7 0 1M"]);
            assert!(well, "{said}");
        });
    });
}

#[test]
fn disks_that_do_not_exist_are_refused() {
    privileged("disks::disks_that_do_not_exist_are_refused", || {
        let world = World::new(CarrierKind::Iwarp, 1);
        let unit = world.start_unit(&[]);
        let mut attached = start(&world, 1, "data", &[]);
        assert_eq!(attached.driver.wait().code(), Some(1));
        let said = attached.driver.output();
        assert!(said.contains("this unit has no disks"), "{said}");
        drop(unit);
        let two = ["--disk", "ram:1M", "--disk", "ram:2M"];
        let mut command = world.verbena();
        command.args(["unit", "--lan", "lan0", "--listen", "127.0.0.1"]);
        command.args(two);
        let log = world.folder.file("twice.log");
        let mut unit = Running::start(&world.unit, &mut command, &log);
        assert_eq!(unit.wait().code(), Some(1));
        let said = unit.output();
        assert!(said.contains("two disks have the name `ram`"), "{said}");
    });
}

/// Nothing is created or connected for these.
#[test]
fn invalid_disk_arguments_are_refused() {
    let unit = ["unit", "--lan", "absent0", "--listen", "127.0.0.1"];
    let host = ["host", "--connect", "127.0.0.1"];
    let each: [(&[&str], &[&str], i32, &str); 9] = [
        (&unit, &["--disk", "/"], 2, "[NAME=]PATH[,ro]"),
        (&unit, &["--disk", "x="], 2, "[NAME=]PATH[,ro]"),
        (&unit, &["--disk", "ram:1.5G"], 2, "not a number of bytes"),
        (
            &unit,
            &["--disk", "ram:700"],
            1,
            "700 bytes are no whole blocks of 512",
        ),
        (
            &unit,
            &["--disk", "/nonexistent/disk"],
            1,
            "/nonexistent/disk",
        ),
        (
            &unit,
            &["--disk", "/dev/null,ro"],
            1,
            "neither a file nor a block device",
        ),
        (&host, &["--disk", "a"], 2, "--nbd-socket"),
        (
            &host,
            &["--disk", "a", "--nbd-socket", "b", "--tap", "c"],
            2,
            "cannot be used with",
        ),
        (
            &host,
            &["--tap", "c", "--nbd-socket", "b"],
            2,
            "cannot be used with",
        ),
    ];
    for (command, words, code, why) in each {
        let ran = Command::new(VERBENA).args(command).args(words).output();
        let ran = ran.unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains(why), "{words:?}: {said}");
    }
}
