//! Disks of a unit, and hosts that break the protocol of block requests, made of a link without a driver. Checked: a host reads and writes
//! nothing but its disk, every request with a context is answered, and a disk that can be written has one host at a time.

use std::sync::atomic::{AtomicU32, Ordering};

use verbena_split::carrier::address::Address;
use verbena_split::carrier::{Memory, open};
use verbena_split::disk::{
    BlockOperation, BlockReply, BlockRequest, BlockStatus, DiskInfo, HEAD, MAX_DATA,
};
use verbena_split::service::ConfigRequest;
use verbena_split::stop::Stop;
use verbena_split::unit::{Backing, LanPort, Unit, UnitDisk, UnitOptions};
use verbena_split::{Arrangement, Journal};
use verbena_split_wire::push::Status;

use crate::invalid_hosts::{RawHost, initialise, refused};
use crate::space::{Netns, privileged};

const BLOCKS: u64 = 16;

/// A unit with a disk in memory and a file that is read-only, and two hosts of an arrangement.
fn with_disks(arrangement: Arrangement, what: impl FnOnce(RawHost, RawHost) + Send) {
    let at: Address = "udp://127.0.0.1".parse().unwrap();
    // Drivers of one name cannot run at once, whatever their namespaces.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let id = format!("{}.{n}", std::process::id());
    let path = std::env::temp_dir().join(format!("verbena-disks-{id}"));
    std::fs::write(&path, [5; 1024]).unwrap();
    let (file, lan_name) = (path.clone(), format!("dsk{id}"));
    Netns::new().run(|| {
        let stop = Stop::new().unwrap();
        let unit = || {
            let lan = LanPort::tap_named(&lan_name, 1).unwrap().remove(0);
            let carriers = vec![open::listen(&at, None).unwrap()];
            let options = UnitOptions::default();
            let unit = Unit::new(options, lan, carriers, Journal::silent()).unwrap();
            let bytes = BLOCKS * 512;
            let ram = UnitDisk::open("ram", &Backing::Memory { bytes }).unwrap();
            let fixed = Backing::File {
                path: file,
                read_only: true,
            };
            let fixed = UnitDisk::open("fixed", &fixed).unwrap();
            let mut unit = unit.with_disks(vec![ram, fixed]).unwrap();
            unit.run(&stop).unwrap();
        };
        std::thread::scope(|scope| {
            scope.spawn(unit);
            let event = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let [one, other] = [0, 256].map(|more| RawHost::dial(&at, arrangement, more));
                what(one, other);
            }));
            stop.request();
            if let Err(panic) = event {
                std::panic::resume_unwind(panic);
            }
        });
    });
    std::fs::remove_file(&path).unwrap();
}

fn open_disk(name: &str) -> ConfigRequest {
    ConfigRequest::OpenDisk(name.to_owned())
}

fn request(context: u64, operation: BlockOperation, offset: u64, len: u32) -> BlockRequest {
    BlockRequest {
        context,
        operation,
        offset,
        len,
    }
}

const READ: BlockOperation = BlockOperation::Read;
const WRITE: BlockOperation = BlockOperation::Write { fua: false };

/// Sends a packet; returns the unit's reply.
fn answer(host: &mut RawHost, packet: &[u8]) -> (BlockReply, Vec<u8>) {
    host.until(|host| host.link.has_room().then_some(()));
    host.link.send(packet, &[]).unwrap();
    next_reply(host)
}

fn next_reply(host: &mut RawHost) -> (BlockReply, Vec<u8>) {
    let copy = |memory: &dyn Memory, offset, len| {
        let mut packet = vec![0; len];
        assert!(memory.read(offset, &mut packet));
        packet
    };
    let packet = host.until(|host| host.link.with_packet(copy).unwrap());
    let (head, data) = packet.split_first_chunk().unwrap();
    let reply = BlockReply::parse(head, packet.len()).unwrap();
    (reply, data.to_vec())
}

/// The status of a request that is sent with this data.
fn status(host: &mut RawHost, request: BlockRequest, data: &[u8]) -> BlockStatus {
    let packet = [&request.to_bytes()[..], data].concat();
    let (reply, _) = answer(host, &packet);
    assert_eq!(reply.context, request.context);
    reply.status
}

