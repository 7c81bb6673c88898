//! A disk at a unit that breaks the protocol, fails or vanishes, made of a link without a driver. On loopback, over cells and over iWARP.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::carrier::address::Address;
use crate::carrier::{Pair, open};

const INFO: DiskInfo = DiskInfo {
    block_size: 512,
    read_only: false,
    blocks: 64,
    max_data: 4096,
};

/// What the unit does with a request.
enum Behaviour {
    /// Sends these packets.
    Send(Vec<Vec<u8>>),
    /// Ends the connection.
    Vanish,
}

/// Set when it is dropped.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A unit that answers open-disk as given, and requests by `behave`, until `end` is set or its host is gone.
fn serve(
    mut carrier: Box<dyn Carrier>,
    opened: &(Status, Vec<u8>),
    mut behave: impl FnMut(BlockRequest, Vec<u8>) -> Behaviour,
    end: &AtomicBool,
) {
    let mut link: Option<Link> = None;
    let mut vanishes = false;
    while !end.load(Ordering::Relaxed) && !vanishes {
        let (now, mut done) = (Instant::now(), Vec::new());
        carrier.turn(now, &mut done).unwrap();
        while let Some(news) = carrier.next_event() {
            match news {
                CarrierEvent::Request {
                    ticket,
                    private_data,
                    ..
                } => {
                    let hello = crate::hello::Hello::parse(&private_data).unwrap();
                    let options = LinkOptions::new(hello.arrangement, 8, 8192);
                    let link =
                        link.get_or_insert_with(|| Link::new(&mut *carrier, options, now).unwrap());
                    let pair: Pair = link.pair(hello.channel).unwrap();
                    carrier.accept(ticket, pair, &[]).unwrap();
                }
                CarrierEvent::Connected { pair, .. } => {
                    let link = link.as_mut().unwrap();
                    link.connected(&mut *carrier, pair).unwrap();
                }
                CarrierEvent::Ended { .. } => return,
                news => panic!("{news:?}"),
            }
        }
        let Some(link) = &mut link else {
            continue;
        };
        for wc in done {
            // The host may just have closed the connection.
            if link.handle(&mut *carrier, &wc, now).is_err() {
                return;
            }
        }
        while let Some(event) = link.next_event() {
            if let LinkEvent::Request {
                context, operation, ..
            } = event
            {
                let is_open = operation == ConfigRequest::OpenDisk(String::new()).encode().0;
                let (status, data) = match is_open {
                    true => (opened.0, &opened.1[..]),
                    false => (Status::Ok, &[][..]),
                };
                link.reply(context, status, data).unwrap();
            }
        }
        let copy = |memory: &dyn Memory, offset: usize, len: usize| {
            let mut packet = vec![0; len];
            assert!(memory.read(offset, &mut packet));
            packet
        };
        while let Some(packet) = link.with_packet(copy).unwrap() {
            let (head, data) = packet.split_first_chunk().unwrap();
            let request = BlockRequest::parse(head, packet.len()).unwrap();
            match behave(request, data.to_vec()) {
                Behaviour::Send(packets) => {
                    for packet in packets {
                        link.send(&packet, &[]).unwrap();
                    }
                }
                Behaviour::Vanish => vanishes = true,
            }
        }
        if link.tick(&mut *carrier, now).is_err() {
            return;
        }
    }
    if let Some(link) = link {
        link.close(&mut *carrier);
        // The host is told.
        carrier.turn(Instant::now(), &mut Vec::new()).unwrap();
    }
}

/// Opens a disk at such a unit, and calls `test` with the result.
fn with_unit(
    opened: &(Status, Vec<u8>),
    behave: impl FnMut(BlockRequest, Vec<u8>) -> Behaviour + Clone + Send,
    test: impl Fn(Result<RemoteDisk, RemoteDiskError>),
) {
    for scheme in ["udp", "iwarp"] {
        let any: Address = format!("{scheme}://127.0.0.1:0").parse().unwrap();
        let listener = open::listen(&any, None).unwrap();
        let unit: Address = format!("{scheme}://{}", listener.local_addr())
            .parse()
            .unwrap();
        let behave = behave.clone();
        let end = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| serve(listener, opened, behave, &end));
            let _end = SetOnDrop(&end);
            let carrier = open::dial(&unit, None).unwrap();
            test(RemoteDisk::open(carrier, &RemoteDiskOptions::new("")));
        });
    }
}

