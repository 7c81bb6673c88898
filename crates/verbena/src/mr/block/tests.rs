//! Memory in a forked child, while its parent's peers are at work in it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::{Access, Device};

/// DESIGN §4: whatever the child drops or asks for, it does not wait for threads that it does not have.
#[test]
fn a_child_drops_memory_that_is_in_use_and_gets_no_more() {
    let device = Device::open().unwrap();
    let listener = device.listen("127.0.0.1:0").unwrap();
    let connecting = device.connect(listener.local().unwrap());
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
            // SAFETY: what the child runs is what is tested: calls that must return without other threads.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let refused = of.memory(64, Access::ALL).is_err();
                // The last handles: nobody else drops them here.
                for _ in 0..2 {
                    // SAFETY: read once as ours and once as the parent's, neither of which is dropped otherwise.
                    drop(unsafe { core::ptr::read(&raw const ours) });
                }
                // SAFETY: ends the child at once, without running anything of the parent's.
                unsafe { libc::_exit(i32::from(!refused)) };
            }
            assert!(child > 0);
            hung += i32::from(!ends_well(child));
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(hung, 0, "of 20");
    });
}

/// True if the child ends by itself and is content.
fn ends_well(child: libc::pid_t) -> bool {
    for _ in 0..1000 {
        let mut status = 0;
        // SAFETY: looks for a child of ours; the status is ours.
        if unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == child {
            return status == 0;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // SAFETY: ends a child of ours, which hangs, and takes its end.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, core::ptr::null_mut(), 0);
    }
    false
}
