//! The functions of librdmacm that are not implemented: its function `X` jumps to `verbena_X`.
//! Each call fails with `ENOSYS`; the first one of a process writes a line to standard error.

use core::ffi::c_int;
use std::io::Write;
use std::sync::Once;

use super::stubs;

fn refused(name: &str) -> c_int {
    static REPORTED: Once = Once::new();
    let name = name.strip_prefix("verbena_").unwrap_or(name);
    REPORTED.call_once(|| {
        // One write, so that it stays one line. If it fails, the error number still tells the program.
        let line = format!("verbena: {name} is not implemented, and fails\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
    });
    libc::ENOSYS
}

stubs! {
    // rdma_cm
    verbena_rdma_query_addrinfo => minus_one;
    verbena_rdma_resolve_addrinfo => minus_one;
    verbena_rdma_write_cm_event => minus_one;
    // rsocket
    verbena_repoll_create => minus_one;
    verbena_repoll_ctl => minus_one;
    verbena_repoll_wait => minus_one;
}
