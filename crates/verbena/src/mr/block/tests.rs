//! Memory in a forked child while peers of the parent access it.
//! The child has no copy of the adapter's threads and must not wait for them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use verbena_testing::{process_ends, wait_until};

use crate::{Access, Device};

/// A child that runs for so long hangs.
const HANG: Duration = Duration::from_secs(10);

/// Whatever the child drops or calls, it does not wait for threads that it does not have.
#[test]
fn forked_child_drops_memory_without_waiting() {
    let device = Device::open().unwrap();
    let listener = device.listen("127.0.0.1:0").unwrap();
    let connecting = device.connect(listener.local_addr().unwrap());
    let _server = listener.accept().wait().unwrap();
    let client = connecting.wait().unwrap();
    let memory = device.memory(4 << 20, Access::ALL).unwrap();
    let (bytes, stop) = (vec![7; 4 << 20], AtomicBool::new(false));
    let writes = AtomicU64::new(0);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                client
                    .scope(|scope| scope.write(&bytes, &memory.remote()).wait())
                    .unwrap();
                writes.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut hung = 0;
        for _ in 0..20 {
            let before = writes.load(Ordering::Relaxed);
            wait_until("a write ends", || writes.load(Ordering::Relaxed) > before);
            let (ours, of) = (memory.clone(), &device);
            // SAFETY: the child calls only what is tested, which must return without other threads, and `_exit`.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let refused = of.memory(64, Access::ALL).is_err();
                // The last handles in the child.
                for _ in 0..2 {
                    // SAFETY: one read stands for `ours` and one for the parent's handle; the child exits without dropping either.
                    drop(unsafe { core::ptr::read(&raw const ours) });
                }
                // SAFETY: ends the child at once, without running destructors or exit handlers of the parent.
                unsafe { libc::_exit(i32::from(!refused)) };
            }
            assert!(child > 0);
            hung += i32::from(!exits_successfully(child));
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(hung, 0, "of 20");
    });
}

/// True if the child ends by itself with status 0.
fn exits_successfully(child: libc::pid_t) -> bool {
    if !process_ends(child.unsigned_abs(), HANG) {
        // SAFETY: `child` is an unreaped child of this process, so its pid has not been reused.
        unsafe { libc::kill(child, libc::SIGKILL) };
    }
    let mut status = 0;
    // SAFETY: `status` is valid for the call; `child` is an unreaped child of this process.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    ended == child && status == 0
}
