//! Conversion of structs between the kernel's interface and the verbs API, for connection managers that talk to the kernel themselves.
//! The fields are copied as the original does; this library neither sends nor receives such structs.

use crate::abi::*;

/// A route as the kernel's interface has it (`rdma/ib_user_verbs.h`).
#[derive(Clone, Copy)]
#[repr(C)]
#[expect(missing_docs, reason = "fields are the kernel's")]
pub struct ib_uverbs_global_route {
    pub dgid: [u8; 16],
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub reserved: u8,
}

/// An address as the kernel's interface has it.
#[derive(Clone, Copy)]
#[repr(C)]
#[expect(missing_docs, reason = "fields are the kernel's")]
pub struct ib_uverbs_ah_attr {
    pub grh: ib_uverbs_global_route,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
    pub reserved: u8,
}

/// Attributes of a queue pair as the kernel's interface has them.
#[derive(Clone, Copy)]
#[repr(C)]
#[expect(missing_docs, reason = "fields are the kernel's")]
pub struct ib_uverbs_qp_attr {
    pub qp_attr_mask: u32,
    pub qp_state: u32,
    pub cur_qp_state: u32,
    pub path_mtu: u32,
    pub path_mig_state: u32,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: u32,
    pub ah_attr: ib_uverbs_ah_attr,
    pub alt_ah_attr: ib_uverbs_ah_attr,
    pub cap: ibv_qp_cap,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub reserved: [u8; 5],
}

/// A path as the kernel's interface has it (`rdma/ib_user_sa.h`).
#[derive(Clone, Copy)]
#[repr(C)]
#[expect(missing_docs, reason = "fields are the kernel's")]
pub struct ib_user_path_rec {
    pub dgid: [u8; 16],
    pub sgid: [u8; 16],
    pub dlid: u16,
    pub slid: u16,
    pub raw_traffic: u32,
    pub flow_label: u32,
    pub reversible: u32,
    pub mtu: u32,
    pub pkey: u16,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub numb_path: u8,
    pub sl: u8,
    pub mtu_selector: u8,
    pub rate_selector: u8,
    pub rate: u8,
    pub packet_life_time_selector: u8,
    pub packet_life_time: u8,
    pub preference: u8,
}

const _: () = assert!(size_of::<ib_uverbs_ah_attr>() == 32);
const _: () = assert!(size_of::<ib_uverbs_qp_attr>() == 144);
const _: () = assert!(size_of::<ib_user_path_rec>() == 64);

fn address(from: &ib_uverbs_ah_attr) -> ibv_ah_attr {
    let route = from.grh;
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: route.dgid },
            flow_label: route.flow_label,
            sgid_index: route.sgid_index,
            hop_limit: route.hop_limit,
            traffic_class: route.traffic_class,
        },
        dlid: from.dlid,
        sl: from.sl,
        src_path_bits: from.src_path_bits,
        static_rate: from.static_rate,
        is_global: from.is_global,
        port_num: from.port_num,
    }
}

/// Copies an address from the kernel's struct.
///
/// # Safety
/// Both are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_copy_ah_attr_from_kern(
    to: *mut ibv_ah_attr,
    from: *const ib_uverbs_ah_attr,
) {
    // SAFETY: the caller guarantees that `to` is valid for writes and `from` for reads.
    unsafe { *to = address(&*from) };
}

/// Copies attributes of a queue pair from the kernel's struct.
///
/// # Safety
/// Both are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_copy_qp_attr_from_kern(
    to: *mut ibv_qp_attr,
    from: *const ib_uverbs_qp_attr,
) {
    // SAFETY: the caller guarantees that `to` is valid for writes and `from` for reads during the call, and that they do not overlap.
    let (to, from) = unsafe { (&mut *to, &*from) };
    // Fields that the kernel's struct does not have are not changed.
    *to = ibv_qp_attr {
        qp_state: from.qp_state,
        cur_qp_state: from.cur_qp_state,
        path_mtu: from.path_mtu,
        path_mig_state: from.path_mig_state,
        qkey: from.qkey,
        rq_psn: from.rq_psn,
        sq_psn: from.sq_psn,
        dest_qp_num: from.dest_qp_num,
        qp_access_flags: from.qp_access_flags,
        cap: from.cap,
        ah_attr: address(&from.ah_attr),
        alt_ah_attr: address(&from.alt_ah_attr),
        pkey_index: from.pkey_index,
        alt_pkey_index: from.alt_pkey_index,
        en_sqd_async_notify: from.en_sqd_async_notify,
        sq_draining: from.sq_draining,
        max_rd_atomic: from.max_rd_atomic,
        max_dest_rd_atomic: from.max_dest_rd_atomic,
        min_rnr_timer: from.min_rnr_timer,
        port_num: from.port_num,
        timeout: from.timeout,
        retry_cnt: from.retry_cnt,
        rnr_retry: from.rnr_retry,
        alt_port_num: from.alt_port_num,
        alt_timeout: from.alt_timeout,
        ..*to
    };
}

