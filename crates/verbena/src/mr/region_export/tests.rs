//! Memory that moved to another adapter, which stands for another process.
//! STag and addresses stay; the mapping is at another location.

use verbena_mem::Misuse;

use super::*;
use crate::low::{Data, Flags, OnFailure, Qp, QpOptions, Registration, SendOp, SendWr, Sge, Wc};
use crate::{Connection, Status};

const LEN: usize = 64 << 10;

/// Adopts it as another process would; both share the memory, since this is one process.
fn adopt_into(memory: &Memory, to: &Arc<Domain>) -> Result<Memory, Error> {
    let (export, fd) = memory.export_region(0)?;
    Memory::adopt(to, fd.try_clone_to_owned().unwrap(), export)
}

fn connected(from: &Device, to: &Device) -> (Connection, Connection) {
    let listener = to.listen("127.0.0.1:0").unwrap();
    let connecting = from.connect(listener.local_addr().unwrap());
    let theirs = listener.accept().wait().unwrap();
    (connecting.wait().unwrap(), theirs)
}

fn misuse(error: Error) -> Misuse {
    match error {
        Error::Adapter(error) => *error.misuse().unwrap(),
        other => panic!("{other}"),
    }
}

/// The address in requests differs from the location, and every access finds the bytes.
#[test]
fn moved_memory_keeps_stag_and_addresses() {
    let [old, new] = [(), ()].map(|()| Device::open().unwrap());
    let before = old.shared_memory(LEN, Access::ALL).unwrap();
    before.write_at(100, b"left behind").unwrap();
    let handle = before.remote();
    let after = adopt_into(&before, &new.internal_domain).unwrap();
    assert_eq!(after.remote().to_bytes(), handle.to_bytes());
    assert_ne!(
        after.pointer(0) as u64,
        after.0.request_addr(),
        "mapped elsewhere"
    );
    assert_eq!(after.access(), before.access());
    assert_eq!(after.get::<[u8; 11]>(100).unwrap(), *b"left behind");
    after.fetch_add(8, 3).unwrap();
    assert_eq!(before.load(8).unwrap(), 3);

    // The peer uses the handle that the old process gave it, on a connection of the new one.
    let peer = Device::open().unwrap();
    let (client, server) = connected(&peer, &new);
    let bytes = vec![7; 1000];
    client
        .scope(|scope| {
            scope
                .write(&bytes, &handle.slice(4096, 1000).unwrap())
                .wait()
        })
        .unwrap();
    assert_eq!(after.get::<[u8; 1000]>(4096).unwrap(), [7; 1000]);
    assert_eq!(before.get::<[u8; 1000]>(4096).unwrap(), [7; 1000]);
    // Local requests use the same address.
    let theirs = peer.memory(11, Access::ALL).unwrap();
    let piece = after.slice(100, 11).unwrap();
    server.write_from(&piece, &theirs.remote()).wait().unwrap();
    assert_eq!(theirs.get::<[u8; 11]>(0).unwrap(), *b"left behind");
    drop(before);
    drop(old);
    assert_eq!(after.load(8).unwrap(), 3, "the successor's is its own");
}

/// M4: a registration of a part of it refers to its present location.
#[test]
fn tag_registers_moved_memory_at_new_location() {
    let [old, new] = [(), ()].map(|()| Device::open().unwrap());
    let before = old.pd().unwrap().shared_memory(LEN, Access::ALL).unwrap();
    before.write_at(4096, b"here").unwrap();
    let (pd, cq) = (new.pd().unwrap(), new.cq(64).unwrap());
    let after = adopt_into(&before, &pd.0).unwrap();
    // Nothing is mapped at the old address any more: an access there would fault.
    let (at, target) = (
        after.0.request_addr(),
        pd.memory(8192, Access::ALL).unwrap(),
    );
    drop(before);
    drop(old);
    let registration = Registration {
        enabled: true,
        on_failure: OnFailure::Reactive,
    };
    let options = QpOptions::default().registration(registration);
    let [a, b] = [(), ()].map(|()| Qp::new(&pd, &cq, &cq, options).unwrap());
    let listener = new.listen("127.0.0.1:0").unwrap();
    let joining = a.connect(listener.local_addr().unwrap(), b"").unwrap();
    let answer = listener.next().wait().unwrap();
    answer.accept_on(&b, b"").unwrap().wait().unwrap();
    joining.wait().unwrap();

    let mut tags = [(); 2].map(|()| pd.fast_reg_mr(1).unwrap());
    let (run, _) = tags[0].register(&after, 4096, 4, Access::ALL).unwrap();
    let (page, _) = tags[1]
        .register_pages(&[(&after, 4096)], Access::ALL)
        .unwrap();
    for (ticket, at) in [(run, at + 4096), (page, 0)] {
        target.write_at(0, b"gone").unwrap();
        let flags = Flags::SIGNALED;
        let register = SendWr {
            id: 1,
            op: SendOp::Register(ticket),
            flags,
            data: Data::Gather(&[]),
        };
        let op = SendOp::Write {
            remote: target.remote_addr(0).unwrap(),
            immediate: None,
        };
        let stag = ticket.stag();
        let write = SendWr {
            id: 2,
            op,
            flags,
            data: Data::Gather(&[Sge {
                addr: at,
                len: 4,
                stag,
            }]),
        };
        a.post_send(&[register, write]).unwrap();
        let (mut done, mut ends) = (0, [Wc::default(); 2]);
        while done < 2 {
            done += cq.wait(&mut ends[done..]).unwrap();
        }
        assert!(ends.iter().all(|end| end.status == Status::Success));
        assert_eq!(target.get::<[u8; 4]>(0).unwrap(), *b"here");
    }
}

#[test]
fn unmovable_memory_is_refused_with_reason() {
    let [old, new] = [(), ()].map(|()| Device::open().unwrap());
    let pd = old.pd().unwrap();
    let plain = pd.memory(64, Access::ALL).unwrap();
    let why = misuse(plain.export_region(0).unwrap_err());
    assert_eq!(why, Misuse::NotShared(plain.0.stag()));
    let once = pd.one_touch_memory(64, Access::ALL).unwrap();
    assert!(once.export_region(0).is_err());
    let shared = pd.shared_memory(64, Access::ALL).unwrap();
    let after = adopt_into(&shared, &new.internal_domain).unwrap();
    let why = misuse(adopt_into(&shared, &new.internal_domain).unwrap_err());
    assert_eq!(why, Misuse::IndexInUse(shared.0.stag()));
    drop(after);
    assert!(adopt_into(&shared, &new.internal_domain).is_ok());
    let (export, _) = shared.export_region(0).unwrap();
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let refused = Memory::adopt(&new.internal_domain, file.into(), export).unwrap_err();
    assert_eq!(refused.fault(), crate::Fault::Caller);
    let refused = pd.shared_memory(usize::MAX, Access::ALL).unwrap_err();
    assert_eq!(refused.fault(), crate::Fault::Limit);
    assert!(refused.os_error().is_some());
}
