//! Foreign memory is reached where it is, and only as long as it is registered.

use crate::low::{BLANK, Data, Flags, SendOp, SendWr};
use crate::{Access, Device, Mr, Qp, QpOptions, Status};

#[test]
fn a_write_lands_there_until_the_registration_is_gone() {
    let device = Device::with(crate::Config::default()).unwrap();
    let (pd, cq) = (device.pd().unwrap(), device.cq(64).unwrap());
    let qp = || Qp::new(&pd, &cq, &cq, QpOptions::default()).unwrap();
    let (a, b) = (qp(), qp());
    let listener = device.listen("127.0.0.1:0").unwrap();
    let joining = a.connect(listener.local().unwrap(), b"").unwrap();
    let request = listener.next().wait().unwrap();
    request.accept_on(&b, b"").unwrap().wait().unwrap();
    joining.wait().unwrap();

    let bytes = Box::leak(vec![0_u8; 4096].into_boxed_slice());
    let (start, len) = (bytes.as_mut_ptr(), bytes.len());
    // SAFETY: leaked, so it lives for ever; it is looked at only when the registration is gone.
    let mr = unsafe { Mr::register(&pd, start, len, Access::ALL) }.unwrap();
    let remote = mr.remote().slice(100, 6).unwrap().place();
    let write = |text: &[u8]| {
        let immediate = None;
        let wr = SendWr {
            id: 1,
            op: SendOp::Write { remote, immediate },
            flags: Flags::SIGNALED,
            data: Data::Inline(text),
        };
        a.post_send(&[wr]).unwrap();
        let mut end = [BLANK];
        assert_eq!(cq.wait(&mut end).unwrap(), 1);
        end[0].status
    };
    assert_eq!(write(b"inline"), Status::Success);
    drop(mr);
    assert_eq!(&bytes[100..106], b"inline");
    assert_eq!(write(b"nobody"), Status::RemAccessErr);
    assert_eq!(&bytes[100..106], b"inline", "nothing comes afterwards");
}

#[test]
fn what_is_not_mapped_is_refused() {
    let pd = Device::with(crate::Config::default())
        .unwrap()
        .pd()
        .unwrap();
    let nowhere = core::ptr::without_provenance_mut(4096);
    // SAFETY: refused, since nothing is mapped there; that is what is tested.
    let refused = unsafe { Mr::register(&pd, nowhere, 4096, Access::ALL) };
    assert_eq!(refused.unwrap_err().fault(), crate::Fault::Caller);
}
