//! Symbols of programs that were linked in 2006, before the structs got their present form: `name@IBVERBS_1.0`, and one of 1.1.
//! Such a program loads and gets an error from its first call. No release since 2007 links programs to them.

use core::ffi::c_int;

use super::stubs;

fn refused(_name: &str) -> c_int {
    libc::EOPNOTSUPP
}

// The prefix distinguishes them from their successors; the assembly that `cargo xtask dropin` generates gives them their names.
stubs! {
    verbena_old_ibv_ack_async_event => nothing;
    verbena_old_ibv_ack_cq_events => nothing;
    verbena_old_ibv_alloc_pd => null;
    verbena_old_ibv_attach_mcast => code;
    verbena_old_ibv_close_device => code;
    verbena_old_ibv_create_ah => null;
    verbena_old_ibv_create_cq => null;
    verbena_old_ibv_create_qp => null;
    verbena_old_ibv_create_srq => null;
    verbena_old_ibv_dealloc_pd => code;
    verbena_old_ibv_dereg_mr => code;
    verbena_old_ibv_destroy_ah => code;
    verbena_old_ibv_destroy_cq => code;
    verbena_old_ibv_destroy_qp => code;
    verbena_old_ibv_destroy_srq => code;
    verbena_old_ibv_detach_mcast => code;
    verbena_old_ibv_free_device_list => nothing;
    verbena_old_ibv_get_async_event => minus_one;
    verbena_old_ibv_get_cq_event => minus_one;
    verbena_old_ibv_get_device_guid => zero;
    verbena_old_ibv_get_device_list => null;
    verbena_old_ibv_get_device_name => null;
    verbena_old_ibv_modify_qp => code;
    verbena_old_ibv_modify_srq => code;
    verbena_old_ibv_open_device => null;
    verbena_old_ibv_query_device => code;
    verbena_old_ibv_query_gid => minus_one;
    verbena_old_ibv_query_pkey => minus_one;
    verbena_old_ibv_query_port => code;
    verbena_old_ibv_query_qp => code;
    verbena_old_ibv_query_srq => code;
    verbena_old_ibv_reg_mr => null;
    verbena_old_ibv_register_driver => nothing;
    verbena_old_ibv_resize_cq => code;
}
