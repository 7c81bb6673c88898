//! Memory in a forked child while peers of the parent access it.
//! The child has no copy of the adapter's threads and must not wait for them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::{Access, Device};

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
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                client
                    .scope(|scope| scope.write(&bytes, &memory.remote()).wait())
                    .unwrap();
            }
        });
        let mut hung = 0;
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(2));
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
    for _ in 0..1000 {
        let mut status = 0;
        // SAFETY: `status` is valid for the call; `child` is an unreaped child of this process.
        if unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == child {
            return status == 0;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // SAFETY: `child` is an unreaped child of this process, so its pid has not been reused; a null status is allowed.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, core::ptr::null_mut(), 0);
    }
    false
}