#[test]
fn invalid_block_requests_change_nothing() {
    privileged("disks::invalid_block_requests_change_nothing", || {
        for arrangement in [Arrangement::Writes, Arrangement::Single] {
            with_disks(arrangement, |mut host, _| {
                let (status_open, info) = host.request(&open_disk("ram"));
                assert_eq!(status_open, Status::Ok);
                let info = DiskInfo::parse(&info).unwrap();
                assert_eq!((info.blocks, info.read_only), (BLOCKS, false));
                assert_eq!(info.max_data, MAX_DATA);
                let valid = request(1, WRITE, 0, 512);
                assert_eq!(status(&mut host, valid, &[7; 512]), BlockStatus::Ok);
                let end = BLOCKS * 512;
                let each = [
                    // Out of range, in part and as a whole.
                    (request(2, READ, end, 512), 0, BlockStatus::Invalid),
                    (request(3, READ, end - 512, 1024), 0, BlockStatus::Invalid),
                    (request(4, WRITE, end, 512), 512, BlockStatus::NoSpace),
                    (
                        request(5, WRITE, end - 512, 1024),
                        1024,
                        BlockStatus::NoSpace,
                    ),
                    (
                        request(6, READ, u64::MAX - 511, 512),
                        0,
                        BlockStatus::Invalid,
                    ),
                    // No whole blocks, and too long.
                    (request(7, READ, 1, 512), 0, BlockStatus::Invalid),
                    (request(8, READ, 0, 100), 0, BlockStatus::Invalid),
                    (request(9, READ, 0, 0), 0, BlockStatus::Invalid),
                    (
                        request(10, READ, 0, MAX_DATA + 512),
                        0,
                        BlockStatus::Invalid,
                    ),
                    (request(11, READ, 0, !511), 0, BlockStatus::Invalid),
                    // Less and more data than the head says.
                    (request(12, WRITE, 0, 1024), 512, BlockStatus::Invalid),
                    (request(13, WRITE, 0, 512), 1024, BlockStatus::Invalid),
                    (request(14, WRITE, 0, !511), 512, BlockStatus::Invalid),
                    (request(15, READ, 0, 512), 512, BlockStatus::Invalid),
                    // More than fits the elements that this host has lent.
                    (request(16, READ, 0, 4096), 0, BlockStatus::Invalid),
                ];
                for (request, data, expected) in each {
                    let data = vec![9; data];
                    let got = status(&mut host, request, &data);
                    assert_eq!(got, expected, "{request:?}");
                }
                let mut unknown = request(17, READ, 0, 512).to_bytes();
                unknown[0] = 77;
                let (reply, _) = answer(&mut host, &unknown);
                assert_eq!((reply.context, reply.status), (17, BlockStatus::Invalid));
                // Without a context there is no answer.
                let before = host.counts().unfit;
                host.link.send(&[1; HEAD - 1], &[]).unwrap();
                let counted = (0..1000).any(|_| host.counts().unfit > before);
                assert!(counted, "it was not counted");
                // One context twice: both requests are answered.
                for _ in 0..2 {
                    let read = request(18, READ, 0, 512).to_bytes();
                    host.link.send(&read, &[]).unwrap();
                }
                for _ in 0..2 {
                    let (reply, data) = next_reply(&mut host);
                    assert_eq!((reply.context, reply.status), (18, BlockStatus::Ok));
                    assert_eq!(data, [7; 512], "nothing else was written");
                }
                let (reply, data) = answer(&mut host, &request(19, READ, 512, 1024).to_bytes());
                assert_eq!((reply.status, data), (BlockStatus::Ok, vec![0; 1024]));
                let flush = request(20, BlockOperation::Flush, 0, 0);
                assert_eq!(status(&mut host, flush, &[]), BlockStatus::Ok);
            });
        }
    });
}

#[test]
fn writable_disks_have_one_host() {
    privileged("disks::writable_disks_have_one_host", || {
        with_disks(Arrangement::Writes, |mut host, mut other| {
            refused(&host.request(&open_disk("")), "several disks: ram, fixed");
            refused(
                &host.request(&open_disk("x")),
                "no disk x here, only ram, fixed",
            );
            assert_eq!(host.request(&open_disk("ram")).0, Status::Ok);
            refused(&host.request(&open_disk("fixed")), "a disk already");
            refused(&host.request(&initialise()), "this connection has a disk");
            refused(
                &other.request(&open_disk("ram")),
                "disk ram is in use by host liar",
            );
            // It ends with the connection of its host.
            host.close();
            loop {
                let (opened, why) = other.request(&open_disk("ram"));
                if opened == Status::Ok {
                    break;
                }
                assert!(String::from_utf8_lossy(&why).contains("in use"));
            }
        });
    });
}

#[test]
fn read_only_disks_have_several_hosts() {
    privileged("disks::read_only_disks_have_several_hosts", || {
        with_disks(Arrangement::Writes, |one, other| {
            for mut host in [one, other] {
                let (opened, info) = host.request(&open_disk("fixed"));
                assert_eq!(opened, Status::Ok);
                assert!(DiskInfo::parse(&info).unwrap().read_only);
                let write = request(1, WRITE, 0, 512);
                let refused = status(&mut host, write, &[9; 512]);
                assert_eq!(refused, BlockStatus::ReadOnly);
                let (_, data) = answer(&mut host, &request(2, READ, 512, 512).to_bytes());
                assert_eq!(data, [5; 512]);
            }
        });
    });
}

#[test]
fn disks_and_frames_exclude_each_other() {
    privileged("disks::disks_and_frames_exclude_each_other", || {
        with_disks(Arrangement::Single, |mut host, _| {
            assert_eq!(host.request(&initialise()).0, Status::Ok);
            refused(
                &host.request(&open_disk("ram")),
                "has the LAN or a disk already",
            );
        });
        // Cells of unacknowledged channels may be lost, and with them requests.
        with_disks(Arrangement::Sends, |mut host, _| {
            let lossy = host.request(&open_disk("ram"));
            refused(&lossy, "--delivery acknowledged");
        });
    });
}
