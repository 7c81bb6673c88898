//! Registered memory as peers reach it over real connections: the remote-access policy (M7), regions that share memory (M5), and page
//! lists (M3). A peer's access that is refused ends its connection, so that each refused access has a connection of its own.

use verbena::low::{Cq, Data, Pd, PdOptions, Qp, QpOptions, SendOp};
use verbena::mr::{PageSize, RemoteAccess, WindowType};
use verbena::{Access, Device, Error, RemoteMemory, Status};

use crate::common::low::{complete, connect_qps, wr};
use crate::common::{device, pattern};

const WRITE: Access = Access::REMOTE_WRITE;

/// A peer and a queue pair in a domain under test, connected to each other.
struct Link {
    peer: Qp,
    peer_cq: Cq,
    peer_pd: Pd,
    own: Qp,
    own_cq: Cq,
}

impl Link {
    fn new(device: &Device, pd: &Pd) -> Link {
        let verbs = Some(RemoteAccess::Verbs);
        let options = PdOptions::default().remote_access(verbs);
        let peer_pd = device.pd_with(options).unwrap();
        let (peer_cq, own_cq) = (device.cq(64).unwrap(), device.cq(64).unwrap());
        let peer = Qp::new(&peer_pd, &peer_cq, &peer_cq, QpOptions::default()).unwrap();
        let own = Qp::new(pd, &own_cq, &own_cq, QpOptions::default()).unwrap();
        connect_qps(&device.listen("127.0.0.1:0").unwrap(), &peer, &own);
        Link {
            peer,
            peer_cq,
            peer_pd,
            own,
            own_cq,
        }
    }

    /// The peer writes to the beginning of what the handle names.
    fn write(&self, to: &RemoteMemory, bytes: &[u8]) -> Status {
        let op = SendOp::Write {
            remote: to.remote_addr(),
            immediate: None,
        };
        let memory = self.peer_pd.memory(bytes.len(), Access::ALL).unwrap();
        memory.write_at(0, bytes).unwrap();
        let list = [memory.sge(0, bytes.len()).unwrap()];
        let data = Data::Gather(&list);
        self.peer.post_send(&[wr(1, op, data)]).unwrap();
        complete(&self.peer_cq, 1)[0].status
    }

    /// The peer reads what the handle names.
    fn read(&self, from: &RemoteMemory) -> (Status, Vec<u8>) {
        let op = SendOp::Read {
            remote: from.remote_addr(),
            local_invalidate: None,
        };
        let len = from.len() as usize;
        let memory = self.peer_pd.memory(len, Access::ALL).unwrap();
        let list = [memory.sge(0, len).unwrap()];
        let data = Data::Gather(&list);
        self.peer.post_send(&[wr(2, op, data)]).unwrap();
        let status = complete(&self.peer_cq, 1)[0].status;
        let mut bytes = vec![0; len];
        memory.read_at(0, &mut bytes).unwrap();
        (status, bytes)
    }

    /// The owner of the domain executes a request.
    fn run(&self, op: SendOp) -> Status {
        let list = [wr(3, op, Data::Gather(&[]))];
        self.own.post_send(&list).unwrap();
        complete(&self.own_cq, 1)[0].status
    }
}

/// What a peer gets for a region's own key and for a window's in this domain.
fn by_region_and_window(device: &Device, pd: &Pd) -> (Status, Status) {
    let memory = pd.memory(4096, Access::ALL).unwrap();
    let link = Link::new(device, pd);
    let mut window = pd.window(WindowType::One).unwrap();
    let (op, handle) = window.bind(&memory, 0, 8, WRITE).unwrap();
    assert_eq!(link.run(op), Status::Success);
    let by_window = link.write(&handle, b"window");
    assert_eq!(memory.get::<[u8; 6]>(0).unwrap(), *b"window");
    let by_region = link.write(&memory.remote(), b"region");
    let expected: &[u8; 6] = match by_region {
        Status::Success => b"region",
        _ => b"window",
    };
    assert_eq!(memory.get::<[u8; 6]>(0).unwrap(), *expected);
    (by_region, by_window)
}

#[test]
fn remote_access_setting_restricts_peers_to_windows() {
    for (setting, by_region) in [
        ("verbs", Status::Success),
        ("windows", Status::RemAccessErr),
    ] {
        let device = device(&[("remote_access", setting)]);
        let pd = device.pd().unwrap();
        let got = by_region_and_window(&device, &pd);
        assert_eq!(got, (by_region, Status::Success), "{setting}");
    }
}

