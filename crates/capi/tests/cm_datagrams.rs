//! The connection manager's port spaces for datagrams: questions and answers, ports, ends at any moment, and groups.

mod common;

use common::{LONG, errno, poll_cq, post_recv, post_send};
use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use libc::{AF_INET, POLLIN, pollfd, sockaddr, sockaddr_in};
use verbena_capi::abi::*;
use verbena_capi::cm::calls::*;
use verbena_capi::verbs::*;

fn address(text: &str) -> sockaddr_in {
    let SocketAddr::V4(v4) = text.parse().unwrap() else {
        panic!("{text}");
    };
    // SAFETY: numbers, of which zero is a value.
    let mut address: sockaddr_in = unsafe { core::mem::zeroed() };
    address.sin_family = AF_INET as u16;
    address.sin_port = v4.port().to_be();
    address.sin_addr.s_addr = u32::from(*v4.ip()).to_be();
    address
}

fn at(address: &sockaddr_in) -> *mut sockaddr {
    ptr::from_ref(address).cast_mut().cast()
}

/// A channel and an identifier on it; destroyed in order.
struct Party {
    channel: *mut rdma_event_channel,
    id: *mut rdma_cm_id,
}

/// An event, until it is dropped.
struct Event(*mut rdma_cm_event);

impl Event {
    fn get(&self) -> &rdma_cm_event {
        // SAFETY: not acknowledged yet.
        unsafe { &*self.0 }
    }

    fn ud(&self) -> rdma_ud_param {
        // SAFETY: an event of a datagram service.
        unsafe { self.get().param.ud }
    }

    fn said(&self) -> Vec<u8> {
        let ud = self.ud();
        if ud.private_data.is_null() {
            return Vec::new();
        }
        // SAFETY: so many bytes are there.
        unsafe {
            core::slice::from_raw_parts(ud.private_data.cast::<u8>(), ud.private_data_len.into())
        }
        .to_vec()
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more.
        assert_eq!(unsafe { rdma_ack_cm_event(self.0) }, 0);
    }
}

impl Party {
    fn new(ps: u32) -> Party {
        let channel = rdma_create_event_channel();
        assert!(!channel.is_null());
        let mut id = ptr::null_mut();
        // SAFETY: as the manual says.
        unsafe {
            assert_eq!(
                rdma_create_id(channel, &raw mut id, 7 as *mut c_void, ps),
                0
            );
        }
        Party { channel, id }
    }

    /// One that listens; and where.
    fn listening(port: u16) -> (Party, sockaddr_in) {
        let party = Party::new(RDMA_PS_UDP);
        let mut here = address(&format!("127.0.0.1:{port}"));
        // SAFETY: as the manual says.
        unsafe {
            assert_eq!(rdma_bind_addr(party.id, at(&here)), 0, "{}", errno());
            assert_eq!(rdma_listen(party.id, 0), 0, "{}", errno());
            here.sin_port = rdma_get_src_port(party.id);
        }
        assert_ne!(here.sin_port, 0);
        (party, here)
    }

    /// One that knows the way there.
    fn towards(there: &sockaddr_in) -> Party {
        let party = Party::new(RDMA_PS_UDP);
        // SAFETY: as the manual says.
        unsafe {
            let none = ptr::null_mut();
            assert_eq!(rdma_resolve_addr(party.id, none, at(there), 1000), 0);
            party.expect(RDMA_CM_EVENT_ADDR_RESOLVED);
            assert_eq!(rdma_resolve_route(party.id, 1000), 0);
            party.expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
        }
        party
    }

    fn ask(&self, said: &[u8]) {
        let mut param = said_by(said);
        // SAFETY: as the manual says.
        assert_eq!(unsafe { rdma_connect(self.id, &raw mut param) }, 0);
    }

    #[track_caller]
    fn next(&self) -> Event {
        let mut event = ptr::null_mut();
        // SAFETY: as the manual says.
        unsafe {
            let fd = (*self.channel).fd;
            let mut poll = pollfd {
                fd,
                events: POLLIN,
                revents: 0,
            };
            let ready = libc::poll(&raw mut poll, 1, LONG.as_millis() as c_int);
            assert_eq!(ready, 1, "no event came");
            assert_eq!(rdma_get_cm_event(self.channel, &raw mut event), 0);
        }
        Event(event)
    }

