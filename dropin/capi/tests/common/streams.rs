//! Helpers for tests of the connection manager's stream port space: channels, identifiers and events that are destroyed in order.
//! Waiting for an event fails after a time limit, and no event is skipped.

use core::ffi::{CStr, c_int, c_void};
use core::net::SocketAddr;
use core::ptr;
use std::sync::Once;
use std::time::Duration;

use libc::{AF_INET, AF_INET6, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};
use verbena_capi::abi::*;
use verbena_capi::cm::calls::*;
use verbena_capi::verbs::*;

use super::{LONG, call, errno, readable, set_nonblocking};

/// Settings of this program, before anything reads them.
pub(crate) fn settings(all: &[(&str, &str)]) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for (name, value) in all {
            // SAFETY: every test of the program calls this before it does anything else.
            unsafe { std::env::set_var(name, value) };
        }
    });
}

/// An address as a C struct.
pub(crate) struct SockAddr(sockaddr_storage);

impl SockAddr {
    pub(crate) fn of(address: SocketAddr) -> SockAddr {
        // SAFETY: `sockaddr_storage` is integers and arrays of them, for which zeros are valid.
        let mut storage: sockaddr_storage = unsafe { core::mem::zeroed() };
        match address {
            SocketAddr::V4(v4) => {
                // SAFETY: the local `storage` is large enough and aligned for a `sockaddr_in`, and has no other reference.
                let at = unsafe { &mut *(&raw mut storage).cast::<sockaddr_in>() };
                at.sin_family = AF_INET as u16;
                at.sin_port = v4.port().to_be();
                at.sin_addr.s_addr = u32::from(*v4.ip()).to_be();
            }
            SocketAddr::V6(v6) => {
                // SAFETY: the local `storage` is large enough and aligned for a `sockaddr_in6`, and has no other reference.
                let at = unsafe { &mut *(&raw mut storage).cast::<sockaddr_in6>() };
                at.sin6_family = AF_INET6 as u16;
                at.sin6_port = v6.port().to_be();
                at.sin6_addr.s6_addr = v6.ip().octets();
            }
        }
        SockAddr(storage)
    }

    pub(crate) fn at(&mut self) -> *mut sockaddr {
        (&raw mut self.0).cast()
    }
}

/// A channel; its identifiers are destroyed before it.
pub(crate) struct Channel(pub(crate) *mut rdma_event_channel);

impl Channel {
    pub(crate) fn new() -> Channel {
        let channel = rdma_create_event_channel();
        assert!(!channel.is_null());
        Channel(channel)
    }

    pub(crate) fn fd(&self) -> c_int {
        // SAFETY: the channel is destroyed when `self` is dropped; its descriptor does not change.
        unsafe { (*self.0).fd }
    }

    /// The next event; fails if none comes.
    #[track_caller]
    pub(crate) fn next(&self) -> Event {
        assert!(readable(self.fd(), LONG), "no event came");
        let mut event = ptr::null_mut();
        let code = call!(rdma_get_cm_event(self.0, &raw mut event));
        assert_eq!(code, 0, "{}", errno());
        Event(event)
    }

    /// The next event, if one is there now.
    pub(crate) fn try_next(&self) -> Option<Event> {
        set_nonblocking(self.fd());
        let mut event = ptr::null_mut();
        let code = call!(rdma_get_cm_event(self.0, &raw mut event));
        (code == 0).then(|| Event(event))
    }

    /// The next event, which must be this one.
    #[track_caller]
    pub(crate) fn expect(&self, kind: u32) -> Event {
        let event = self.next();
        let status = event.get().status;
        assert_eq!(event.name(), event_name(kind), "status {status}");
        event
    }

    #[track_caller]
    pub(crate) fn expect_no_event(&self, time: Duration) {
        if readable(self.fd(), time) {
            panic!("it was told of {:?}", self.next().name());
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            call!(rdma_destroy_event_channel(self.0));
        }
    }
}

fn event_name(event: u32) -> &'static CStr {
    // SAFETY: `rdma_event_str` returns a C string in static memory.
    unsafe { CStr::from_ptr(rdma_event_str(event)) }
}

/// An event, acknowledged when it is dropped.
pub(crate) struct Event(pub(crate) *mut rdma_cm_event);

// SAFETY: any thread may read and acknowledge an event; `self` is its only owner.
unsafe impl Send for Event {}

impl Event {
    pub(crate) fn get(&self) -> &rdma_cm_event {
        // SAFETY: the event is acknowledged when `self` is dropped, and exists until then.
        unsafe { &*self.0 }
    }