#[test]
fn remote_access_of_domain_overrides_setting() {
    for setting in ["verbs", "windows"] {
        let device = device(&[("remote_access", setting)]);
        for (remote_access, by_region) in [
            (RemoteAccess::Verbs, Status::Success),
            (RemoteAccess::WindowsOnly, Status::RemAccessErr),
        ] {
            let options = PdOptions::default().remote_access(Some(remote_access));
            let pd = device.pd_with(options).unwrap();
            assert_eq!(pd.remote_access(), remote_access);
            let got = by_region_and_window(&device, &pd);
            assert_eq!(got, (by_region, Status::Success), "{setting}");
        }
    }
}

#[test]
fn reused_domain_number_has_default_policy() {
    let device = device(&[]);
    let options = PdOptions::default().remote_access(Some(RemoteAccess::WindowsOnly));
    let restricted: Vec<Pd> = (0..64).map(|_| device.pd_with(options).unwrap()).collect();
    drop(restricted);
    let all: Vec<Pd> = (0..256).map(|_| device.pd().unwrap()).collect();
    let default = |pd: &Pd| pd.remote_access() == RemoteAccess::Verbs;
    assert!(all.iter().all(default));
}

#[test]
fn unknown_remote_access_is_an_error() {
    let mut config = verbena::Config::default();
    let error = config.set("remote_access", "regions").unwrap_err();
    assert!(error.to_string().contains("verbs or windows"), "{error}");
}

#[test]
fn shared_regions_have_own_rights_and_lifetimes() {
    let device = device(&[]);
    let (owner, reader) = (device.pd().unwrap(), device.pd().unwrap());
    let memory = owner.memory(4096, Access::LOCAL_WRITE | WRITE).unwrap();
    let view = memory.share(&reader, Access::REMOTE_READ).unwrap();
    let (writes, reads) = (Link::new(&device, &owner), Link::new(&device, &reader));
    // Each key works in its own domain with its own rights.
    assert_eq!(writes.write(&memory.remote(), b"shared"), Status::Success);
    let (status, bytes) = reads.read(&view.remote());
    assert_eq!((status, &bytes[..6]), (Status::Success, &b"shared"[..]));
    let denied = reads.write(&view.remote(), b"denied");
    assert_eq!(denied, Status::RemAccessErr);
    let denied = Link::new(&device, &owner).read(&memory.remote()).0;
    assert_eq!(denied, Status::RemAccessErr);
    let foreign = Link::new(&device, &owner).read(&view.remote()).0;
    assert_eq!(foreign, Status::RemAccessErr);
    // The second registration and its bytes outlive the first.
    let gone = memory.remote();
    drop(memory);
    let late = Link::new(&device, &owner).write(&gone, b"late");
    assert_eq!(late, Status::RemAccessErr);
    let (status, bytes) = Link::new(&device, &reader).read(&view.remote());
    assert_eq!((status, &bytes[..6]), (Status::Success, &b"shared"[..]));
}

#[test]
fn dropped_share_leaves_its_original_valid() {
    let device = device(&[]);
    let pd = device.pd().unwrap();
    for len in [4096, 1 << 20] {
        let memory = pd.memory(len, Access::ALL).unwrap();
        let used = device.used().stags;
        let view = memory.share(&pd, Access::REMOTE_READ).unwrap();
        let again = view.share(&pd, Access::ALL).unwrap();
        assert_eq!(device.used().stags, used + 2);
        drop((view, again));
        assert_eq!(device.used().stags, used);
        let link = Link::new(&device, &pd);
        assert_eq!(link.write(&memory.remote(), b"still here"), Status::Success);
        assert_eq!(memory.get::<[u8; 10]>(0).unwrap(), *b"still here");
    }
}

#[test]
fn invalid_shares_are_refused() {
    let (one, other) = (device(&[]), device(&[]));
    let (pd, foreign) = (one.pd().unwrap(), other.pd().unwrap());
    let memory = pd.memory(4096, Access::ALL).unwrap();
    let used = one.used().stags;
    let refused = memory.share(&foreign, Access::ALL);
    assert!(matches!(refused, Err(Error::Foreign)), "{refused:?}");
    // Remote write without local write.
    assert!(memory.share(&pd, WRITE).is_err());
    assert_eq!(one.used().stags, used);
}

