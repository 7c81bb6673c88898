//! Multicast groups that are joined through the connection manager. Members receive what others send to the group.

use core::ffi::c_void;
use core::ptr;
use std::time::Duration;

use libc::sockaddr_in;
use verbena_capi::abi::*;
use verbena_capi::cm::calls::*;

use crate::common::ud_peers::*;
use crate::common::{call, errno};

/// An identifier with a device, in no group.
fn member(before: bool) -> UdPeer {
    let party = UdPeer::new(RDMA_PS_UDP);
    let here = address("127.0.0.1:0");
    assert_eq!(call!(rdma_bind_addr(party.id, at(&here))), 0);
    if before {
        make_qp(party.id);
    }
    party
}

fn join_group(party: &UdPeer, group: &sockaddr_in) -> rdma_ud_param {
    let context = 0x1234 as *mut c_void;
    assert_eq!(call!(rdma_join_multicast(party.id, at(group), context)), 0);
    let joined = party.expect(RDMA_CM_EVENT_MULTICAST_JOIN);
    let ud = joined.ud();
    assert_eq!(joined.get().status, 0);
    assert_eq!(ud.private_data, context.cast_const());
    assert_eq!((ud.qp_num, ud.qkey), (0x00ff_ffff, RDMA_UDP_QKEY));
    ud
}

#[test]
fn multicast_members_receive_until_they_leave() {
    crate::begin();
    let group = address("239.255.81.7:0");
    let (first, second) = (member(true), member(false));
    let mut ud = join_group(&first, &group);
    // The order does not matter.
    join_group(&second, &group);
    make_qp(second.id);
    let letters = RecvBuffer::of(second.id);
    let own = RecvBuffer::of(first.id);
    send(first.id, &mut ud, b"to all");
    assert_eq!(letters.take(second.id).0, b"to all");
    assert_nothing_received(first.id);
    letters.post_recv(second.id);
    assert_eq!(
        call!(rdma_join_multicast(first.id, at(&group), ptr::null_mut())),
        -1
    );
    assert_eq!(errno(), libc::EADDRINUSE);
    assert_eq!(call!(rdma_leave_multicast(second.id, at(&group))), 0);
    assert_eq!(call!(rdma_leave_multicast(second.id, at(&group))), -1);
    assert_eq!(errno(), libc::EADDRNOTAVAIL);
    send(first.id, &mut ud, b"no member");
    assert_nothing_received(second.id);
    call!(rdma_destroy_qp(first.id));
    call!(rdma_destroy_qp(second.id));
    drop((letters, own));
}

#[test]
fn send_only_member_receives_nothing() {
    crate::begin();
    let group = address("239.255.81.8:0");
    let (sender, hears) = (member(true), member(true));
    let mut attr = rdma_cm_join_mc_attr_ex {
        comp_mask: RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
        join_flags: RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
        addr: at(&group),
    };
    let code = call!(rdma_join_multicast_ex(
        sender.id,
        &raw mut attr,
        ptr::null_mut()
    ));
    assert_eq!(code, 0);
    let mut ud = sender.expect(RDMA_CM_EVENT_MULTICAST_JOIN).ud();
    let mut back = join_group(&hears, &group);
    let letters = [RecvBuffer::of(hears.id), RecvBuffer::of(sender.id)];
    send(sender.id, &mut ud, b"hear me");
    assert_eq!(letters[0].take(hears.id).0, b"hear me");
    send(hears.id, &mut back, b"not received");
    assert_nothing_received(sender.id);
    call!(rdma_destroy_qp(sender.id));
    call!(rdma_destroy_qp(hears.id));
}

#[test]
fn invalid_multicast_joins_are_refused() {
    crate::begin();
    let (party, group) = (member(true), address("239.255.81.9:0"));
    let unicast = address("127.0.0.1:0");
    let (fresh, streams) = (UdPeer::new(RDMA_PS_UDP), UdPeer::new(RDMA_PS_TCP));
    let mut attr = rdma_cm_join_mc_attr_ex {
        comp_mask: RDMA_CM_JOIN_MC_ATTR_ADDRESS,
        join_flags: 0,
        addr: at(&group),
    };
    let none = ptr::null_mut();
    // SAFETY: the identifiers are owned by `party`, `fresh` and `streams`, which are dropped later; addresses and `attr` are null or locals.
    unsafe {
        assert_eq!(rdma_join_multicast(party.id, at(&unicast), none), -1);
        assert_eq!(rdma_join_multicast(party.id, ptr::null_mut(), none), -1);
        assert_eq!(rdma_join_multicast(fresh.id, at(&group), none), -1);
        assert_eq!(rdma_join_multicast(streams.id, at(&group), none), -1);
        assert_eq!(rdma_join_multicast_ex(party.id, &raw mut attr, none), -1);
        attr.comp_mask |= RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
        attr.join_flags = 5;
        assert_eq!(rdma_join_multicast_ex(party.id, &raw mut attr, none), -1);
        assert_eq!(errno(), libc::EINVAL);
        assert_eq!(rdma_join_multicast_ex(party.id, ptr::null_mut(), none), -1);
        assert_eq!(rdma_leave_multicast(party.id, at(&group)), -1);
    }
    party.expect_no_event(Duration::ZERO);
    // A group whose event was not taken is left when the identifier is destroyed.
    assert_eq!(call!(rdma_join_multicast(party.id, at(&group), none)), 0);
    assert_eq!(call!(rdma_leave_multicast(party.id, at(&group))), 0);
    party.expect_no_event(Duration::ZERO);
}