    pub(crate) fn name(&self) -> &'static CStr {
        event_name(self.get().event)
    }

    pub(crate) fn conn(&self) -> rdma_conn_param {
        // SAFETY: both members of the union are integers and pointers; the test asks for this one at events of streams, or for the private data that both have.
        unsafe { self.get().param.conn }
    }

    pub(crate) fn ud(&self) -> rdma_ud_param {
        // SAFETY: both members of the union are integers and pointers; the test asks for this one at events of datagrams.
        unsafe { self.get().param.ud }
    }

    /// The peer's private data; datagram services have it at the same offset.
    pub(crate) fn private_data(&self) -> Vec<u8> {
        let conn = self.conn();
        if conn.private_data.is_null() {
            return Vec::new();
        }
        let (at, len) = (conn.private_data.cast::<u8>(), conn.private_data_len);
        // SAFETY: `at` points to `len` bytes of the event, which exists until `self` is dropped.
        unsafe { core::slice::from_raw_parts(at, len.into()) }.to_vec()
    }

    /// The identifier of a connection request.
    pub(crate) fn id(&self) -> Id {
        Id(self.get().id)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let code = call!(rdma_ack_cm_event(self.0));
        assert!(code == 0 || std::thread::panicking());
    }
}

/// An identifier, destroyed with its queue pair.
pub(crate) struct Id(pub(crate) *mut rdma_cm_id);

// SAFETY: any thread may make calls about an identifier.
unsafe impl Send for Id {}

impl Id {
    pub(crate) fn new(channel: &Channel) -> Id {
        let mut id = ptr::null_mut();
        let context = 7 as *mut c_void;
        let code = call!(rdma_create_id(channel.0, &raw mut id, context, RDMA_PS_TCP));
        assert_eq!(code, 0, "{}", errno());
        Id(id)
    }

    /// Listens at an address; returns the port.
    #[track_caller]
    pub(crate) fn listen(&self, at: &str, backlog: c_int) -> u16 {
        let mut here = SockAddr::of(at.parse().unwrap());
        assert_eq!(call!(rdma_bind_addr(self.0, here.at())), 0, "{}", errno());
        assert_eq!(call!(rdma_listen(self.0, backlog)), 0, "{}", errno());
        self.port()
    }

    pub(crate) fn port(&self) -> u16 {
        u16::from_be(call!(rdma_get_src_port(self.0)))
    }

    /// Resolves the route to a peer, and creates a queue pair.
    #[track_caller]
    pub(crate) fn resolve(&self, channel: &Channel, to: SocketAddr) {
        let mut there = SockAddr::of(to);
        let code = call!(rdma_resolve_addr(self.0, ptr::null_mut(), there.at(), 1000));
        assert_eq!(code, 0, "{}", errno());
        channel.expect(RDMA_CM_EVENT_ADDR_RESOLVED);
        assert_eq!(call!(rdma_resolve_route(self.0, 1000)), 0, "{}", errno());
        channel.expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
    }

    #[track_caller]
    pub(crate) fn make_qp(&self) {
        let mut init = init();
        let code = call!(rdma_create_qp(self.0, ptr::null_mut(), &raw mut init));
        assert_eq!(code, 0, "{}", errno());
    }

    pub(crate) fn destroy_qp(&self) {
        call!(rdma_destroy_qp(self.0));
    }

    pub(crate) fn connect(&self, said: &[u8]) -> c_int {
        let mut param = conn_param(said);
        call!(rdma_connect(self.0, &raw mut param))
    }

    pub(crate) fn accept(&self, said: &[u8]) -> c_int {
        let mut param = conn_param(said);
        call!(rdma_accept(self.0, &raw mut param))
    }

    pub(crate) fn reject(&self, said: &[u8]) -> c_int {
        call!(rdma_reject(self.0, said.as_ptr().cast(), said.len() as u8))
    }

    pub(crate) fn disconnect(&self) -> c_int {
        call!(rdma_disconnect(self.0))
    }

    /// The channel that its events go to.
    pub(crate) fn channel(&self) -> *mut rdma_event_channel {
        // SAFETY: the identifier is destroyed when `self` is dropped; only migrating it changes the field.
        unsafe { (*self.0).channel }
    }

    pub(crate) fn is(&self, event: &Event) -> bool {
        self.0 == event.get().id
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        call!(rdma_destroy_qp(self.0));
        assert_eq!(call!(rdma_destroy_id(self.0)), 0);
    }
}

/// A small queue pair.
pub(crate) fn init() -> ibv_qp_init_attr {
    ibv_qp_init_attr {
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
        qp_type: IBV_QPT_RC,
        sq_sig_all: 1,
    }
}

