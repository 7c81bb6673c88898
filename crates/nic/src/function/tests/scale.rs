//! Ten thousand queue pairs and a hundred thousand regions on one function: all can be created, found and destroyed.
//! Their cost is measured by `benches/instructions.rs` and `benches/memory.rs`.

use super::*;

const QPS: u32 = 10_000;
const REGIONS: usize = 100_000;

#[test]
fn function_holds_10000_qps_and_100000_regions() {
    let shares = Shares::default();
    let function = Function::new(
        (0, Services::IMPLEMENTED),
        shares,
        1..1 + shares.stags,
        Policy::Verbs,
        3,
    );
    let out = &mut Outbox::new();
    let pd = function.allocate_pd().unwrap();
    let cq = function.create_cq(100).unwrap().number();
    let numbers: Vec<u32> = (0..QPS)
        .map(|_| function.create_qp(new_qp(pd, cq)).unwrap().number())
        .collect();
    let original = function.register_buffer(pd, 64, Access::ALL).unwrap();
    let at = verbena_wire::To::new(0);
    let stags: Vec<Stag> = (0..REGIONS)
        .map(|_| {
            function
                .register_shared(original.stag(), at, pd, Access::LOCAL_READ)
                .unwrap()
        })
        .collect();
    assert_eq!(users(function.destroy_cq(cq).unwrap_err()), QPS);
    let all = QPS + REGIONS as u32 + 1;
    assert_eq!(users(function.free_pd(pd).unwrap_err()), all);
    for number in &numbers {
        function.modify_qp(*number, QpState::Init, out).unwrap();
        assert_eq!(
            function.query_qp(*number).unwrap().view.state,
            QpState::Init
        );
    }
    for number in numbers.iter().rev() {
        function.destroy_qp(*number, out).unwrap();
    }
    for stag in stags {
        function.deregister(stag).unwrap();
    }
    drop(original);
    function.destroy_cq(cq).unwrap();
    function.free_pd(pd).unwrap();
    let none = function.used();
    assert_eq!((none.qps, none.cqs, none.pds, none.stags), (0, 0, 0, 0));
}