    #[track_caller]
    fn expect(&self, kind: u32) -> Event {
        let event = self.next();
        let got = event.get().event;
        // SAFETY: words that live for ever.
        let word = unsafe { CStr::from_ptr(rdma_event_str(got)) };
        assert_eq!(got, kind, "{word:?}, status {}", event.get().status);
        event
    }

    fn quiet(&self, time: Duration) {
        // SAFETY: as the manual says.
        unsafe {
            let fd = (*self.channel).fd;
            let mut poll = pollfd {
                fd,
                events: POLLIN,
                revents: 0,
            };
            assert_eq!(libc::poll(&raw mut poll, 1, time.as_millis() as c_int), 0);
        }
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        // SAFETY: nobody uses them any more.
        unsafe {
            rdma_destroy_qp(self.id);
            assert_eq!(rdma_destroy_id(self.id), 0);
            rdma_destroy_event_channel(self.channel);
        }
    }
}

fn said_by(said: &[u8]) -> rdma_conn_param {
    rdma_conn_param {
        private_data: said.as_ptr().cast(),
        private_data_len: said.len() as u8,
        ..rdma_conn_param::zeroed()
    }
}

fn make_qp(id: *mut rdma_cm_id) {
    let mut init = ibv_qp_init_attr {
        qp_context: ptr::null_mut(),
        send_cq: ptr::null_mut(),
        recv_cq: ptr::null_mut(),
        srq: ptr::null_mut(),
        cap: ibv_qp_cap {
            max_send_wr: 8,
            max_recv_wr: 8,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 64,
        },
        qp_type: IBV_QPT_UD,
        sq_sig_all: 1,
    };
    // SAFETY: as the manual says.
    let made = unsafe { rdma_create_qp(id, ptr::null_mut(), &raw mut init) };
    assert_eq!(made, 0, "{}", errno());
}

/// Memory of an identifier's queue pair, with a receive posted.
struct Letterbox {
    mr: *mut ibv_mr,
    bytes: Box<[u8; 256]>,
}

impl Letterbox {
    fn of(id: *mut rdma_cm_id) -> Letterbox {
        let mut bytes = Box::new([0; 256]);
        // SAFETY: as the manual says.
        let mr = unsafe { ibv_reg_mr((*id).pd, bytes.as_mut_ptr().cast(), 256, 1) };
        assert!(!mr.is_null());
        let this = Letterbox { mr, bytes };
        this.open(id);
        this
    }

    fn open(&self, id: *mut rdma_cm_id) {
        // SAFETY: as the manual says.
        unsafe {
            let mut sge = ibv_sge {
                addr: self.bytes.as_ptr() as u64,
                length: 256,
                lkey: (*self.mr).lkey,
            };
            let mut wr = ibv_recv_wr {
                sg_list: &raw mut sge,
                num_sge: 1,
                ..ibv_recv_wr::zeroed()
            };
            let mut bad = ptr::null_mut();
            assert_eq!(post_recv((*id).qp, &raw mut wr, &raw mut bad), 0);
        }
    }

    /// What came, and who sent it.
    fn take(&self, id: *mut rdma_cm_id) -> (Vec<u8>, u32) {
        // SAFETY: its queues are there.
        let wc = completion(unsafe { (*id).recv_cq });
        let len = wc.byte_len as usize;
        // SAFETY: bytes that are there, and that the adapter wrote behind the compiler's back.
        let read = |at: usize| unsafe { ptr::read_volatile(&raw const self.bytes[at]) };
        ((40..len).map(read).collect(), wc.src_qp)
    }
}

impl Drop for Letterbox {
    fn drop(&mut self) {
        // SAFETY: its queue pair is gone, or does not use it any more.
        unsafe { ibv_dereg_mr(self.mr) };
    }
}

