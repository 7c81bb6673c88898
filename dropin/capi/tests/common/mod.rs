//! Helpers for tests of the C API: a device, objects that are destroyed at the end, and two queue pairs connected out of band.
//! Functions that are inline in the headers are called here as the headers do; error numbers are checked by the tests.

#![allow(dead_code, reason = "each file uses its part")]

pub(crate) mod streams;
pub(crate) mod ud_peers;

use core::mem::offset_of;
use core::ptr;
use std::ffi::{CStr, c_int, c_void};
use std::time::{Duration, Instant};

use verbena_capi::abi::*;
use verbena_capi::verbs::*;

/// Longer than any step takes.
pub(crate) const LONG: Duration = Duration::from_secs(20);
/// All access rights.
pub(crate) const ALL: c_int = (IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_MW_BIND) as c_int;
pub(crate) const SIZE: usize = 64 * 1024;

pub(crate) fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Checks that a call returned null and set this `errno`.
#[track_caller]
pub(crate) fn assert_refused<T>(pointer: *mut T, number: c_int, what: &str) {
    assert!(pointer.is_null(), "{what}: was made");
    assert_eq!(errno(), number, "{what}");
}

/// `call!(ibv_destroy_cq(cq))`: one call of the C API, as a C program makes it. What the tests guarantee of the pointers is stated here for all of them.
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: an object that a test passes is null or came from this library and is not destroyed yet; a call that destroys it is its last use.
        // Every other pointer is null, to a local of the test, or to memory that the test keeps until the call returns or the region is deregistered.
        unsafe { $function($($argument),*) }
    }};
}

pub(crate) use call;

/// An open device.
pub(crate) fn open() -> *mut ibv_context {
    // SAFETY: `list` has one device, and is freed after its last use; `context` stays open.
    unsafe {
        let mut count = 0;
        let list = ibv_get_device_list(&raw mut count);
        assert!(!list.is_null() && count == 1);
        let context = ibv_open_device(*list);
        assert!(!context.is_null(), "{}", errno());
        ibv_free_device_list(list);
        context
    }
}

/// The functions that the headers find before a context.
pub(crate) fn verbs_of<'a>(context: *mut ibv_context) -> &'a verbs_context {
    // SAFETY: `context` is open; `abi_compat` says that a `verbs_context` surrounds it, which lives until the device is closed.
    unsafe {
        assert_eq!((*context).abi_compat as usize, usize::MAX);
        let verbs = context
            .byte_sub(offset_of!(verbs_context, context))
            .cast::<verbs_context>();
        assert!((*verbs).sz >= size_of::<verbs_context>());
        &*verbs
    }
}

/// Functions that are inline in the headers: they call the function of the same name in the context of their first argument.
macro_rules! inline_functions {
    ($(fn $name:ident($object:ident: $object_type:ty $(, $argument:ident: $type:ty)*) -> $result:ty;)+) => {$(
        pub(crate) fn $name($object: $object_type $(, $argument: $type)*) -> $result {
            // SAFETY: the test has not destroyed the object, so its context is there, and the library sets this function in every context. The requests
            // that a test passes, and the entries and objects that they name, are valid during the call.
            unsafe { ((*(*$object).context).ops.$name.unwrap())($object $(, $argument)*) }
        }
    )+};
}