pub(crate) fn conn_param(said: &[u8]) -> rdma_conn_param {
    rdma_conn_param {
        private_data: said.as_ptr().cast(),
        private_data_len: said.len() as u8,
        responder_resources: 4,
        initiator_depth: 4,
        retry_count: 7,
        rnr_retry_count: 7,
        ..rdma_conn_param::zeroed()
    }
}

/// A server at loopback with its channel.
pub(crate) struct Server {
    pub(crate) id: Id,
    pub(crate) channel: Channel,
    pub(crate) at: SocketAddr,
}

impl Server {
    #[track_caller]
    pub(crate) fn new(backlog: c_int) -> Server {
        Server::at("127.0.0.1:0", backlog)
    }

    #[track_caller]
    pub(crate) fn at(at: &str, backlog: c_int) -> Server {
        let channel = Channel::new();
        let id = Id::new(&channel);
        let port = id.listen(at, backlog);
        assert_ne!(port, 0);
        let mut at: SocketAddr = at.parse().unwrap();
        at.set_port(port);
        Server { id, channel, at }
    }

    /// Accepts the next request.
    #[track_caller]
    pub(crate) fn accept_next(&self, said: &[u8]) -> Id {
        let asked = self.channel.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
        let child = asked.id();
        child.make_qp();
        assert_eq!(child.accept(said), 0, "{}", errno());
        drop(asked);
        assert!(child.is(&self.channel.expect(RDMA_CM_EVENT_ESTABLISHED)));
        child
    }
}

/// A client with its channel.
pub(crate) struct Client {
    pub(crate) id: Id,
    pub(crate) channel: Channel,
}

impl Client {
    /// One with a resolved route and a queue pair.
    #[track_caller]
    pub(crate) fn resolved_to(to: SocketAddr) -> Client {
        let channel = Channel::new();
        let id = Id::new(&channel);
        id.resolve(&channel, to);
        id.make_qp();
        Client { id, channel }
    }
}

/// Two that are connected to each other.
#[track_caller]
pub(crate) fn connected(server: &Server) -> (Client, Id) {
    let client = Client::resolved_to(server.at);
    assert_eq!(client.id.connect(b""), 0, "{}", errno());
    let child = server.accept_next(b"");
    assert!(
        client
            .id
            .is(&client.channel.expect(RDMA_CM_EVENT_ESTABLISHED))
    );
    (client, child)
}

/// Sends a few bytes from one to the other.
#[track_caller]
pub(crate) fn check_transfer(from: *mut ibv_qp, to: *mut ibv_qp) {
    // SAFETY: the test destroys `from` and `to` later, and so their domains and queues; `bytes` is kept until its region is deregistered, and `text` is sent inline.
    unsafe {
        let mut bytes = Box::new([0_u8; 64]);
        let mr = ibv_reg_mr((*to).pd, bytes.as_mut_ptr().cast(), 64, super::ALL);
        assert!(!mr.is_null());
        let mut sge = ibv_sge {
            addr: bytes.as_ptr() as u64,
            length: 64,
            lkey: (*mr).lkey,
        };
        let mut wr = ibv_recv_wr {
            sg_list: &raw mut sge,
            num_sge: 1,
            ..ibv_recv_wr::zeroed()
        };
        let mut bad = ptr::null_mut();
        assert_eq!(super::post_recv(to, &raw mut wr, &raw mut bad), 0);
        let text = *b"good day";
        let mut sge = ibv_sge {
            addr: text.as_ptr() as u64,
            length: text.len() as u32,
            lkey: 0,
        };
        let mut wr = super::request(1, IBV_WR_SEND);
        wr.sg_list = &raw mut sge;
        wr.num_sge = 1;
        wr.send_flags |= IBV_SEND_INLINE;
        let mut bad = ptr::null_mut();
        assert_eq!(super::post_send(from, &raw mut wr, &raw mut bad), 0);
        assert_eq!(super::next_completion((*to).recv_cq).status, IBV_WC_SUCCESS);
        assert_eq!(
            super::next_completion((*from).send_cq).status,
            IBV_WC_SUCCESS
        );
        assert_eq!(ptr::read_volatile(bytes.as_ptr().cast::<[u8; 8]>()), text);
        assert_eq!(ibv_dereg_mr(mr), 0);
    }
}

/// The number of descriptors of this process.
pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[allow(unused_imports, reason = "each test program uses a part of it")]
pub(crate) use verbena_testing::wait_until as wait;

/// Serializes tests that count descriptors.
pub(crate) fn exclusive() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
