//! The verbs as C programs call them, re-exported for Rust tests.
//! Their contracts are those of the manual pages of libibverbs; pointers are not checked.

pub use crate::ah::{ibv_create_ah, ibv_create_ah_from_wc, ibv_destroy_ah, ibv_init_ah_from_wc};
pub use crate::async_event::calls::{ibv_ack_async_event, ibv_get_async_event};
pub use crate::channel::{ibv_create_comp_channel, ibv_destroy_comp_channel, ibv_get_cq_event};
pub use crate::context::ibv_close_device;
pub use crate::cq::{ibv_ack_cq_events, ibv_create_cq, ibv_destroy_cq, ibv_resize_cq};
pub use crate::device::{
    ibv_free_device_list, ibv_get_device_guid, ibv_get_device_index, ibv_get_device_list,
    ibv_get_device_name,
};
pub use crate::fork::{
    ibv_dofork_range, ibv_dontfork_range, ibv_fork_init, ibv_is_fork_initialized,
};
pub use crate::kernel::{
    ib_user_path_rec, ib_uverbs_ah_attr, ib_uverbs_global_route, ib_uverbs_qp_attr,
    ibv_copy_ah_attr_from_kern, ibv_copy_path_rec_from_kern, ibv_copy_path_rec_to_kern,
    ibv_copy_qp_attr_from_kern,
};
pub use crate::mcast::{ibv_attach_mcast, ibv_detach_mcast};
pub use crate::mr::{
    ibv_dereg_mr, ibv_import_dm, ibv_import_mr, ibv_reg_dmabuf_mr, ibv_reg_mr, ibv_reg_mr_iova,
    ibv_reg_mr_iova2, ibv_rereg_mr, ibv_unimport_dm, ibv_unimport_mr,
};
pub use crate::open_device::{ibv_import_device, ibv_open_device};
pub use crate::pd::{ibv_alloc_pd, ibv_dealloc_pd, ibv_import_pd, ibv_unimport_pd};
pub use crate::port::{
    _ibv_query_gid_ex, _ibv_query_gid_table, ibv_get_pkey_index, ibv_query_gid, ibv_query_gid_type,
    ibv_query_pkey, ibv_query_port, ibv_resolve_eth_l2_from_gid,
};
pub use crate::qp::ibv_modify_qp;
pub use crate::qp::{
    ibv_create_qp, ibv_destroy_qp, ibv_qp_to_qp_ex, ibv_query_ece, ibv_query_qp,
    ibv_query_qp_data_in_order, ibv_set_ece,
};
pub use crate::query::ibv_query_device;
pub use crate::srq::{ibv_create_srq, ibv_destroy_srq, ibv_modify_srq, ibv_query_srq};
pub use crate::strings::{
    ibv_event_type_str, ibv_node_type_str, ibv_port_state_str, ibv_rate_to_mbps, ibv_rate_to_mult,
    ibv_wc_status_str, mbps_to_ibv_rate, mult_to_ibv_rate,
};
pub use crate::sysfs::{ibv_get_sysfs_path, ibv_read_ibdev_sysfs_file, ibv_read_sysfs_file};
