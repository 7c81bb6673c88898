//! The attributes of the device. Limits are those that the calls themselves enforce; features that are not implemented are zero.
//! `max_ah` and the multicast attributes are set in the `roce` personality only.

use core::ffi::c_int;

use verbena::low::Personality;
use verbena::unstable::{catches_faults, timestamp};

use crate::abi::*;
use crate::caller::{arg_mut, arg_ref, handle};
use crate::context::{self, Context};
use crate::device::{guid, write};
use crate::errno::{Errno, number};
use crate::identity::{FW_VERSION, HW_VERSION, VENDOR_ID, VENDOR_PART_ID};
use crate::port::{PORT, copy_truncated};

/// Reads and atomics in flight at once in each direction of a connection: the largest value that the queue pair's attributes accept.
pub(crate) const MAX_READS: u8 = 128;

fn limit(n: usize) -> c_int {
    c_int::try_from(n).unwrap_or(c_int::MAX)
}

impl Context {
    fn device_attr(&self) -> ibv_device_attr {
        let attributes = self.function.device.attributes();
        let shares = attributes.shares;
        let roce = self.function.personality() == Personality::Roce;
        let mut flags = IBV_DEVICE_CURR_QP_STATE_MOD
            | IBV_DEVICE_SYS_IMAGE_GUID
            | IBV_DEVICE_MEM_WINDOW
            | IBV_DEVICE_MEM_WINDOW_TYPE_2B
            | IBV_DEVICE_MEM_MGT_EXTENSIONS;
        if !self.uses_roce_only() {
            flags |= IBV_DEVICE_XRC;
        }
        if roce {
            flags |= IBV_DEVICE_RC_RNR_NAK_GEN;
        }
        let node_guid = guid(&self.function);
        let mut attr = ibv_device_attr {
            node_guid,
            sys_image_guid: node_guid,
            max_mr_size: u64::MAX >> 1,
            page_size_cap: 0xffff_f000,
            vendor_id: VENDOR_ID,
            vendor_part_id: VENDOR_PART_ID,
            hw_ver: HW_VERSION,
            max_qp: limit(shares.qps as usize),
            max_qp_wr: limit(attributes.requests),
            device_cap_flags: flags,
            max_sge: limit(attributes.max_sge),
            max_sge_rd: limit(attributes.max_sge),
            max_cq: limit(shares.cqs as usize),
            max_cqe: limit(attributes.entries),
            max_mr: limit(shares.stags as usize),
            // One belongs to the adapter.
            max_pd: limit(shares.pds as usize).saturating_sub(1),
            max_qp_rd_atom: MAX_READS.into(),
            max_res_rd_atom: limit(shares.qps as usize).saturating_mul(MAX_READS.into()),
            max_qp_init_rd_atom: MAX_READS.into(),
            // Atomics are instructions of the processor, so they are atomic to local code as well.
            atomic_cap: IBV_ATOMIC_GLOB,
            max_mw: limit(shares.stags as usize),
            max_srq: limit(shares.srqs as usize),
            max_srq_wr: limit(attributes.shared_receives),
            max_srq_sge: limit(attributes.max_sge),
            max_pkeys: 1,
            phys_port_cnt: PORT,
            ..ibv_device_attr::zeroed()
        };
        if roce {
            attr.max_ah = c_int::MAX;
            attr.max_mcast_grp = MULTICAST_GROUPS;
            attr.max_mcast_qp_attach = c_int::MAX;
            attr.max_total_mcast_qp_attach = c_int::MAX;
        }
        write(&mut attr.fw_ver, FW_VERSION);
        attr
    }

    /// RoCEv2 as it is implemented has neither XRC nor Flush and Atomic Write.
    fn uses_roce_only(&self) -> bool {
        self.function.device.config().uses_roce_only()
    }

    fn device_attr_ex(&self) -> ibv_device_attr_ex {
        let orig_attr = self.device_attr();
        let mut flags = u64::from(orig_attr.device_cap_flags);
        let mut xrc_odp_caps = 0;
        if !self.uses_roce_only() {
            flags |= IB_UVERBS_DEVICE_FLUSH_GLOBAL | IB_UVERBS_DEVICE_ATOMIC_WRITE;
            xrc_odp_caps = self.odp_caps().per_transport_caps.rc_odp_caps;
        }
        ibv_device_attr_ex {
            orig_attr,
            odp_caps: self.odp_caps(),
            completion_timestamp_mask: u64::MAX,
            hca_core_clock: CORE_CLOCK_KHZ,
            max_dm_size: self.function.device_memory_size() as u64,
            device_cap_flags_ex: flags,
            cq_mod_caps: ibv_cq_moderation_caps {
                max_cq_count: u16::MAX,
                max_cq_period: u16::MAX,
            },
            xrc_odp_caps,
            phys_port_cnt_ex: PORT.into(),
            ..ibv_device_attr_ex::zeroed()
        }
    }
}

impl Context {
    /// On-demand paging: all that the transports of the personality do, if a fault does not end the process.
    fn odp_caps(&self) -> ibv_odp_caps {
        let mut caps = ibv_odp_caps::zeroed();
        if !catches_faults() {
            return caps;
        }
        caps.general_caps = (IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT).into();
        let messages = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
        let by_transport = &mut caps.per_transport_caps;
        by_transport.rc_odp_caps =
            messages | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;
        if self.function.personality() == Personality::Roce {
            by_transport.uc_odp_caps = messages | IBV_ODP_SUPPORT_WRITE;
            by_transport.ud_odp_caps = messages;
        }
        caps
    }
}

/// The clock of timestamps counts nanoseconds.
const CORE_CLOCK_KHZ: u64 = 1_000_000;

/// The present value of the clock of timestamps: in `tv_nsec` alone, as adapters return the count of their clocks.
///
/// # Safety
/// `context` is open; `values` is null or valid during the call.
pub(crate) unsafe extern "C" fn query_rt_values(
    context: *mut ibv_context,
    values: *mut ibv_values_ex,
) -> c_int {
    let (own, values) = (handle!(context::of(context)), arg_mut!(values));
    number(own.and_then(|_| {
        let values = values.ok_or(Errno::INVAL)?;
        if values.comp_mask & !IBV_VALUES_MASK_RAW_CLOCK != 0 {
            return Err(Errno::INVAL);
        }
        if values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK != 0 {
            values.raw_clock.tv_sec = 0;
            values.raw_clock.tv_nsec = timestamp().monotonic as libc::c_long;
        }
        Ok(())
    }))
}

/// Linux's default limit of groups per socket (`net.ipv4.igmp_max_memberships`).
const MULTICAST_GROUPS: c_int = 20;

/// The attributes of a device.
///
/// # Safety
/// `context` is open; `attr` is valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    let own = handle!(context::of(context));
    number(own.and_then(|own| {
        if attr.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: the caller guarantees that `attr` is valid for writes.
        unsafe { *attr = own.device_attr() };
        Ok(())
    }))
}

/// The same and more, as much as fits into the program's struct.
///
/// # Safety
/// `context` is open; `input` is null or valid, and `attr` is null or has room for `size` bytes.
pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    let (own, input) = (handle!(context::of(context)), arg_ref!(input));
    number(own.and_then(|own| {
        let asked = input.is_some_and(|input| input.comp_mask != 0);
        if attr.is_null() || asked || size < size_of::<ibv_device_attr>() {
            return Err(Errno::INVAL);
        }
        // SAFETY: the caller guarantees room for `size` bytes at `attr`.
        unsafe { copy_truncated(&own.device_attr_ex(), attr, size) };
        Ok(())
    }))
}