/// Copies a path from the kernel's struct.
///
/// # Safety
/// Both are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_copy_path_rec_from_kern(
    to: *mut ibv_sa_path_rec,
    from: *const ib_user_path_rec,
) {
    // SAFETY: the caller guarantees that `to` is valid for writes and `from` for reads during the call, and that they do not overlap.
    let (to, from) = unsafe { (&mut *to, &*from) };
    *to = ibv_sa_path_rec {
        dgid: ibv_gid { raw: from.dgid },
        sgid: ibv_gid { raw: from.sgid },
        dlid: from.dlid,
        slid: from.slid,
        raw_traffic: from.raw_traffic as i32,
        flow_label: from.flow_label,
        hop_limit: from.hop_limit,
        traffic_class: from.traffic_class,
        reversible: from.reversible as i32,
        numb_path: from.numb_path,
        pkey: from.pkey,
        sl: from.sl,
        mtu_selector: from.mtu_selector,
        mtu: from.mtu as u8,
        rate_selector: from.rate_selector,
        rate: from.rate,
        packet_life_time_selector: from.packet_life_time_selector,
        packet_life_time: from.packet_life_time,
        preference: from.preference,
    };
}

/// Copies a path into the kernel's struct.
///
/// # Safety
/// Both are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_copy_path_rec_to_kern(
    to: *mut ib_user_path_rec,
    from: *const ibv_sa_path_rec,
) {
    // SAFETY: the caller guarantees that `to` is valid for writes and `from` for reads during the call, and that they do not overlap.
    let (to, from) = unsafe { (&mut *to, &*from) };
    // SAFETY: both members of the union are 16 bytes of integers, for which any bytes are valid.
    let (dgid, sgid) = unsafe { (from.dgid.raw, from.sgid.raw) };
    *to = ib_user_path_rec {
        dgid,
        sgid,
        dlid: from.dlid,
        slid: from.slid,
        raw_traffic: from.raw_traffic as u32,
        flow_label: from.flow_label,
        reversible: from.reversible as u32,
        mtu: from.mtu.into(),
        pkey: from.pkey,
        hop_limit: from.hop_limit,
        traffic_class: from.traffic_class,
        numb_path: from.numb_path,
        sl: from.sl,
        mtu_selector: from.mtu_selector,
        rate_selector: from.rate_selector,
        rate: from.rate,
        packet_life_time_selector: from.packet_life_time_selector,
        packet_life_time: from.packet_life_time,
        preference: from.preference,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_record_survives_kernel_round_trip() {
        let mut path = ibv_sa_path_rec::zeroed();
        path.dgid = ibv_gid { raw: [7; 16] };
        path.flow_label = 0x1234_5678;
        path.mtu = 5;
        path.reversible = 1;
        path.preference = 9;
        let mut kernel = core::mem::MaybeUninit::<ib_user_path_rec>::zeroed();
        let mut back = ibv_sa_path_rec::zeroed();
        // SAFETY: `kernel`, `path` and the copy are locals that do not overlap.
        unsafe {
            ibv_copy_path_rec_to_kern(kernel.as_mut_ptr(), &raw const path);
            ibv_copy_path_rec_from_kern(&raw mut back, kernel.as_ptr());
            assert_eq!(back.dgid.raw, [7; 16]);
        }
        assert_eq!(
            (back.flow_label, back.mtu, back.reversible, back.preference),
            (0x1234_5678, 5, 1, 9)
        );
    }
}