inline_functions! {
    fn post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int;
    fn post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int;
    fn post_srq_recv(srq: *mut ibv_srq, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int;
    fn req_notify_cq(cq: *mut ibv_cq, solicited: c_int) -> c_int;
    fn alloc_mw(pd: *mut ibv_pd, kind: u32) -> *mut ibv_mw;
    fn dealloc_mw(mw: *mut ibv_mw) -> c_int;
}

pub(crate) fn poll_cq(cq: *mut ibv_cq, wc: &mut [ibv_wc]) -> c_int {
    // SAFETY: the test has not destroyed `cq`; the library writes at most `wc.len()` entries.
    unsafe { ((*(*cq).context).ops.poll_cq.unwrap())(cq, wc.len() as c_int, wc.as_mut_ptr()) }
}

pub(crate) fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int {
    // SAFETY: the test has destroyed neither `qp` nor `mw` nor the region of `bind`, which is null or a local of the test.
    unsafe { ((*(*mw).context).ops.bind_mw.unwrap())(qp, mw, bind) }
}

/// The key of a window, which binding changes.
pub(crate) fn window_key(mw: *mut ibv_mw) -> u32 {
    // SAFETY: the test has not deallocated `mw`, and binds it on this thread only.
    unsafe { (*mw).rkey }
}

/// The address of the object that an event is about.
pub(crate) fn event_object(event: &ibv_async_event) -> *mut c_void {
    // SAFETY: the events that the tests provoke are about objects: the library has written one of the pointers, which all have the same place.
    unsafe { event.element.qp.cast() }
}

/// The next completion; fails if none comes.
#[track_caller]
pub(crate) fn next_completion(cq: *mut ibv_cq) -> ibv_wc {
    let end = Instant::now() + LONG;
    let mut wc = [ibv_wc::zeroed()];
    loop {
        match poll_cq(cq, &mut wc) {
            0 => assert!(Instant::now() < end, "no completion came"),
            1 => return wc[0],
            n => panic!("poll_cq said {n}"),
        }
        std::thread::yield_now();
    }
}

/// The next completion, which must be of this request and this status.
#[track_caller]
pub(crate) fn expect_completion(cq: *mut ibv_cq, wr_id: u64, status: u32) -> ibv_wc {
    let wc = next_completion(cq);
    // SAFETY: `ibv_wc_status_str` returns a C string in static memory.
    let said = unsafe { CStr::from_ptr(ibv_wc_status_str(wc.status)) };
    assert_eq!((wc.wr_id, wc.status), (wr_id, status), "{said:?}");
    wc
}

/// Checks that the queue is empty and stays so for a short time.
#[track_caller]
pub(crate) fn assert_no_completion(cq: *mut ibv_cq) {
    let end = Instant::now() + Duration::from_millis(50);
    let mut wc = [ibv_wc::zeroed()];
    while Instant::now() < end {
        assert_eq!(poll_cq(cq, &mut wc), 0, "request {}", wc[0].wr_id);
        std::thread::yield_now();
    }
}

/// Parameters of a side.
#[derive(Clone, Copy)]
pub(crate) struct SideParams {
    pub(crate) kind: u32,
    pub(crate) sends: u32,
    pub(crate) receives: u32,
    pub(crate) max_sge: u32,
    pub(crate) inline: u32,
    pub(crate) all_signaled: bool,
    pub(crate) entries: c_int,
    /// A shared receive queue of this size, if not zero.
    pub(crate) shared: u32,
    /// For the functions that build requests.
    pub(crate) operations: u64,
    /// With a channel for its completion queue.
    pub(crate) with_channel: bool,
    pub(crate) rnr_retry: u8,
    /// Access rights of the peer.
    pub(crate) rights: u32,
}

impl Default for SideParams {
    fn default() -> SideParams {
        SideParams {
            kind: IBV_QPT_RC,
            sends: 16,
            receives: 16,
            max_sge: 4,
            inline: 64,
            all_signaled: false,
            entries: 64,
            shared: 0,
            operations: 0,
            with_channel: false,
            rnr_retry: 7,
            rights: IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
        }
    }
}

/// A queue pair with all objects that it needs; destroyed in order at the end.
pub(crate) struct Side {
    pub(crate) context: *mut ibv_context,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) cq: *mut ibv_cq,
    pub(crate) srq: *mut ibv_srq,
    pub(crate) qp: *mut ibv_qp,
    pub(crate) mr: *mut ibv_mr,
    pub(crate) memory: Box<[u8]>,
    pub(crate) params: SideParams,
}

// SAFETY: the pointers are passed to verbs only, which any thread may call.
unsafe impl Send for Side {}

