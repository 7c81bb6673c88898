//! What provider libraries of other adapters (libmlx5, libefa) import from libibverbs: the private nodes.
//! The providers load and register, since perftest, libfabric and UCX are linked with them. They call the other functions only for a device of
//! their own, which does not exist here.

use core::ffi::c_int;

use super::stubs;

fn refused(_name: &str) -> c_int {
    libc::EOPNOTSUPP
}

stubs! {
    // A provider registers when it is loaded, and is never offered a device.
    verbs_register_driver_25 => nothing;
    verbs_register_driver_33 => nothing;
    verbs_register_driver_34 => nothing;
    verbs_register_driver_57 => nothing;
    verbs_register_driver_59 => nothing;
    verbs_register_driver_64 => nothing;
    verbs_register_driver_65 => nothing;
    // Functions of the library for devices of a provider.
    __ioctl_final_num_attrs => zero;
    __verbs_log => nothing;
    _verbs_init_and_alloc_context => null;
    execute_ioctl => code;
    ibv_dmabuf_heap_alloc => null;
    ibv_dmabuf_heap_cc_shared_init => null;
    ibv_dmabuf_heap_destroy => code;
    ibv_dmabuf_heap_free => code;
    ibv_get_fw_ver => code;
    ibv_wr_opcode_str => word;
    verbs_init_cq => nothing;
    verbs_open_device => null;
    verbs_set_ops => nothing;
    verbs_uninit_context => nothing;
    // Commands to a kernel driver, which does not exist.
    ibv_cmd_advise_mr => code;
    ibv_cmd_alloc_dm => code;
    ibv_cmd_alloc_dmah => code;
    ibv_cmd_alloc_mw => code;
    ibv_cmd_alloc_pd => code;
    ibv_cmd_attach_mcast => code;
    ibv_cmd_close_xrcd => code;
    ibv_cmd_create_ah => code;
    ibv_cmd_create_comp_cntr => code;
    ibv_cmd_create_counters => code;
    ibv_cmd_create_cq => code;
    ibv_cmd_create_cq_ex => code;
    ibv_cmd_create_cq_ex2 => code;
    ibv_cmd_create_flow => code;
    ibv_cmd_create_flow_action_esp => code;
    ibv_cmd_create_qp => code;
    ibv_cmd_create_qp_ex => code;
    ibv_cmd_create_qp_ex2 => code;
    ibv_cmd_create_rwq_ind_table => code;
    ibv_cmd_create_srq => code;
    ibv_cmd_create_srq_ex => code;
    ibv_cmd_create_wq => code;
    ibv_cmd_dealloc_mw => code;
    ibv_cmd_dealloc_pd => code;
    ibv_cmd_dereg_mr => code;
    ibv_cmd_destroy_ah => code;
    ibv_cmd_destroy_comp_cntr => code;
    ibv_cmd_destroy_counters => code;
    ibv_cmd_destroy_cq => code;
    ibv_cmd_destroy_flow => code;
    ibv_cmd_destroy_flow_action => code;
    ibv_cmd_destroy_qp => code;
    ibv_cmd_destroy_rwq_ind_table => code;
    ibv_cmd_destroy_srq => code;
    ibv_cmd_destroy_wq => code;
    ibv_cmd_detach_mcast => code;
    ibv_cmd_export_dmabuf_fd => code;
    ibv_cmd_free_dm => code;
    ibv_cmd_free_dmah => code;
    ibv_cmd_get_context => code;
    ibv_cmd_inc_comp_cntr => code;
    ibv_cmd_inc_err_comp_cntr => code;
    ibv_cmd_modify_cq => code;
    ibv_cmd_modify_flow_action_esp => code;
    ibv_cmd_modify_qp => code;
    ibv_cmd_modify_qp_ex => code;
    ibv_cmd_modify_srq => code;
    ibv_cmd_modify_wq => code;
    ibv_cmd_open_qp => code;
    ibv_cmd_open_xrcd => code;
    ibv_cmd_poll_cq => minus_one;
    ibv_cmd_post_recv => code;
    ibv_cmd_post_send => code;
    ibv_cmd_post_srq_recv => code;
    ibv_cmd_qp_attach_comp_cntr => code;
    ibv_cmd_query_comp_cntr_caps => code;
    ibv_cmd_query_context => code;
    ibv_cmd_query_device => code;
    ibv_cmd_query_device_any => code;
    ibv_cmd_query_device_ex => code;
    ibv_cmd_query_mr => code;
    ibv_cmd_query_port => code;
    ibv_cmd_query_port_speed => code;
    ibv_cmd_query_qp => code;
    ibv_cmd_query_srq => code;
    ibv_cmd_read_comp_cntr => code;
    ibv_cmd_read_counters => code;
    ibv_cmd_read_err_comp_cntr => code;
    ibv_cmd_reg_dm_mr => code;
    ibv_cmd_reg_dmabuf_mr => code;
    ibv_cmd_reg_mr => code;
    ibv_cmd_reg_mr_ex => code;
    ibv_cmd_req_notify_cq => code;
    ibv_cmd_rereg_mr => code;
    ibv_cmd_resize_cq => code;
    ibv_cmd_set_comp_cntr => code;
    ibv_cmd_set_err_comp_cntr => code;
}
