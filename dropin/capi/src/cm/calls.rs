//! The connection manager's functions under the names of librdmacm, which forwards to them; re-exported for Rust tests.
//! Their contracts are those of the manual pages of librdmacm; pointers are not checked.

pub use super::addrinfo::{
    verbena_rdma_freeaddrinfo as rdma_freeaddrinfo, verbena_rdma_getaddrinfo as rdma_getaddrinfo,
};
pub use super::attributes::verbena_rdma_init_qp_attr as rdma_init_qp_attr;
pub use super::channel::{
    verbena_rdma_ack_cm_event as rdma_ack_cm_event,
    verbena_rdma_create_event_channel as rdma_create_event_channel,
    verbena_rdma_destroy_event_channel as rdma_destroy_event_channel,
    verbena_rdma_get_cm_event as rdma_get_cm_event,
};
pub use super::connect::{
    verbena_rdma_accept as rdma_accept, verbena_rdma_connect as rdma_connect,
    verbena_rdma_disconnect as rdma_disconnect, verbena_rdma_establish as rdma_establish,
    verbena_rdma_get_remote_ece as rdma_get_remote_ece, verbena_rdma_notify as rdma_notify,
    verbena_rdma_reject as rdma_reject, verbena_rdma_reject_ece as rdma_reject_ece,
    verbena_rdma_set_local_ece as rdma_set_local_ece,
};
pub use super::devices::{
    verbena_rdma_free_devices as rdma_free_devices, verbena_rdma_get_devices as rdma_get_devices,
};
pub use super::endpoint::{
    verbena_rdma_create_ep as rdma_create_ep, verbena_rdma_destroy_ep as rdma_destroy_ep,
    verbena_rdma_get_request as rdma_get_request,
};
pub use super::id::{
    verbena_rdma_create_id as rdma_create_id, verbena_rdma_destroy_id as rdma_destroy_id,
    verbena_rdma_migrate_id as rdma_migrate_id,
};
pub use super::listen::verbena_rdma_listen as rdma_listen;
pub use super::multicast::{
    verbena_rdma_join_multicast as rdma_join_multicast,
    verbena_rdma_join_multicast_ex as rdma_join_multicast_ex,
    verbena_rdma_leave_multicast as rdma_leave_multicast,
};
pub use super::qp::{
    verbena_rdma_create_qp as rdma_create_qp, verbena_rdma_create_qp_ex as rdma_create_qp_ex,
    verbena_rdma_create_srq as rdma_create_srq, verbena_rdma_create_srq_ex as rdma_create_srq_ex,
    verbena_rdma_destroy_qp as rdma_destroy_qp, verbena_rdma_destroy_srq as rdma_destroy_srq,
};
pub use super::resolve::{
    verbena_rdma_bind_addr as rdma_bind_addr, verbena_rdma_resolve_addr as rdma_resolve_addr,
    verbena_rdma_resolve_route as rdma_resolve_route,
};
pub use super::set_option::verbena_rdma_set_option as rdma_set_option;
pub use super::strings::{
    verbena_rdma_event_str as rdma_event_str, verbena_rdma_get_dst_port as rdma_get_dst_port,
    verbena_rdma_get_src_port as rdma_get_src_port,
};