impl Side {
    pub(crate) fn new(wanted: SideParams) -> Side {
        let context = open();
        let pd = call!(ibv_alloc_pd(context));
        assert!(!pd.is_null());
        let channel = if wanted.with_channel {
            call!(ibv_create_comp_channel(context))
        } else {
            ptr::null_mut()
        };
        assert_eq!(channel.is_null(), !wanted.with_channel);
        let cq = call!(ibv_create_cq(
            context,
            wanted.entries,
            ptr::null_mut(),
            channel,
            0
        ));
        assert!(!cq.is_null(), "{}", errno());
        let mut memory = vec![0; SIZE].into_boxed_slice();
        let mr = call!(ibv_reg_mr(pd, memory.as_mut_ptr().cast(), SIZE, ALL));
        assert!(!mr.is_null(), "{}", errno());
        let mut side = Side {
            context,
            pd,
            channel,
            cq,
            srq: ptr::null_mut(),
            qp: ptr::null_mut(),
            mr,
            memory,
            params: wanted,
        };
        if wanted.shared > 0 {
            let mut attr = ibv_srq_init_attr::zeroed();
            attr.attr.max_wr = wanted.shared;
            attr.attr.max_sge = wanted.max_sge;
            side.srq = call!(ibv_create_srq(pd, &raw mut attr));
            assert!(!side.srq.is_null(), "{}", errno());
        }
        side.qp = side.another_qp();
        assert!(!side.qp.is_null(), "{}", errno());
        side
    }

    /// The attributes that its queue pair is created with.
    pub(crate) fn init(&self) -> ibv_qp_init_attr {
        ibv_qp_init_attr {
            qp_context: ptr::null_mut(),
            send_cq: self.cq,
            recv_cq: self.cq,
            srq: self.srq,
            cap: ibv_qp_cap {
                max_send_wr: self.params.sends,
                max_recv_wr: self.params.receives,
                max_send_sge: self.params.max_sge,
                max_recv_sge: self.params.max_sge,
                max_inline_data: self.params.inline,
            },
            qp_type: self.params.kind,
            sq_sig_all: self.params.all_signaled.into(),
        }
    }

    /// The same for the extended call.
    pub(crate) fn init_ex(&self) -> ibv_qp_init_attr_ex {
        let init = self.init();
        ibv_qp_init_attr_ex {
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            srq: init.srq,
            cap: init.cap,
            qp_type: init.qp_type,
            sq_sig_all: init.sq_sig_all,
            comp_mask: IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
            pd: self.pd,
            send_ops_flags: self.params.operations,
            ..ibv_qp_init_attr_ex::zeroed()
        }
    }

    /// One more queue pair like its own.
    pub(crate) fn another_qp(&self) -> *mut ibv_qp {
        if self.params.operations == 0 {
            return call!(ibv_create_qp(self.pd, &mut self.init()));
        }
        let create = verbs_of(self.context).create_qp_ex.unwrap();
        call!(create(self.context, &mut self.init_ex()))
    }

    pub(crate) fn at(&self, offset: usize) -> u64 {
        self.memory.as_ptr() as u64 + offset as u64
    }

    /// A scatter/gather entry of its memory.
    pub(crate) fn sge(&self, offset: usize, length: u32) -> ibv_sge {
        ibv_sge {
            addr: self.at(offset),
            length,
            // SAFETY: `self.mr` is registered until the side is dropped.
            lkey: unsafe { (*self.mr).lkey },
        }
    }

    pub(crate) fn rkey(&self) -> u32 {
        // SAFETY: `self.mr` is registered until the side is dropped; only reregistration changes its keys.
        unsafe { (*self.mr).rkey }
    }