#[track_caller]
fn completion(cq: *mut ibv_cq) -> ibv_wc {
    common::next(cq)
}

fn nothing_came(id: *mut rdma_cm_id) {
    let end = Instant::now() + Duration::from_millis(200);
    while Instant::now() < end {
        // SAFETY: its queues are there.
        let n = poll_cq(unsafe { (*id).recv_cq }, &mut [ibv_wc::zeroed()]);
        assert_eq!(n, 0);
        std::thread::yield_now();
    }
}

fn send(id: *mut rdma_cm_id, ud: &mut rdma_ud_param, text: &[u8]) {
    // SAFETY: as the manual says.
    unsafe {
        let ah = ibv_create_ah((*id).pd, &raw mut ud.ah_attr);
        assert!(!ah.is_null(), "{}", errno());
        let mut sge = ibv_sge {
            addr: text.as_ptr() as u64,
            length: text.len() as u32,
            lkey: 0,
        };
        let mut wr = ibv_send_wr {
            sg_list: &raw mut sge,
            num_sge: 1,
            opcode: IBV_WR_SEND,
            send_flags: IBV_SEND_INLINE,
            ..ibv_send_wr::zeroed()
        };
        wr.wr.ud.ah = ah;
        wr.wr.ud.remote_qpn = ud.qp_num;
        wr.wr.ud.remote_qkey = ud.qkey;
        let mut bad = ptr::null_mut();
        assert_eq!(post_send((*id).qp, &raw mut wr, &raw mut bad), 0);
        assert_eq!(completion((*id).send_cq).status, IBV_WC_SUCCESS);
        assert_eq!(ibv_destroy_ah(ah), 0);
    }
}

#[test]
fn a_question_is_answered_and_datagrams_arrive() {
    for ps in [RDMA_PS_UDP, RDMA_PS_IPOIB] {
        let server = Party::new(ps);
        let mut here = address("0.0.0.0:0");
        // SAFETY: as the manual says.
        unsafe {
            assert_eq!(rdma_bind_addr(server.id, at(&here)), 0);
            assert_eq!(rdma_listen(server.id, 0), 0);
            here = address("127.0.0.1:0");
            here.sin_port = rdma_get_src_port(server.id);
        }
        let client = Party::towards(&here);
        make_qp(client.id);
        client.ask(b"where are you?");
        let asked = server.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
        assert_eq!(asked.said(), b"where are you?");
        let (child, listener) = (asked.get().id, asked.get().listen_id);
        assert_eq!(listener, server.id);
        make_qp(child);
        let letters = Letterbox::of(child);
        // SAFETY: as the manual says.
        unsafe {
            assert_eq!((*child).context, 7 as *mut c_void);
            assert_eq!((*child).qp_type, IBV_QPT_UD);
            assert_eq!(rdma_get_src_port(child), here.sin_port);
            assert_ne!(rdma_get_dst_port(child), 0);
            let mut param = said_by(b"here");
            assert_eq!(rdma_accept(child, &raw mut param), 0, "{}", errno());
            // Once.
            assert_eq!(rdma_accept(child, &raw mut param), -1);
            assert_eq!(errno(), libc::EINVAL);
        }
        let answer = client.expect(RDMA_CM_EVENT_ESTABLISHED);
        assert_eq!((answer.get().status, answer.said()), (0, b"here".to_vec()));
        let mut ud = answer.ud();
        // SAFETY: queue pairs that are there.
        unsafe { assert_eq!(ud.qp_num, (*(*child).qp).qp_num) };
        assert_eq!(ud.qkey, RDMA_UDP_QKEY);
        send(client.id, &mut ud, b"a letter");
        let (text, from) = letters.take(child);
        // SAFETY: queue pairs that are there.
        unsafe {
            assert_eq!(
                (text, from),
                (b"a letter".to_vec(), (*(*client.id).qp).qp_num)
            )
        };
        // Nothing else is said of it on either side.
        drop((asked, answer));
        server.quiet(Duration::from_millis(50));
        client.quiet(Duration::ZERO);
        // SAFETY: as the manual says.
        unsafe {
            assert_eq!(rdma_disconnect(client.id), -1);
            assert_eq!(errno(), libc::EINVAL);
            rdma_destroy_qp(child);
            drop(letters);
            assert_eq!(rdma_destroy_id(child), 0);
        }
    }
}

