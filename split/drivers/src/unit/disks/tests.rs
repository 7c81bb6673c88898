//! Disks in memory and in files, without hosts.

use rustix::event::{PollFd, PollFlags, poll};

use super::*;

fn done(worker: &mut DiskWorker) -> BlockDone {
    loop {
        if let Some(done) = worker.next_done() {
            return done;
        }
        poll(&mut [PollFd::new(worker, PollFlags::IN)], None).unwrap();
    }
}

fn job(operation: BlockOperation, offset: u64, len: u32, data: Vec<u8>) -> BlockJob {
    let request = BlockRequest {
        context: offset + 1,
        operation,
        offset,
        len,
    };
    BlockJob {
        host: 3,
        request,
        data,
    }
}

/// Executes a request; returns what was read.
fn run(worker: &mut DiskWorker, job: BlockJob) -> Result<Vec<u8>, BlockStatus> {
    let context = job.request.context;
    assert!(worker.submit(job));
    let done = done(worker);
    assert_eq!((done.host, done.context), (3, context));
    match done.status {
        BlockStatus::Ok => Ok(done.data),
        status => Err(status),
    }
}

#[test]
fn memory_disk_returns_what_was_written() {
    let backing = Backing::Memory { bytes: 1 << 20 };
    let disk = UnitDisk::open("ram", &backing).unwrap();
    assert_eq!((disk.name(), disk.info().blocks), ("ram", 2048));
    let mut worker = disk.start().unwrap();
    let zeroes = run(&mut worker, job(BlockOperation::Read, 0, 1024, Vec::new()));
    assert_eq!(zeroes, Ok(vec![0; 1024]));
    for fua in [false, true] {
        let write = job(BlockOperation::Write { fua }, 512, 512, vec![7; 512]);
        assert_eq!(run(&mut worker, write), Ok(Vec::new()));
    }
    let flush = job(BlockOperation::Flush, 0, 0, Vec::new());
    assert_eq!(run(&mut worker, flush), Ok(Vec::new()));
    let read = run(&mut worker, job(BlockOperation::Read, 0, 1024, Vec::new()));
    assert_eq!(read, Ok([[0; 512], [7; 512]].concat()));
    assert_eq!((worker.requests, worker.failed), (5, 0));
}

#[test]
fn storage_failures_are_statuses() {
    let folder = std::env::temp_dir().join(format!("verbena-disk-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("file");
    std::fs::write(&path, vec![1; 4096]).unwrap();
    let read_only = true;
    let backing = Backing::File {
        path: path.clone(),
        read_only,
    };
    let mut worker = UnitDisk::open("file", &backing).unwrap().start().unwrap();
    assert!(worker.info.read_only);
    let read = || job(BlockOperation::Read, 2048, 512, Vec::new());
    assert_eq!(run(&mut worker, read()), Ok(vec![1; 512]));
    // The file is opened without the right to write, and then is shorter than it was.
    let write = job(BlockOperation::Write { fua: false }, 0, 512, vec![2; 512]);
    assert_eq!(run(&mut worker, write), Err(BlockStatus::Io));
    std::fs::write(&path, []).unwrap();
    assert_eq!(run(&mut worker, read()), Err(BlockStatus::Io));
    assert_eq!((worker.requests, worker.failed), (3, 2));
    drop(worker);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn unusable_disks_are_refused_with_reason() {
    let file = |path: &str| Backing::File {
        path: path.into(),
        read_only: true,
    };
    let memory = |bytes| Backing::Memory { bytes };
    let each = [
        ("", memory(512), "cannot be the name"),
        ("a\nb", memory(512), "cannot be the name"),
        ("none", memory(0), "or none at all"),
        ("part", memory(700), "700 bytes are no whole blocks"),
        ("gone", file("/nonexistent/disk"), "/nonexistent/disk"),
        ("folder", file("/"), "neither a file nor a block device"),
        (
            "null",
            file("/dev/null"),
            "neither a file nor a block device",
        ),
    ];
    for (name, backing, why) in each {
        let refused = UnitDisk::open(name, &backing).unwrap_err().to_string();
        assert!(refused.contains(why), "{name}: {refused}");
    }
    let long = "x".repeat(MAX_DISK_NAME + 1);
    assert!(UnitDisk::open(&long, &memory(512)).is_err());
}