    /// A copy of its memory, read as volatile since the adapter writes it.
    pub(crate) fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        let bytes = &self.memory[offset..offset + len];
        // SAFETY: `b` is a byte of `self.memory`; the adapter writes it, so it is read as volatile.
        bytes
            .iter()
            .map(|b| unsafe { ptr::read_volatile(b) })
            .collect()
    }

    pub(crate) fn fill(&mut self, offset: usize, bytes: &[u8]) {
        self.memory[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// Posts a receive; returns the result of the call.
    pub(crate) fn receive(&self, wr_id: u64, offset: usize, length: u32) -> c_int {
        self.receive_into(wr_id, self.sge(offset, length))
    }

    /// The same with memory of another region.
    pub(crate) fn receive_into(&self, wr_id: u64, mut piece: ibv_sge) -> c_int {
        let mut wr = ibv_recv_wr {
            wr_id,
            next: ptr::null_mut(),
            sg_list: &raw mut piece,
            num_sge: 1,
        };
        let mut bad = ptr::null_mut();
        if self.srq.is_null() {
            post_recv(self.qp, &raw mut wr, &raw mut bad)
        } else {
            post_srq_recv(self.srq, &raw mut wr, &raw mut bad)
        }
    }

    /// Posts a request with one piece, signalled.
    pub(crate) fn send(
        &self,
        wr_id: u64,
        opcode: u32,
        piece: ibv_sge,
        change: impl FnOnce(&mut ibv_send_wr),
    ) -> c_int {
        let mut piece = piece;
        let mut wr = request(wr_id, opcode);
        wr.sg_list = &raw mut piece;
        wr.num_sge = 1;
        change(&mut wr);
        let mut bad = ptr::null_mut();
        let code = post_send(self.qp, &raw mut wr, &raw mut bad);
        assert_eq!(bad.is_null(), code == 0, "the refused request is named");
        code
    }

    pub(crate) fn modify(&self, attr: &mut ibv_qp_attr, mask: u32) -> c_int {
        call!(ibv_modify_qp(self.qp, attr, mask as c_int))
    }

    /// Changes the state and nothing else.
    pub(crate) fn to(&self, state: u32) -> c_int {
        let mut attr = ibv_qp_attr {
            qp_state: state,
            ..ibv_qp_attr::zeroed()
        };
        self.modify(&mut attr, IBV_QP_STATE)
    }

    /// The state, queried from the library; the field of the struct must agree.
    pub(crate) fn state(&self) -> u32 {
        let mut attr = ibv_qp_attr::zeroed();
        let mut init = ibv_qp_init_attr::zeroed();
        let mask = IBV_QP_STATE as c_int;
        let code = call!(ibv_query_qp(self.qp, &raw mut attr, mask, &raw mut init));
        assert_eq!(code, 0);
        // SAFETY: `self.qp` is not destroyed yet, and no other thread moves it now.
        assert_eq!(unsafe { (*self.qp).state }, attr.qp_state);
        attr.qp_state
    }

    pub(crate) fn init_attr(&self) -> (ibv_qp_attr, u32) {
        let attr = ibv_qp_attr {
            qp_state: IBV_QPS_INIT,
            port_num: 1,
            qp_access_flags: self.params.rights,
            ..ibv_qp_attr::zeroed()
        };
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        (attr, mask)
    }

    pub(crate) fn to_init(&self) {
        let (mut attr, mask) = self.init_attr();
        assert_eq!(self.modify(&mut attr, mask), 0);
    }

    pub(crate) fn rtr_attr(&self, peer: u32) -> (ibv_qp_attr, u32) {
        let mut attr = ibv_qp_attr {
            qp_state: IBV_QPS_RTR,
            path_mtu: IBV_MTU_1024,
            rq_psn: 7,
            dest_qp_num: peer,
            max_dest_rd_atomic: 8,
            min_rnr_timer: 1,
            ..ibv_qp_attr::zeroed()
        };
        attr.ah_attr.is_global = 1;
        attr.ah_attr.port_num = 1;
        let code = call!(ibv_query_gid(
            self.context,
            1,
            0,
            &raw mut attr.ah_attr.grh.dgid
        ));
        assert_eq!(code, 0);
        let mut mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
        if self.params.kind == IBV_QPT_RC {
            mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
        }
        (attr, mask)
    }

    pub(crate) fn rts_attr(&self) -> (ibv_qp_attr, u32) {
        let attr = ibv_qp_attr {
            qp_state: IBV_QPS_RTS,
            sq_psn: 7,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: self.params.rnr_retry,
            max_rd_atomic: 8,
            ..ibv_qp_attr::zeroed()
        };
        let mut mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
        if matches!(self.params.kind, IBV_QPT_RC | IBV_QPT_XRC_SEND) {
            mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
        }
        (attr, mask)
    }

    /// Moves the queue pair from RESET to RTS, connected to this one.
    pub(crate) fn connect(&self, peer: u32) {
        self.to_init();
        let (mut attr, mask) = self.rtr_attr(peer);
        assert_eq!(self.modify(&mut attr, mask), 0);
        let (mut attr, mask) = self.rts_attr();
        assert_eq!(self.modify(&mut attr, mask), 0);
    }

    pub(crate) fn number(&self) -> u32 {
        // SAFETY: `self.qp` is not destroyed yet; its number does not change.
        unsafe { (*self.qp).qp_num }
    }

    /// The descriptor of its asynchronous events.
    pub(crate) fn async_fd(&self) -> c_int {
        // SAFETY: `self.context` is open until the side is dropped.
        unsafe { (*self.context).async_fd }
    }

    /// The descriptor of its channel, which it must have.
    pub(crate) fn channel_fd(&self) -> c_int {
        assert!(!self.channel.is_null());
        // SAFETY: `self.channel` is not null, and is destroyed when the side is dropped.
        unsafe { (*self.channel).fd }
    }

    /// The next asynchronous event; fails if none comes.
    #[track_caller]
    pub(crate) fn event(&self) -> ibv_async_event {
        let mut event = ibv_async_event {
            element: ibv_async_event__element { port_num: 0 },
            event_type: u32::MAX,
        };
        assert!(readable(self.async_fd(), LONG), "no event came");
        assert_eq!(call!(ibv_get_async_event(self.context, &raw mut event)), 0);
        event
    }

    /// Destroys the queue pair.
    pub(crate) fn destroy_qp(&mut self) {
        assert_eq!(call!(ibv_destroy_qp(self.qp)), 0);
        self.qp = ptr::null_mut();
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        // SAFETY: the side is the only owner of the objects; each is destroyed once, before those that it uses.
        unsafe {
            if !self.qp.is_null() {
                assert_eq!(ibv_destroy_qp(self.qp), 0, "qp");
            }
            if !self.srq.is_null() {
                assert_eq!(ibv_destroy_srq(self.srq), 0, "srq");
            }
            assert_eq!(ibv_dereg_mr(self.mr), 0, "mr");
            assert_eq!(ibv_destroy_cq(self.cq), 0, "cq");
            if !self.channel.is_null() {
                assert_eq!(ibv_destroy_comp_channel(self.channel), 0, "channel");
            }
            assert_eq!(ibv_dealloc_pd(self.pd), 0, "pd");
            assert_eq!(ibv_close_device(self.context), 0, "context");
        }
    }
}

/// A signalled request without data.
pub(crate) fn request(wr_id: u64, opcode: u32) -> ibv_send_wr {
    ibv_send_wr {
        wr_id,
        opcode,
        send_flags: IBV_SEND_SIGNALED,
        ..ibv_send_wr::zeroed()
    }
}

/// Sets the address and key of the peer's memory.
pub(crate) fn rdma(wr: &mut ibv_send_wr, remote_addr: u64, rkey: u32) {
    wr.wr.rdma = ibv_send_wr__wr__rdma { remote_addr, rkey };
}

/// Two sides that are connected to each other.
pub(crate) fn pair(wanted: SideParams) -> (Side, Side) {
    let (a, b) = (Side::new(wanted), Side::new(wanted));
    join(&a, &b);
    (a, b)
}

pub(crate) fn join(a: &Side, b: &Side) {
    b.connect(a.number());
    a.connect(b.number());
}

/// Whether a descriptor becomes readable within this time.
pub(crate) fn readable(fd: c_int, within: Duration) -> bool {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: `poll` is a local, and the count is one.
    unsafe { libc::poll(&raw mut poll, 1, within.as_millis() as c_int) == 1 }
}

/// Runs `ip` with these words; returns its output.
pub(crate) fn ip(arguments: &str) -> String {
    let ran = std::process::Command::new("ip")
        .args(arguments.split(' '))
        .output();
    let ran = ran.expect("iproute2 is installed");
    assert!(ran.status.success(), "ip {arguments}: {ran:?}");
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

/// Makes a descriptor non-blocking.
pub(crate) fn set_nonblocking(fd: c_int) {
    // SAFETY: `fcntl` with `F_SETFL` takes an integer; the descriptor is open.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        assert_eq!(libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK), 0);
    }
}