#[test]
fn a_question_is_refused_or_ignored() {
    let (server, here) = Party::listening(0);
    for said in [&b"not here"[..], b""] {
        let client = Party::towards(&here);
        client.ask(b"");
        let asked = server.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
        let child = asked.get().id;
        drop(asked);
        // SAFETY: as the manual says.
        unsafe {
            if !said.is_empty() {
                let len = said.len() as u8;
                assert_eq!(rdma_reject(child, said.as_ptr().cast(), len), 0);
                assert_eq!(rdma_reject(child, said.as_ptr().cast(), len), -1);
            }
            assert_eq!(rdma_destroy_id(child), 0);
        }
        let answer = client.expect(RDMA_CM_EVENT_UNREACHABLE);
        assert_eq!((answer.get().status, answer.said()), (2, said.to_vec()));
    }
}

#[test]
fn nobody_there_is_said_after_some_tries() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let there = address(&silent.local_addr().unwrap().to_string());
    let client = Party::towards(&there);
    client.ask(b"anybody?");
    let mut again = said_by(b"");
    // SAFETY: as the manual says.
    unsafe { assert_eq!(rdma_connect(client.id, &raw mut again), -1) };
    let answer = client.expect(RDMA_CM_EVENT_UNREACHABLE);
    assert_eq!(answer.get().status, -libc::ETIMEDOUT);
}

#[test]
fn a_port_that_is_taken_is_refused() {
    let (_server, here) = Party::listening(0);
    let other = Party::new(RDMA_PS_UDP);
    // An ordinary program's.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let plain = address(&socket.local_addr().unwrap().to_string());
    // SAFETY: as the manual says.
    unsafe {
        for taken in [&here, &plain] {
            assert_eq!(rdma_bind_addr(other.id, at(taken)), -1);
            assert_eq!(errno(), libc::EADDRINUSE);
        }
        // Streams have ports of their own.
        let streams = Party::new(RDMA_PS_TCP);
        assert_eq!(rdma_bind_addr(streams.id, at(&here)), 0);
        // One that is not bound gets a port when it listens; and it does that once.
        assert_eq!(rdma_listen(other.id, 5), 0);
        assert_ne!(rdma_get_src_port(other.id), 0);
        assert_eq!(rdma_listen(other.id, 5), -1);
    }
}

#[test]
fn ends_at_any_moment_are_clean() {
    let (server, here) = Party::listening(0);
    for _ in 0..20 {
        // Who asks goes before it is answered.
        let client = Party::towards(&here);
        client.ask(b"never mind");
        drop(client);
        // The identifier of somebody who left can be answered.
        let asked = server.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
        let child = asked.get().id;
        make_qp(child);
        drop(asked);
        // SAFETY: as the manual says.
        unsafe {
            assert_eq!(rdma_accept(child, ptr::null_mut()), 0);
            rdma_destroy_qp(child);
            assert_eq!(rdma_destroy_id(child), 0);
        }
    }
    // The listener goes while somebody waits, whose event nobody took.
    let client = Party::towards(&here);
    client.ask(b"hello?");
    std::thread::sleep(Duration::from_millis(100));
    drop(server);
    let answer = client.expect(RDMA_CM_EVENT_UNREACHABLE);
    assert_eq!(answer.get().status, 2);
}

#[test]
fn noise_at_the_port_is_no_question() {
    let (server, here) = Party::listening(0);
    let noise = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = ("127.0.0.1", u16::from_be(here.sin_port));
    for len in [0, 1, 40, 295, 296, 297, 1400] {
        noise.send_to(&vec![0x5a; len], to).unwrap();
    }
    server.quiet(Duration::from_millis(100));
    let client = Party::towards(&here);
    client.ask(b"");
    drop(server.expect(RDMA_CM_EVENT_CONNECT_REQUEST));
}