#[test]
fn peer_writes_across_scattered_pages() {
    for size in PageSize::ALL {
        let device = device(&[]);
        let pd = device.pd().unwrap();
        let page = size.bytes() as usize;
        // Three pages out of order in two memories; the kernel allocates only those that are written.
        let (first, second) = (
            pd.memory(2 * page, Access::LOCAL_WRITE).unwrap(),
            pd.memory(page, Access::LOCAL_WRITE).unwrap(),
        );
        let pages = [(&first, page), (&second, 0), (&first, 0)];
        let (skipped, len) = (1000, 2 * page + 500);
        let rights = Access::LOCAL_WRITE | WRITE | Access::REMOTE_READ;
        let mr = pd.register_pages(size, &pages, skipped, len, rights);
        let mr = mr.unwrap();
        let link = Link::new(&device, &pd);
        // 100 bytes around each of both boundaries.
        for (at, (left, left_at), (right, right_at)) in [
            (page - skipped - 50, (&first, 2 * page - 50), (&second, 0)),
            (2 * page - skipped - 50, (&second, page - 50), (&first, 0)),
        ] {
            let bytes = pattern(100, at as u8);
            let to = mr.remote().slice(at as u64, 100).unwrap();
            assert_eq!(link.write(&to, &bytes), Status::Success, "{size:?}");
            let (mut head, mut tail) = ([0; 50], [0; 50]);
            left.read_at(left_at, &mut head).unwrap();
            right.read_at(right_at, &mut tail).unwrap();
            assert_eq!([head, tail].concat(), bytes, "{size:?}");
            assert_eq!(link.read(&to), (Status::Success, bytes), "{size:?}");
        }
        // The registration keeps the memory, and ends at its length.
        let end = mr.remote().slice(len as u64 - 4, 4).unwrap();
        drop((first, second));
        assert_eq!(link.write(&end, b"last"), Status::Success);
        assert_eq!(link.read(&end), (Status::Success, b"last".to_vec()));
        assert_eq!(link.write(&end, b"beyond"), Status::RemAccessErr);
    }
}

#[test]
fn page_list_of_second_order_reaches_all_pages() {
    let device = device(&[]);
    let pd = device.pd().unwrap();
    let (page, count) = (4096, 1300);
    let memory = pd.memory(page * count, Access::LOCAL_WRITE).unwrap();
    let pages: Vec<_> = (0..count).rev().map(|at| (&memory, at * page)).collect();
    let rights = Access::LOCAL_WRITE | WRITE;
    let mr = pd.register_pages(PageSize::K4, &pages, 0, page * count, rights);
    let bytes = pattern(page * count, 7);
    let link = Link::new(&device, &pd);
    assert_eq!(link.write(&mr.unwrap().remote(), &bytes), Status::Success);
    for (at, expected) in bytes.chunks(page).rev().enumerate() {
        let mut got = vec![0; page];
        memory.read_at(at * page, &mut got).unwrap();
        assert_eq!(got, expected, "page {at}");
    }
}

#[test]
fn invalid_page_lists_are_refused() {
    let device = device(&[]);
    let (pd, other) = (device.pd().unwrap(), device.pd().unwrap());
    let memory = pd.memory(8192, Access::LOCAL_WRITE).unwrap();
    let used = device.used().stags;
    let register = |pd: &Pd, size, pages: &[_], first, len| {
        let result = pd.register_pages(size, pages, first, len, Access::LOCAL_READ);
        result.map(drop).unwrap_err()
    };
    let refused = register(&pd, PageSize::K4, &[(&memory, 100)], 0, 64);
    assert!(matches!(refused, Error::Unaligned { .. }), "{refused}");
    let refused = register(&pd, PageSize::K8, &[(&memory, 4096)], 0, 64);
    assert!(matches!(refused, Error::OutOfBounds { .. }), "{refused}");
    let refused = register(&other, PageSize::K4, &[(&memory, 0)], 0, 64);
    assert!(matches!(refused, Error::Foreign), "{refused}");
    // Beyond the last page, and a first byte outside the first page.
    register(&pd, PageSize::K4, &[(&memory, 0)], 1, 4096);
    register(&pd, PageSize::K4, &[(&memory, 0), (&memory, 4096)], 4096, 1);
    register(&pd, PageSize::K4, &[], 0, 1);
    assert_eq!(device.used().stags, used);
}
