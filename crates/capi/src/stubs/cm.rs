//! All of librdmacm, until connections by address are written for C: `verbena_X` is what its `X` jumps to.
//! It promises that programs which merely import it work, and that one which calls it is told why, once, and `ENOSYS` each time.
//! It refuses to connect anything.

use core::ffi::c_int;
use std::io::Write;
use std::sync::Once;

use super::stubs;

fn refused(name: &str) -> c_int {
    static SAID: Once = Once::new();
    let name = name.strip_prefix("verbena_").unwrap_or(name);
    SAID.call_once(|| {
        // One write, so that it stays one line; if nobody can read it, the error number still says it.
        let line = format!("verbena: rdma_cm is not there yet ({name} was called and fails)\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
    });
    libc::ENOSYS
}

stubs! {
    // rdma_cm
    verbena_rdma_accept => minus_one;
    verbena_rdma_ack_cm_event => minus_one;
    verbena_rdma_bind_addr => minus_one;
    verbena_rdma_connect => minus_one;
    verbena_rdma_create_ep => minus_one;
    verbena_rdma_create_event_channel => null;
    verbena_rdma_create_id => minus_one;
    verbena_rdma_create_qp => minus_one;
    verbena_rdma_create_qp_ex => minus_one;
    verbena_rdma_create_srq => minus_one;
    verbena_rdma_create_srq_ex => minus_one;
    verbena_rdma_destroy_ep => nothing;
    verbena_rdma_destroy_event_channel => nothing;
    verbena_rdma_destroy_id => minus_one;
    verbena_rdma_destroy_qp => nothing;
    verbena_rdma_destroy_srq => nothing;
    verbena_rdma_disconnect => minus_one;
    verbena_rdma_establish => minus_one;
    verbena_rdma_event_str => word;
    verbena_rdma_free_devices => nothing;
    verbena_rdma_freeaddrinfo => nothing;
    verbena_rdma_get_cm_event => minus_one;
    verbena_rdma_get_devices => null;
    verbena_rdma_get_dst_port => zero;
    verbena_rdma_get_remote_ece => minus_one;
    verbena_rdma_get_request => minus_one;
    verbena_rdma_get_src_port => zero;
    verbena_rdma_getaddrinfo => minus_one;
    verbena_rdma_init_qp_attr => minus_one;
    verbena_rdma_join_multicast => minus_one;
    verbena_rdma_join_multicast_ex => minus_one;
    verbena_rdma_leave_multicast => minus_one;
    verbena_rdma_listen => minus_one;
    verbena_rdma_migrate_id => minus_one;
    verbena_rdma_notify => minus_one;
    verbena_rdma_query_addrinfo => minus_one;
    verbena_rdma_reject => minus_one;
    verbena_rdma_reject_ece => minus_one;
    verbena_rdma_resolve_addr => minus_one;
    verbena_rdma_resolve_addrinfo => minus_one;
    verbena_rdma_resolve_route => minus_one;
    verbena_rdma_set_local_ece => minus_one;
    verbena_rdma_set_option => minus_one;
    verbena_rdma_write_cm_event => minus_one;
    // rsocket
    verbena_repoll_create => minus_one;
    verbena_repoll_ctl => minus_one;
    verbena_repoll_wait => minus_one;
}
