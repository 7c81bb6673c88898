//! Public functions of rdma-core 59 and later that are not implemented: `IBVERBS_1.15` to `IBVERBS_1.18`.
//! They fail as on an adapter that lacks the feature, which programs have to handle. No argument is used.

use core::ffi::c_int;

use super::stubs;

fn refused(_name: &str) -> c_int {
    libc::EOPNOTSUPP
}

stubs! {
    // IBVERBS_1.15
    ibv_alloc_dmah => null;
    ibv_dealloc_dmah => code;
    ibv_reg_mr_ex => null;
    // IBVERBS_1.16
    ibv_dm_export_dmabuf_fd => minus_one;
    ibv_query_port_speed => code;
    // IBVERBS_1.17
    ibv_alloc_buf => null;
    ibv_free_buf => code;
    ibv_reg_buf_mr => null;
    // IBVERBS_1.18
    _ibv_query_comp_cntr_caps => code;
    ibv_create_comp_cntr => null;
    ibv_destroy_comp_cntr => code;
    ibv_export_buf_dmabuf_fd => minus_one;
    ibv_inc_comp_cntr => code;
    ibv_inc_err_comp_cntr => code;
    ibv_qp_attach_comp_cntr => code;
    ibv_read_comp_cntr => code;
    ibv_read_err_comp_cntr => code;
    ibv_set_comp_cntr => code;
    ibv_set_err_comp_cntr => code;
}