fn opened() -> (Status, Vec<u8>) {
    (Status::Ok, INFO.to_bytes())
}

fn reply(context: u64, status: BlockStatus, data: &[u8]) -> Vec<u8> {
    let reply = BlockReply {
        context,
        status,
        len: data.len() as u32,
    };
    [&reply.to_bytes()[..], data].concat()
}

fn read(context: u64, offset: u64, len: u32) -> BlockRequest {
    BlockRequest {
        context,
        operation: BlockOperation::Read,
        offset,
        len,
    }
}

/// Waits for completed requests.
fn finished(disk: &mut RemoteDisk) -> Vec<FinishedRequest> {
    let mut finished = Vec::new();
    while finished.is_empty() {
        disk.poll(&mut finished).unwrap();
        disk.wait(&[], None).unwrap();
    }
    finished
}

#[test]
fn requests_complete_with_their_data() {
    let behave = |request: BlockRequest, data: Vec<u8>| {
        let answer = match request.operation {
            BlockOperation::Read => vec![request.offset as u8; request.len as usize],
            BlockOperation::Write { .. } => {
                assert_eq!(data, [9; 512]);
                Vec::new()
            }
            BlockOperation::Flush => Vec::new(),
        };
        Behaviour::Send(vec![reply(request.context, BlockStatus::Ok, &answer)])
    };
    with_unit(&opened(), behave, |disk| {
        let mut disk = disk.unwrap();
        assert_eq!(disk.info(), INFO);
        disk.submit(read(1, 0x200, 1024), &[]).unwrap();
        let answer = finished(&mut disk).remove(0);
        assert_eq!((answer.context, answer.result), (1, Ok(vec![0; 1024])));
        let write = BlockRequest {
            operation: BlockOperation::Write { fua: true },
            ..read(2, 0, 512)
        };
        disk.submit(write, &[9; 512]).unwrap();
        assert_eq!(finished(&mut disk).remove(0).result, Ok(Vec::new()));
        let flush = BlockRequest {
            operation: BlockOperation::Flush,
            ..read(3, 0, 0)
        };
        disk.submit(flush, &[]).unwrap();
        assert_eq!(finished(&mut disk).remove(0).result, Ok(Vec::new()));
        assert_eq!(disk.stray_replies(), 0);
    });
}

#[test]
fn replies_to_no_request_are_ignored() {
    let behave = |request: BlockRequest, _| {
        let data = [1; 512];
        Behaviour::Send(vec![
            reply(request.context + 1, BlockStatus::Ok, &data),
            b"too short".to_vec(),
            [0xff; HEAD].to_vec(),
            reply(request.context, BlockStatus::Ok, &data),
            reply(request.context, BlockStatus::Ok, &data),
        ])
    };
    with_unit(&opened(), behave, |disk| {
        let mut disk = disk.unwrap();
        disk.submit(read(5, 0, 512), &[]).unwrap();
        let answer = finished(&mut disk).remove(0);
        assert_eq!((answer.context, answer.result), (5, Ok(vec![1; 512])));
        while disk.stray_replies() < 4 {
            let mut none = Vec::new();
            disk.poll(&mut none).unwrap();
            assert_eq!(none, []);
            disk.wait(&[], None).unwrap();
        }
    });
}

#[test]
fn replies_of_wrong_length_are_failures() {
    let behave = |request: BlockRequest, _| {
        let data = vec![0; request.context as usize];
        Behaviour::Send(vec![reply(request.context, BlockStatus::Ok, &data)])
    };
    with_unit(&opened(), behave, |disk| {
        let mut disk = disk.unwrap();
        for context in [0, 511, 513, 1024] {
            disk.submit(read(context, 0, 512), &[]).unwrap();
            let answer = finished(&mut disk).remove(0);
            let failure = BlockFailure::Status(BlockStatus::Io);
            assert_eq!(answer.result, Err(failure), "{context}");
        }
    });
}

