//! Disks of a real target (tgt), for threads and for tasks, and a target that is stopped and restarted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use verbena::Device;
use verbena_storage::session::Options;
use verbena_storage::{Disk, Error, Failure};
use verbena_testing::wait_until;

use crate::target::{Carrier, Target, Tgt};

const BLOCK: usize = 512;

fn disk(tgt: &Tgt, target: &Target, options: Options) -> Disk {
    let address = tgt.url("", target, 1).parse().unwrap();
    Disk::open(&Device::open().unwrap(), &address, options).unwrap()
}

fn with_disk(work: impl FnOnce(&mut Tgt, &Target)) {
    let Some(mut tgt) = Tgt::start(Carrier::Tcp) else {
        return;
    };
    let target = tgt.target();
    tgt.lun(&target, 1, 16 << 20);
    work(&mut tgt, &target);
}

#[test]
fn threads_share_a_disk() {
    with_disk(|tgt, target| {
        let disk = disk(tgt, target, Options::default());
        assert_eq!(disk.geometry().blocks, (16 << 20) / BLOCK as u64);
        assert_eq!(disk.identity().product, "VIRTUAL-DISK");
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                let disk = &disk;
                scope.spawn(move || {
                    for round in 0..50_u64 {
                        let mut buffer = disk.buffer(8 * BLOCK).unwrap();
                        let mark = [thread + 1; 8 * BLOCK];
                        buffer.write_at(0, &mark).unwrap();
                        let lba = (u64::from(thread) * 50 + round) * 8;
                        let (written, buffer) = disk.write(lba, buffer).wait();
                        written.unwrap();
                        let (read, buffer) = disk.read(lba, buffer).wait();
                        read.unwrap();
                        assert_eq!(buffer.to_vec(0, 8 * BLOCK).unwrap(), mark);
                    }
                });
            }
        });
        disk.flush().wait().0.unwrap();
    });
}

#[test]
fn tasks_share_a_disk() {
    with_disk(|tgt, target| {
        let disk = disk(tgt, target, Options::default());
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let mut writes = Vec::new();
            for n in 0..200_u64 {
                let mut buffer = disk.buffer(BLOCK).unwrap();
                buffer.write_at(0, &n.to_le_bytes()).unwrap();
                writes.push(disk.write(n, buffer));
            }
            for write in writes {
                write.await.0.unwrap();
            }
            for n in 0..200_u64 {
                let (read, buffer) = disk.read(n, disk.buffer(BLOCK).unwrap()).await;
                read.unwrap();
                assert_eq!(buffer.to_vec(0, 8).unwrap(), n.to_le_bytes());
            }
        });
    });
}

#[test]
fn invalid_requests_leave_the_disk_usable() {
    with_disk(|tgt, target| {
        let disk = disk(tgt, target, Options::default());
        assert!(disk.buffer(BLOCK + 1).is_err(), "not whole blocks");
        let past = disk.geometry().blocks;
        let (read, buffer) = disk.read(past, disk.buffer(BLOCK).unwrap()).wait();
        let said = read.unwrap_err().to_string();
        assert!(
            said.contains("logical block address out of range"),
            "{said}"
        );
        let (read, buffer) = disk.read(u64::MAX, buffer).wait();
        assert!(matches!(read, Err(Error::Range { .. })));
        // Dropping a pending request does not cancel it and has no effect on others.
        drop(disk.write(0, disk.buffer(BLOCK).unwrap()));
        disk.read(0, buffer).wait().0.unwrap();
    });
}

/// Acknowledged writes are on the disk after the target was killed and restarted.
#[test]
fn acknowledged_writes_survive_a_target_restart() {
    with_disk(|tgt, target| {
        let disk = disk(tgt, target, Options::default());
        let mut acknowledged = Vec::new();
        let (over, count) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut acknowledged = Vec::new();
                let mut n = 0_u64;
                while !over.load(Ordering::Relaxed) {
                    let burst: Vec<_> = (0..16)
                        .map(|_| {
                            n += 1;
                            let mut buffer = disk.buffer(BLOCK).unwrap();
                            buffer.write_at(0, &n.to_le_bytes()).unwrap();
                            (n, disk.write(n % 4096, buffer))
                        })
                        .collect();
                    for (n, write) in burst {
                        write.wait().0.unwrap();
                        acknowledged.push(n);
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                }
                acknowledged
            });
            let wait_for_writes = || {
                let enough = count.load(Ordering::Relaxed) + 200;
                wait_until("writes end", || count.load(Ordering::Relaxed) >= enough);
            };
            for _ in 0..3 {
                wait_for_writes();
                tgt.kill();
                tgt.restart();
            }
            wait_for_writes();
            over.store(true, Ordering::Relaxed);
            acknowledged = writer.join().unwrap();
        });
        let mut last = std::collections::HashMap::new();
        for n in acknowledged {
            last.insert(n % 4096, n);
        }
        for (lba, n) in last {
            let (read, buffer) = disk.read(lba, disk.buffer(BLOCK).unwrap()).wait();
            read.unwrap();
            assert_eq!(buffer.to_vec(0, 8).unwrap(), n.to_le_bytes(), "block {lba}");
        }
    });
}

/// Cancelled requests return their buffers, executed or not; other requests complete.
#[test]
fn requests_can_be_cancelled() {
    with_disk(|tgt, target| {
        let disk = disk(tgt, target, Options::default());
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            // More than may be outstanding: some were not sent.
            let pending: Vec<_> = (0..200_u64)
                .map(|n| disk.read(n * 8, disk.buffer(8 * BLOCK).unwrap()))
                .collect();
            for one in pending.iter().skip(1).step_by(2) {
                one.cancel();
                one.cancel();
            }
            let mut cancelled = 0;
            for (n, one) in pending.into_iter().enumerate() {
                let (read, buffer) = one.await;
                assert_eq!(buffer.len(), 8 * BLOCK);
                match read {
                    Ok(()) => {}
                    Err(Error::Failed {
                        what: "a read",
                        at,
                        failure: Failure::Cancelled,
                    }) => {
                        assert_eq!((n % 2, at), (1, n as u64 * 8 * BLOCK as u64));
                        cancelled += 1;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            assert!(cancelled > 0, "those that had not left never did");
        });
        let done = disk.flush();
        done.cancel();
        let _ = done.wait();
        disk.flush().wait().0.unwrap();
    });
}

#[test]
fn unreachable_target_is_given_up() {
    with_disk(|tgt, target| {
        let options = Options {
            reconnect: Duration::from_secs(1),
            ..Options::default()
        };
        let disk = disk(tgt, target, options);
        tgt.kill();
        let (read, _) = disk.read(0, disk.buffer(BLOCK).unwrap()).wait();
        let lost = |error: &Error| {
            matches!(error, Error::Lost(_))
                || matches!(
                    error,
                    Error::Failed {
                        failure: Failure::Lost(_),
                        ..
                    }
                )
        };
        let error = read.unwrap_err();
        assert!(lost(&error), "{error}");
        assert!(lost(&disk.flush().wait().0.unwrap_err()));
    });
}