/// Who waits for every step itself.
fn alone() -> *mut rdma_cm_id {
    let mut id = ptr::null_mut();
    // SAFETY: as the manual says.
    unsafe {
        let none = ptr::null_mut();
        assert_eq!(
            rdma_create_id(none, &raw mut id, ptr::null_mut(), RDMA_PS_UDP),
            0
        );
    }
    id
}

#[test]
fn without_a_channel_every_step_waits() {
    let listener = alone();
    let mut here = address("127.0.0.1:0");
    // SAFETY: as the manual says.
    unsafe {
        assert_eq!(rdma_bind_addr(listener, at(&here)), 0);
        assert_eq!(rdma_listen(listener, 4), 0);
        here.sin_port = rdma_get_src_port(listener);
    }
    let asks = std::thread::spawn(move || {
        let mut results = Vec::new();
        for _ in 0..2 {
            let id = alone();
            // SAFETY: as the manual says.
            unsafe {
                assert_eq!(rdma_resolve_addr(id, ptr::null_mut(), at(&here), 1000), 0);
                assert_eq!(rdma_resolve_route(id, 1000), 0);
                let code = rdma_connect(id, ptr::null_mut());
                results.push(if code == 0 { 0 } else { errno() });
                assert_eq!(rdma_get_src_port(id) != 0, code == 0);
                assert_eq!(rdma_destroy_id(id), 0);
            }
        }
        results
    });
    // SAFETY: as the manual says.
    unsafe {
        for accept in [true, false] {
            let mut child = ptr::null_mut();
            assert_eq!(rdma_get_request(listener, &raw mut child), 0);
            if accept {
                make_qp(child);
                assert_eq!(rdma_accept(child, ptr::null_mut()), 0);
                assert!((*child).event.is_null());
                rdma_destroy_qp(child);
            } else {
                assert_eq!(rdma_reject(child, ptr::null(), 0), 0);
            }
            assert_eq!(rdma_destroy_id(child), 0);
        }
        assert_eq!(rdma_destroy_id(listener), 0);
    }
    assert_eq!(asks.join().unwrap(), [0, libc::ECONNREFUSED]);
}

/// An identifier with a device, in no group.
fn member(before: bool) -> Party {
    let party = Party::new(RDMA_PS_UDP);
    let here = address("127.0.0.1:0");
    // SAFETY: as the manual says.
    unsafe { assert_eq!(rdma_bind_addr(party.id, at(&here)), 0) };
    if before {
        make_qp(party.id);
    }
    party
}

fn joins(party: &Party, group: &sockaddr_in) -> rdma_ud_param {
    let context = 0x1234 as *mut c_void;
    // SAFETY: as the manual says.
    unsafe { assert_eq!(rdma_join_multicast(party.id, at(group), context), 0) };
    let joined = party.expect(RDMA_CM_EVENT_MULTICAST_JOIN);
    let ud = joined.ud();
    assert_eq!(joined.get().status, 0);
    assert_eq!(ud.private_data, context.cast_const());
    assert_eq!((ud.qp_num, ud.qkey), (0x00ff_ffff, RDMA_UDP_QKEY));
    ud
}

#[test]
fn members_of_a_group_hear_each_other_until_they_leave() {
    let group = address("239.255.81.7:0");
    let (first, second) = (member(true), member(false));
    let mut ud = joins(&first, &group);
    // The order does not matter.
    joins(&second, &group);
    make_qp(second.id);
    let letters = Letterbox::of(second.id);
    let own = Letterbox::of(first.id);
    send(first.id, &mut ud, b"to all");
    assert_eq!(letters.take(second.id).0, b"to all");
    nothing_came(first.id);
    letters.open(second.id);
    // SAFETY: as the manual says.
    unsafe {
        assert_eq!(
            rdma_join_multicast(first.id, at(&group), ptr::null_mut()),
            -1
        );
        assert_eq!(errno(), libc::EADDRINUSE);
        assert_eq!(rdma_leave_multicast(second.id, at(&group)), 0);
        assert_eq!(rdma_leave_multicast(second.id, at(&group)), -1);
        assert_eq!(errno(), libc::EADDRNOTAVAIL);
    }
    send(first.id, &mut ud, b"to nobody");
    nothing_came(second.id);
    // SAFETY: the queue pairs go before the memory.
    unsafe {
        rdma_destroy_qp(first.id);
        rdma_destroy_qp(second.id);
    }
    drop((letters, own));
}