#[test]
fn statuses_of_the_unit_are_reported() {
    let behave = |request: BlockRequest, _| {
        let status = BlockStatus::Io;
        Behaviour::Send(vec![reply(request.context, status, &[])])
    };
    with_unit(&opened(), behave, |disk| {
        let mut disk = disk.unwrap();
        disk.submit(read(1, 0, 512), &[]).unwrap();
        let failure = BlockFailure::Status(BlockStatus::Io);
        assert_eq!(finished(&mut disk).remove(0).result, Err(failure));
    });
}

#[test]
fn lost_unit_fails_all_requests() {
    with_unit(
        &opened(),
        |_, _| Behaviour::Vanish,
        |disk| {
            let mut disk = disk.unwrap();
            for context in 0..4 {
                disk.submit(read(context, 0, 512), &[]).unwrap();
            }
            let ends = finished(&mut disk);
            let contexts: Vec<u64> = ends.iter().map(|end| end.context).collect();
            assert_eq!(contexts, [0, 1, 2, 3]);
            let is_lost = |end: &FinishedRequest| matches!(end.result, Err(BlockFailure::Lost(_)));
            assert!(ends.iter().all(is_lost), "{ends:?}");
            let gone = disk.poll(&mut Vec::new());
            assert!(matches!(gone, Err(RemoteDiskError::Lost(_))));
            let refused = disk.submit(read(9, 0, 512), &[]);
            assert!(matches!(refused, Err(SubmitError::Lost(_))));
            assert!(!disk.close());
        },
    );
}

#[test]
fn invalid_requests_are_not_sent() {
    let behave = |_, _| Behaviour::Send(Vec::new());
    with_unit(&opened(), behave, |disk| {
        let mut disk = disk.unwrap();
        let write = |len| BlockRequest {
            operation: BlockOperation::Write { fua: false },
            ..read(1, 0, len)
        };
        let invalid = SubmitError::Invalid(BlockStatus::Invalid);
        assert_eq!(disk.submit(read(1, 0, 4608), &[]), Err(invalid.clone()));
        assert_eq!(disk.submit(read(1, 64 * 512, 512), &[]), Err(invalid));
        let (got, wanted) = (511, 512);
        let data = SubmitError::Data { got, wanted };
        assert_eq!(disk.submit(write(512), &[0; 511]), Err(data));
        for context in 0..disk.depth() as u64 - 1 {
            disk.submit(read(context, 0, 512), &[]).unwrap();
        }
        let twice = disk.submit(read(0, 0, 512), &[]);
        assert_eq!(twice, Err(SubmitError::Context(0)));
        disk.submit(read(999, 0, 512), &[]).unwrap();
        let full = disk.submit(read(1000, 0, 512), &[]);
        assert_eq!(full, Err(SubmitError::Full(disk.depth())));
    });
}

#[test]
fn refused_disks_are_reported_with_reason() {
    let each = [
        (
            Status::NotAllowed,
            b"in use".to_vec(),
            "not-allowed to open-disk: in use",
        ),
        (Status::UnknownOperation, Vec::new(), "the unit is too old"),
        (
            Status::Ok,
            vec![0; 24],
            "properties of the disk are invalid",
        ),
        (
            Status::Ok,
            b"short".to_vec(),
            "properties of the disk are invalid",
        ),
    ];
    for (status, data, why) in each {
        let behave = |_, _| Behaviour::Vanish;
        with_unit(&(status, data), behave, |disk| {
            let said = disk.unwrap_err().to_string();
            assert!(said.contains(why), "{said}");
        });
    }
    let carrier = open::dial(&"udp://127.0.0.1:9".parse().unwrap(), None).unwrap();
    let options = RemoteDiskOptions {
        arrangement: Arrangement::Sends,
        ..RemoteDiskOptions::new("")
    };
    let refused = RemoteDisk::open(carrier, &options);
    assert!(matches!(refused, Err(RemoteDiskError::Unacknowledged)));
}
