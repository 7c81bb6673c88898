//! Third-party programs on a disk that is exported over NBD: libnbd's, qemu's, and a file system. A program that is not installed is
//! reported, and in CI that is a failure.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::JoinHandle;

use verbena_storage::nbd::{Counts, Export, ExportAddr, Options};
use verbena_storage::{Failure, Stop};

use crate::ram::{RamDisk, noise};

/// A directory of one test, removed on drop.
struct TestDir(PathBuf);

impl TestDir {
    fn new(name: &str) -> TestDir {
        let id = std::process::id();
        let path = std::env::temp_dir().join(format!("verbena-nbd-{id}-{name}"));
        fs::create_dir_all(&path).expect("a folder");
        TestDir(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a plain path").to_owned()
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A disk that is being served.
struct TestServer {
    uri: String,
    stop: Stop,
    thread: JoinHandle<(RamDisk, Counts, Vec<String>)>,
}

impl TestServer {
    fn new(mut ram: RamDisk, place: &ExportAddr, read_only: bool) -> TestServer {
        let name = String::new();
        let export = Export::bind(
            place,
            Options {
                name,
                read_only,
                ..Options::default()
            },
        )
        .expect("the address is bound");
        let (uri, stop) = (
            export.uri().expect("the export has a URI"),
            Stop::new().expect("an eventfd"),
        );
        let pulled = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut said = Vec::new();
            let mut say = |text: &str| said.push(text.to_owned());
            let counts = export.serve(&mut ram, &pulled, &mut say).expect("served");
            (ram, counts, said)
        });
        TestServer { uri, stop, thread }
    }

    fn on(folder: &TestDir, ram: RamDisk) -> TestServer {
        TestServer::new(ram, &ExportAddr::Unix(folder.0.join("nbd.sock")), false)
    }

    /// Stops the server. Returns the disk, the counters and the messages about clients.
    fn finish(self) -> (RamDisk, Counts, Vec<String>) {
        self.stop.request();
        self.thread.join().expect("the server's thread")
    }

    /// Stops the server; there must be no messages about clients.
    fn end(self) -> (RamDisk, Counts) {
        let (ram, counts, said) = self.finish();
        assert_eq!(said, [""; 0]);
        (ram, counts)
    }
}

/// Runs a program, or reports that it is not installed.
fn run(program: &str, package: &str, args: &[&str]) -> Option<Output> {
    match Command::new(program).args(args).output() {
        Ok(output) => Some(output),
        Err(error) => {
            assert!(
                std::env::var_os("CI").is_none(),
                "{program} must be installed here (Debian package {package}): {error}"
            );
            eprintln!("SKIPPED: {program} is not installed (Debian package {package})");
            None
        }
    }
}

/// The output of a program that has to succeed, if it is installed.
fn good(program: &str, package: &str, args: &[&str]) -> Option<String> {
    let output = run(program, package, args)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {text}{said}");
    Some(text)
}

fn nbd(program: &str, args: &[&str]) -> Option<String> {
    good(program, "libnbd-bin", args)
}

fn qemu(program: &str, args: &[&str]) -> Option<String> {
    good(program, "qemu-utils", args)
}

/// Disks that differ in the properties that clients depend on.
fn disks(bytes: u64) -> [RamDisk; 3] {
    let plain = RamDisk::new(bytes / 512, 512);
    let mut late = RamDisk::new(bytes / 4096, 4096).reordering(3, 7);
    late.geometry.can_unmap = false;
    late.geometry.can_zero = false;
    let mut narrow = RamDisk::new(bytes / 512, 512).reordering(1, 11);
    narrow.geometry.maximal = 64 << 10;
    narrow.geometry.max_bulk_blocks = 100;
    narrow.depth = 3;
    [plain, late, narrow]
}

#[test]
fn nbdinfo_reports_the_geometry_of_the_disk() {
    let folder = TestDir::new("info");
    let served = TestServer::on(&folder, RamDisk::new(20480, 512));
    let uri = served.uri.clone();
    let Some(text) = nbd("nbdinfo", &["--json", "--no-content", &uri]) else {
        return;
    };
    for part in [
        "\"export-size\": 10485760",
        "\"is_read_only\": false",
        "\"can_flush\": true",
        "\"can_fua\": true",
        "\"can_trim\": true",
        "\"can_zero\": true",
        "\"can_multi_conn\": false",
        "\"block_size_minimum\": 512",
        "\"block_size_preferred\": 4096",
        "\"block_size_maximum\": 4194304",
        "\"protocol\": \"newstyle-fixed\"",
        "\"structured\": true",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    // It also reads the content, over connections of its own, and lists exports.
    assert!(nbd("nbdinfo", &["--content", &uri]).is_some());
    assert!(nbd("nbdinfo", &["--list", &uri]).is_some());
    let (_, counts) = served.end();
    assert!(counts.clients >= 3, "{counts:?}");

    let mut ram = RamDisk::new(2560, 4096);
    ram.geometry.can_unmap = false;
    let place = ExportAddr::Tcp("127.0.0.1:0".parse().expect("an address"));
    let served = TestServer::new(ram, &place, true);
    let text = nbd("nbdinfo", &["--json", "--no-content", &served.uri]).unwrap_or_default();
    for part in [
        "\"is_read_only\": true",
        "\"can_trim\": false",
        "\"can_zero\": false",
        "\"block_size_minimum\": 4096",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    served.end();
}

#[test]
fn nbdcopy_copies_a_file_both_ways() {
    let folder = TestDir::new("copy");
    let (file, back) = (folder.file("file"), folder.file("back"));
    let bytes = noise(24 << 20, 1);
    fs::write(&file, &bytes).expect("a file");
    let mut deepest = 0;
    for ram in disks(24 << 20) {
        let served = TestServer::on(&folder, ram);
        let uri = served.uri.clone();
        // Without --flush nothing may be lost either: the server flushes at the end.
        let deep = ["--requests=64", "--synchronous", "--request-size=1048576"];
        let Some(_) = nbd("nbdcopy", &[deep[0], &file, &uri]) else {
            return;
        };
        nbd("nbdcopy", &[&uri, &back]);
        assert!(fs::read(&back).expect("a file") == bytes, "there and back");
        nbd("nbdcopy", &[deep[1], deep[2], "--flush", &file, &uri]);
        nbd("nbdcopy", &[deep[2], &uri, &back]);
        assert!(fs::read(&back).expect("a file") == bytes, "by another way");
        let (ram, counts) = served.end();
        assert!(ram.bytes == bytes, "on the disk");
        assert!(ram.counters.flushes >= 2, "{:?}", ram.counters);
        deepest = deepest.max(ram.counters.deepest);
        assert_eq!((counts.failed, counts.refused), (0, 0));
        assert_eq!(counts.read, 48 << 20);
        // Payload is not copied, except for what was read together with another request's header.
        assert!(counts.copied < counts.written / 100, "{counts:?}");
    }
    // A fast disk may be done before the next request comes; the slow one is not.
    assert!(deepest > 1, "{deepest} requests at once");
}

#[test]
fn qemu_img_converts_both_ways() {
    let folder = TestDir::new("convert");
    let (file, image) = (folder.file("file"), folder.file("image.qcow2"));
    // With zero ranges, which it writes with NBD_CMD_WRITE_ZEROES.
    let mut bytes = noise(16 << 20, 2);
    bytes[1 << 20..3 << 20].fill(0);
    bytes[9 << 20..15 << 20].fill(0);
    fs::write(&file, &bytes).expect("a file");
    for mut ram in disks(16 << 20) {
        ram.bytes = noise(16 << 20, 3);
        let served = TestServer::on(&folder, ram);
        let uri = served.uri.clone();
        let to = ["convert", "-n", "-f", "raw", "-O", "raw", &file, &uri];
        if qemu("qemu-img", &to).is_none() {
            return;
        }
        let from = ["convert", "-m", "16", "-W", "-f", "raw", "-O", "qcow2"];
        qemu("qemu-img", &[&from[..], &[&uri, &image]].concat());
        let compare = ["compare", "-f", "raw", "-F"];
        qemu(
            "qemu-img",
            &[&compare[..], &["qcow2", &uri, &image]].concat(),
        );
        qemu("qemu-img", &[&compare[..], &["raw", &uri, &file]].concat());
        let (ram, counts) = served.end();
        assert!(ram.bytes == bytes);
        assert_eq!((counts.failed, counts.refused), (0, 0));
    }
}

#[test]
fn qemu_io_writes_zeroes_discards_and_flushes() {
    let folder = TestDir::new("io");
    for ram in disks(16 << 20) {
        let unmaps = ram.geometry.can_unmap;
        let served = TestServer::on(&folder, ram);
        let uri = served.uri.clone();
        let commands = [
            "write -P 0xab 0 3M",
            "write -f -P 0xcd 4096 8k",
            "write -z 1M 512k",
            "write -z -u 2M 64k",
            "discard 2560k 64k",
            "flush",
            "read -P 0xab 0 4096",
            "read -P 0xcd 4096 8k",
            "read -P 0xab 12288 4096",
            "read -P 0 1M 512k",
            "read -P 0 2M 64k",
            "aio_write -P 1 4M 1M",
            "aio_write -P 2 5M 1M",
            "aio_write -P 3 6M 1M",
            "aio_flush",
            "read -P 2 5M 1M",
        ];
        let mut args = vec!["-f", "raw", "-t", "none"];
        args.extend(commands.iter().flat_map(|command| ["-c", command]));
        args.push(&uri);
        let Some(text) = qemu("qemu-io", &args) else {
            return;
        };
        assert!(!text.to_lowercase().contains("fail"), "{text}");
        let (ram, counts) = served.end();
        assert_eq!(ram.bytes[4096], 0xcd);
        assert_eq!(ram.bytes[(6 << 20) + 5], 3);
        assert!(
            ram.counters.flushes > 0 && ram.counters.fua > 0,
            "{:?}",
            ram.counters
        );
        assert_eq!(ram.counters.unmaps > 0, unmaps);
        assert_eq!(counts.failed, 0);
    }
}

#[test]
fn file_system_image_survives_the_export() {
    let folder = TestDir::new("ext4");
    let content = folder.0.join("content");
    fs::create_dir(&content).expect("a folder");
    for at in 0..50 {
        let file = content.join(format!("file {at}"));
        fs::write(file, noise(at * 3001, at as u64)).expect("a file");
    }
    let (image, back) = (folder.file("image"), folder.file("back"));
    fs::write(&image, vec![0; 32 << 20]).expect("a file");
    let make = ["-q", "-F", "-d", content.to_str().expect("a path"), &image];
    if good("mkfs.ext4", "e2fsprogs", &make).is_none() {
        return;
    }
    let served = TestServer::on(&folder, RamDisk::new(8192, 4096).reordering(2, 5));
    if nbd("nbdcopy", &[&image, &served.uri]).is_none() {
        return;
    }
    nbd("nbdcopy", &[&served.uri, &back]);
    good("e2fsck", "e2fsprogs", &["-f", "-n", &back]);
    let show = "cat \"/file 49\"";
    let output = run("debugfs", "e2fsprogs", &["-R", show, &back]).expect("with mkfs.ext4");
    assert!(output.stdout == noise(49 * 3001, 49), "a file in it");
    served.end();
}

#[test]
fn disk_errors_reach_the_client_program() {
    let folder = TestDir::new("fails");
    let mut ram = RamDisk::filled(20480, 512, 9);
    ram.bad = vec![
        (1000..1001, Failure::Medium("unreadable".into())),
        (9000..9010, Failure::NoSpace),
    ];
    let served = TestServer::on(&folder, ram);
    let read = |at: &str| {
        run(
            "qemu-io",
            "qemu-utils",
            &["-f", "raw", "-c", at, &served.uri],
        )
    };
    let Some(output) = read("read 512000 512") else {
        return;
    };
    let text = |output: &Output| {
        let both = [&output.stdout[..], &output.stderr].concat();
        String::from_utf8_lossy(&both).into_owned()
    };
    assert!(text(&output).contains("Input/output error"), "{output:?}");
    let output = read("write 4608000 4096").expect("as before");
    assert!(
        text(&output).contains("No space left on device"),
        "{output:?}"
    );
    // Adjacent blocks can be read as before.
    let output = read("read 512512 512").expect("as before");
    assert!(text(&output).contains("read 512/512 bytes"), "{output:?}");
    let back = folder.file("back");
    let output = run("nbdcopy", "libnbd-bin", &[&served.uri, &back]);
    assert!(output.is_none_or(|output| !output.status.success()));
    // nbdcopy disconnects without NBD_CMD_DISC when a read fails, with others outstanding.
    let (_, counts, _) = served.finish();
    assert!(counts.failed >= 2, "{counts:?}");
}

/// A mounted export, unmounted on drop.
struct Mounted(std::process::Child, String);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.1).status();
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn export_mounted_by_nbdfuse_holds_a_filesystem() {
    if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: mounting needs /dev/fuse and root");
        return;
    }
    let folder = TestDir::new("fuse");
    // Blocks of 512 bytes: nbdfuse passes writes on as they are, and mke2fs writes kilobytes.
    let served = TestServer::on(&folder, RamDisk::new(65536, 512).reordering(1, 3));
    let file = folder.file("disk");
    fs::write(&file, "").expect("a file");
    let child = Command::new("nbdfuse").args([&file, &served.uri]).spawn();
    let Ok(child) = child else {
        assert!(run("nbdfuse", "libnbd-bin", &["--version"]).is_none());
        return;
    };
    let mut mounted = Mounted(child, file.clone());
    // There is no notification: the export is mounted when the file has a size, unless the program has ended.
    while fs::metadata(&file).map_or(0, |about| about.len()) == 0 {
        if let Some(status) = mounted.0.try_wait().expect("a child") {
            eprintln!("SKIPPED: nbdfuse cannot mount here: {status}");
            return;
        }
        std::thread::yield_now();
    }
    good("mkfs.ext4", "e2fsprogs", &["-q", "-F", "-b", "4096", &file]);
    good("e2fsck", "e2fsprogs", &["-f", "-n", &file]);
    drop(mounted);
    let (ram, counts) = served.end();
    assert_eq!(
        ram.bytes[1024 + 56..1024 + 58],
        [0x53, 0xef],
        "the magic of ext4"
    );
    assert_eq!((counts.failed, counts.refused), (0, 0));
}
