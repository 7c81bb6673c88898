//! What the device can do: its limits, which are those that the calls themselves compare with.
//! It promises to be true: whatever is not zero here works. It refuses to boast of what a real card has and we have not.

use core::ffi::c_int;

use verbena::low::Personality;

use crate::abi::*;
use crate::context::{self, Context};
use crate::device::{guid, write};
use crate::errno::{Errno, number};
use crate::identity::{FW_VERSION, HW_VERSION, VENDOR_ID, VENDOR_PART_ID};
use crate::port::{PORT, answer};

/// Reads and atomics that can be under way at once in each direction of a connection: what an attribute of a queue pair can say.
pub(crate) const READS: u8 = 128;

fn limit(n: usize) -> c_int {
    c_int::try_from(n).unwrap_or(c_int::MAX)
}

impl Context {
    fn device_attr(&self) -> ibv_device_attr {
        let attributes = self.home.device.attributes();
        let shares = attributes.shares;
        let roce = self.home.personality() == Personality::Roce;
        let mut flags = IBV_DEVICE_CURR_QP_STATE_MOD
            | IBV_DEVICE_SYS_IMAGE_GUID
            | IBV_DEVICE_MEM_WINDOW
            | IBV_DEVICE_MEM_WINDOW_TYPE_2B
            | IBV_DEVICE_MEM_MGT_EXTENSIONS;
        if roce {
            flags |= IBV_DEVICE_RC_RNR_NAK_GEN;
        }
        let node_guid = guid(&self.home);
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
            max_sge: limit(attributes.pieces),
            max_sge_rd: limit(attributes.pieces),
            max_cq: limit(shares.cqs as usize),
            max_cqe: limit(attributes.entries),
            max_mr: limit(shares.stags as usize),
            // One is the adapter's own.
            max_pd: limit(shares.pds as usize).saturating_sub(1),
            max_qp_rd_atom: READS.into(),
            max_res_rd_atom: limit(shares.qps as usize).saturating_mul(READS.into()),
            max_qp_init_rd_atom: READS.into(),
            // Words are changed by instructions of the processor, so it sees them whole, too.
            atomic_cap: IBV_ATOMIC_GLOB,
            max_mw: limit(shares.stags as usize),
            max_srq: limit(shares.srqs as usize),
            max_srq_wr: limit(attributes.shared_receives),
            max_srq_sge: limit(attributes.pieces),
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

    fn device_attr_ex(&self) -> ibv_device_attr_ex {
        let orig_attr = self.device_attr();
        ibv_device_attr_ex {
            orig_attr,
            device_cap_flags_ex: orig_attr.device_cap_flags.into(),
            cq_mod_caps: ibv_cq_moderation_caps {
                max_cq_count: u16::MAX,
                max_cq_period: u16::MAX,
            },
            phys_port_cnt_ex: PORT.into(),
            ..ibv_device_attr_ex::zeroed()
        }
    }
}

/// What the system allows one socket to join, by default.
const MULTICAST_GROUPS: c_int = 20;

/// What a device can do.
///
/// # Safety
/// `context` is open; `attr` is the program's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    // SAFETY: the program's word.
    let own = unsafe { context::of(context) };
    number(own.and_then(|own| {
        if attr.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: the program's word.
        unsafe { *attr = own.device_attr() };
        Ok(())
    }))
}

/// The same and more, as much as the program's struct has room for.
///
/// # Safety
/// `context` is open; `input` is null or a struct, `attr` has room for `size` bytes.
pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    // SAFETY: the program's word.
    let (own, input) = unsafe { (context::of(context), input.as_ref()) };
    number(own.and_then(|own| {
        let asked = input.is_some_and(|input| input.comp_mask != 0);
        if attr.is_null() || asked || size < size_of::<ibv_device_attr>() {
            return Err(Errno::INVAL);
        }
        // SAFETY: the program's word.
        unsafe { answer(&own.device_attr_ex(), attr, size) };
        Ok(())
    }))
}
