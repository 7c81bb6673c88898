//! Memory that the program allocated is accessed in place, and only while it is registered.
//! Registration of unmapped memory fails, at once or in the background (V5).

use crate::low::{Cq, Data, Flags, Pd, Qp, QpOptions, RemoteAddr, SendOp, SendWr, Wc};
use crate::mr::Mr;
use crate::{Access, Device, Fault, Status};

/// Two connected queue pairs of one domain.
fn connected_qps() -> (Pd, Cq, Qp, Qp) {
    let device = Device::with(crate::Config::default()).unwrap();
    let (pd, cq) = (device.pd().unwrap(), device.cq(64).unwrap());
    let qp = || Qp::new(&pd, &cq, &cq, QpOptions::default()).unwrap();
    let (a, b) = (qp(), qp());
    let listener = device.listen("127.0.0.1:0").unwrap();
    let joining = a.connect(listener.local_addr().unwrap(), b"").unwrap();
    let request = listener.next().wait().unwrap();
    request.accept_on(&b, b"").unwrap().wait().unwrap();
    joining.wait().unwrap();
    (pd, cq, a, b)
}

/// Posts a write and waits for its completion, and for those flushed with it.
fn write(a: &Qp, cq: &Cq, remote: RemoteAddr, data: Data<'_>) -> Status {
    let immediate = None;
    let wr = SendWr {
        id: 1,
        op: SendOp::Write { remote, immediate },
        flags: Flags::SIGNALED,
        data,
    };
    a.post_send(&[wr]).unwrap();
    let mut end = [Wc::default()];
    assert_eq!(cq.wait(&mut end).unwrap(), 1);
    end[0].status
}

#[test]
fn deregistered_memory_is_not_written() {
    let (pd, cq, a, _b) = connected_qps();
    let bytes = Box::leak(vec![0_u8; 4096].into_boxed_slice());
    let (start, len) = (bytes.as_mut_ptr(), bytes.len());
    // SAFETY: leaked, so it stays mapped; it is read only after the registration was dropped.
    let mr = unsafe { Mr::register(&pd, start, len, Access::ALL) }.unwrap();
    let remote = mr.remote().slice(100, 6).unwrap().remote_addr();
    let write = |text: &[u8]| write(&a, &cq, remote, Data::Inline(text));
    assert_eq!(write(b"inline"), Status::Success);
    drop(mr);
    assert_eq!(&bytes[100..106], b"inline");
    assert_eq!(write(b"denied"), Status::RemAccessErr);
    assert_eq!(&bytes[100..106], b"inline", "nothing comes afterwards");
}

#[test]
fn unmapped_memory_is_refused() {
    let pd = Device::with(crate::Config::default())
        .unwrap()
        .pd()
        .unwrap();
    let nowhere = core::ptr::without_provenance_mut(4096);
    // SAFETY: registration fails, since nothing is mapped there; no access takes place.
    let refused = unsafe { Mr::register(&pd, nowhere, 4096, Access::ALL) };
    assert_eq!(refused.unwrap_err().fault(), Fault::Caller);
}

/// V5: work posted before the registration of unmapped memory fails with it, with the error of its side.
#[test]
fn failed_background_registration_fails_pending_work() {
    let nowhere = core::ptr::without_provenance_mut(4096);
    for remote in [false, true] {
        let (pd, cq, a, b) = connected_qps();
        let good = pd.memory(4096, Access::ALL).unwrap();
        // SAFETY: registration fails later, since nothing is mapped there; no access takes place.
        let later = unsafe { Mr::register_async(&pd, nowhere, 4096, Access::ALL) };
        let (bad, registering) = later.unwrap();
        let (bad_piece, good_piece) = (bad.sge(0, 100).unwrap(), good.sge(0, 100).unwrap());
        let (to, piece, expected) = if remote {
            (bad.remote().remote_addr(), good_piece, Status::RemAccessErr)
        } else {
            (good.remote_addr(0).unwrap(), bad_piece, Status::LocProtErr)
        };
        assert_eq!(write(&a, &cq, to, Data::Gather(&[piece])), expected);
        assert_eq!(registering.wait().unwrap_err().fault(), Fault::Caller);
        drop((a, b, bad));
    }
}

#[test]
fn background_registration_can_be_dropped_early() {
    let device = Device::with(crate::Config::default()).unwrap();
    let pd = device.pd().unwrap();
    for _ in 0..50 {
        let mut bytes = vec![0_u8; 1 << 20];
        // SAFETY: the registration is dropped before the vector, which is not accessed meanwhile.
        let later = unsafe { Mr::register_async(&pd, bytes.as_mut_ptr(), 1 << 20, Access::ALL) };
        let (mr, registering) = later.unwrap();
        let (memory, _) = pd.memory_async(1 << 20, Access::ALL).unwrap();
        drop((mr, memory));
        drop(bytes);
        // Either it was registered before the drop, or removed.
        let _ = registering.wait();
    }
    let (last, registering) = pd.memory_async(10, Access::ALL).unwrap();
    registering.wait().unwrap();
    drop((last, pd));
    assert_eq!(
        (device.used().stags, device.used().pds),
        (0, 1),
        "only the hidden domain"
    );
}
