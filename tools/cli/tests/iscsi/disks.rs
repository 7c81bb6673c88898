//! A disk of a target as a network block device: a file system is copied there and back, and is intact.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use verbena_testing::{WAIT_LIMIT, process_ends};

use crate::target::{Carrier, Tgt};
use crate::tool::{Folder, ProgramOutput, bytes, iscsi, random_bytes, run_program, skip};

const MIB: u64 = 1 << 20;

/// `verbena iscsi nbd`, running.
struct Nbd {
    child: Child,
    uri: String,
    socket: String,
}

impl Nbd {
    fn start(folder: &Folder, url: &str, extra: &[&str]) -> Nbd {
        let socket = folder.file("nbd.sock");
        let mut command = Command::new(env!("CARGO_BIN_EXE_verbena"));
        command
            .args(["iscsi", "nbd", url, "--socket", &socket])
            .args(extra);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut uri = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut uri)
            .unwrap();
        let uri = uri.trim_end().to_owned();
        assert_eq!(uri, format!("nbd+unix:///?socket={socket}"));
        Nbd { child, uri, socket }
    }

    /// Ends it with SIGINT.
    fn end(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        let ended = process_ends(self.child.id(), WAIT_LIMIT);
        assert!(ended, "it goes on");
        let ended = self.child.wait().unwrap();
        assert!(ended.success(), "{ended:?}");
        assert!(!Path::new(&self.socket).exists(), "the socket stayed");
    }
}

impl Drop for Nbd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn nbd(program: &str, args: &[&str]) -> Option<ProgramOutput> {
    run_program(program, "libnbd-bin", args)
}

/// A tree of files of many lengths.
fn tree(folder: &Folder) -> String {
    let root = folder.file("tree");
    for (number, len) in [0, 1, 511, 4096, 70_000, 3_000_000].into_iter().enumerate() {
        let under = Path::new(&root).join(format!("d{}", number % 3));
        std::fs::create_dir_all(&under).unwrap();
        std::fs::write(
            under.join(format!("f{number}")),
            random_bytes(len, number as u64),
        )
        .unwrap();
    }
    root
}

/// Checks that the file system in this file is intact, and holds the tree.
fn check_file_system(folder: &Folder, image: &str, root: &str) {
    run_program("e2fsck", "e2fsprogs", &["-fn", image])
        .unwrap()
        .expect_success();
    let back = folder.file("back");
    let _ = std::fs::remove_dir_all(&back);
    std::fs::create_dir(&back).unwrap();
    let dump = format!("rdump / {back}");
    run_program("debugfs", "e2fsprogs", &["-R", &dump, image])
        .unwrap()
        .expect_success();
    for number in 0..6 {
        let name = format!("d{}/f{number}", number % 3);
        let (sent, came) = (Path::new(root).join(&name), Path::new(&back).join(&name));
        assert!(bytes(sent) == bytes(came), "{name} differs");
    }
}

#[test]
fn file_system_image_survives_nbd_copy() {
    let Some(mut tgt) = Tgt::start(Carrier::Tcp) else {
        return;
    };
    let target = tgt.target();
    tgt.lun(&target, 1, 32 * MIB);
    let url = tgt.url("", &target, 1);
    let folder = Folder::new("ext4");
    let (root, image) = (tree(&folder), folder.file("image"));
    let words = ["-q", "-F", "-d", &root, &image, "32m"];
    let Some(made) = run_program("mkfs.ext4", "e2fsprogs", &words) else {
        return;
    };
    made.expect_success();

    let served = Nbd::start(&folder, &url, &[]);
    let uri = served.uri.clone();
    let Some(copied) = nbd("nbdcopy", &["--flush", &image, &uri]) else {
        return;
    };
    copied.expect_success();
    assert_eq!(
        nbd("nbdinfo", &["--size", &uri]).unwrap().expect_success(),
        "33554432\n"
    );
    let back = folder.file("qemu");
    let words = ["convert", "-f", "raw", "-O", "raw", &uri, &back];
    let Some(converted) = run_program("qemu-img", "qemu-utils", &words) else {
        return;
    };
    converted.expect_success();
    assert!(
        bytes(&back) == bytes(&image),
        "qemu-img reads something else"
    );
    check_file_system(&folder, &back, &root);
    served.end();

    // And without NBD.
    let direct = folder.file("direct");
    iscsi(&["copy", &url, &direct]).expect_success();
    assert!(bytes(&direct) == bytes(&image), "the disk differs");
    assert_eq!(tgt.sessions(), 0, "{}", tgt.shown());
}

#[test]
fn file_system_is_created_on_nbd_disk() {
    let Some(mut tgt) = Tgt::start(Carrier::Tcp) else {
        return;
    };
    if !Path::new("/dev/fuse").exists() {
        return skip("/dev/fuse is not there");
    }
    let target = tgt.target();
    let file = tgt.lun(&target, 1, 32 * MIB);
    let folder = Folder::new("fuse");
    let served = Nbd::start(&folder, &tgt.url("", &target, 1), &[]);
    let point = folder.file("mount");
    std::fs::create_dir(&point).unwrap();
    let Some(said) = nbd("nbdfuse", &["--version"]) else {
        return;
    };
    said.expect_success();
    let mut mount = Command::new("nbdfuse");
    let mut mount = mount.args([&point, &served.uri]).spawn().unwrap();
    let (disk, end) = (
        folder.file("mount/nbd"),
        Instant::now() + Duration::from_secs(20),
    );
    while !Path::new(&disk).exists() {
        if let Some(ended) = mount.try_wait().unwrap() {
            return skip(&format!("nbdfuse may not mount here: {ended}"));
        }
        assert!(Instant::now() < end, "nbdfuse does not mount");
    }
    let root = tree(&folder);
    let made = run_program("mkfs.ext4", "e2fsprogs", &["-q", "-F", "-d", &root, &disk]);
    let checked = run_program("e2fsck", "e2fsprogs", &["-fn", &disk]);
    // A mounted file system would outlive its test: it is unmounted first in any case.
    let gone = run_program("umount", "mount", &[&point]);
    let ended = mount.wait().unwrap();
    made.unwrap().expect_success();
    checked.unwrap().expect_success();
    gone.unwrap().expect_success();
    assert!(ended.success(), "{ended:?}");
    served.end();
    check_file_system(&folder, file.to_str().unwrap(), &root);
}

#[test]
fn read_only_units_are_not_written() {
    let Some(mut tgt) = Tgt::start(Carrier::Tcp) else {
        return;
    };
    let target = tgt.target();
    let fixed = tgt.lun(&target, 1, MIB);
    let open = tgt.lun(&target, 2, MIB);
    tgt.read_only(&target, 1);
    let folder = Folder::new("fixed");
    let image = folder.with("image", &random_bytes(1 << 20, 31));
    for (lun, extra) in [(1, &[][..]), (2, &["--read-only"])] {
        let served = Nbd::start(&folder, &tgt.url("", &target, lun), extra);
        let Some(said) = nbd("nbdinfo", &["--is", "read-only", &served.uri]) else {
            return;
        };
        said.expect_success();
        let refused = nbd("nbdcopy", &[&image, &served.uri]).unwrap();
        assert_ne!(refused.code, Some(0), "{refused:?}");
        let back = folder.file("back");
        nbd("nbdcopy", &[&served.uri, &back])
            .unwrap()
            .expect_success();
        assert_eq!(bytes(&back), vec![0; 1 << 20]);
        served.end();
    }
    assert_eq!(bytes(fixed), vec![0; 1 << 20]);
    assert_eq!(bytes(open), vec![0; 1 << 20]);
}