#[test]
fn a_queue_pair_of_the_program_s_own_is_told_what_it_needs() {
    let (server, here) = Party::listening(0);
    let client = Party::towards(&here);
    client.ask(b"");
    let asked = server.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    let child = asked.get().id;
    drop(asked);
    // SAFETY: as the manual says.
    unsafe {
        let cq = ibv_create_cq((*child).verbs, 8, ptr::null_mut(), ptr::null_mut(), 0);
        let mut init = ibv_qp_init_attr {
            send_cq: cq,
            recv_cq: cq,
            qp_type: IBV_QPT_UD,
            ..ibv_qp_init_attr::zeroed()
        };
        let qp = ibv_create_qp((*child).pd, &raw mut init);
        assert!(!qp.is_null(), "{}", errno());
        for state in [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS] {
            let mut attr = ibv_qp_attr {
                qp_state: state,
                ..ibv_qp_attr::zeroed()
            };
            let mut mask = 0;
            assert_eq!(rdma_init_qp_attr(child, &raw mut attr, &raw mut mask), 0);
            assert_eq!(ibv_modify_qp(qp, &raw mut attr, mask), 0);
        }
        let mut param = said_by(b"");
        param.qp_num = (*qp).qp_num;
        assert_eq!(rdma_accept(child, &raw mut param), 0);
        let answer = client.expect(RDMA_CM_EVENT_ESTABLISHED);
        assert_eq!(answer.ud().qp_num, (*qp).qp_num);
        assert_eq!(ibv_destroy_qp(qp), 0);
        assert_eq!(ibv_destroy_cq(cq), 0);
        assert_eq!(rdma_destroy_id(child), 0);
    }
}

#[test]
fn who_only_sends_hears_nothing() {
    let group = address("239.255.81.8:0");
    let (sender, hears) = (member(true), member(true));
    let mut attr = rdma_cm_join_mc_attr_ex {
        comp_mask: RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
        join_flags: RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
        addr: at(&group),
    };
    // SAFETY: as the manual says.
    let code = unsafe { rdma_join_multicast_ex(sender.id, &raw mut attr, ptr::null_mut()) };
    assert_eq!(code, 0);
    let mut ud = sender.expect(RDMA_CM_EVENT_MULTICAST_JOIN).ud();
    let mut back = joins(&hears, &group);
    let letters = [Letterbox::of(hears.id), Letterbox::of(sender.id)];
    send(sender.id, &mut ud, b"hear me");
    assert_eq!(letters[0].take(hears.id).0, b"hear me");
    send(hears.id, &mut back, b"nobody hears");
    nothing_came(sender.id);
    // SAFETY: the queue pairs go before the memory.
    unsafe {
        rdma_destroy_qp(sender.id);
        rdma_destroy_qp(hears.id);
    }
}

#[test]
fn groups_that_are_none_are_refused() {
    let (party, group) = (member(true), address("239.255.81.9:0"));
    let unicast = address("127.0.0.1:0");
    let (fresh, streams) = (Party::new(RDMA_PS_UDP), Party::new(RDMA_PS_TCP));
    let mut attr = rdma_cm_join_mc_attr_ex {
        comp_mask: RDMA_CM_JOIN_MC_ATTR_ADDRESS,
        join_flags: 0,
        addr: at(&group),
    };
    let none = ptr::null_mut();
    // SAFETY: as the manual says, but for what is wrong.
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
    party.quiet(Duration::ZERO);
    // A group whose event was not taken goes with it.
    // SAFETY: as the manual says.
    unsafe {
        assert_eq!(rdma_join_multicast(party.id, at(&group), none), 0);
        assert_eq!(rdma_leave_multicast(party.id, at(&group)), 0);
    }
    party.quiet(Duration::ZERO);
}
