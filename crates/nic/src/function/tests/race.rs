//! Threads that create and destroy the same objects at once: whichever wins, nothing dangles and nothing is left.

use super::*;

/// Runs `a` and `b` at once, many times, each time on a new function with a domain and a completion queue.
fn race<A: Send, B: Send>(
    a: impl Fn(&Function, Pd, u32) -> A + Sync,
    b: impl Fn(&Function, Pd, u32) -> B + Sync,
    check: impl Fn(&Function, Pd, u32, A, B),
) {
    for _ in 0..300 {
        let (function, pd, cq) = function_with_cq();
        let start = std::sync::Barrier::new(2);
        let (first, second) = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                start.wait();
                b(&function, pd, cq)
            });
            start.wait();
            let first = a(&function, pd, cq);
            (first, other.join().unwrap())
        });
        check(&function, pd, cq, first, second);
    }
}

#[test]
fn create_qp_and_destroy_cq_never_both_succeed() {
    race(
        |function, pd, cq| function.create_qp(new_qp(pd, cq)).map(|qp| qp.number()),
        |function, _, cq| function.destroy_cq(cq),
        |function, pd, cq, created, destroyed| {
            assert!(created.is_ok() != destroyed.is_ok());
            if let Ok(number) = created {
                assert_eq!(function.query_cq(cq).unwrap().users, 1);
                function.destroy_qp(number, &mut Outbox::new()).unwrap();
            }
            function.free_pd(pd).unwrap();
        },
    );
}

#[test]
fn registration_and_free_pd_never_both_succeed() {
    race(
        |function, pd, _| function.register_buffer(pd, 64, Access::ALL),
        |function, pd, _| function.free_pd(pd),
        |function, pd, _, registered, freed| {
            assert!(registered.is_ok() != freed.is_ok());
            drop(registered);
            assert_eq!(function.used().stags, 0);
            assert_eq!(function.free_pd(pd).is_ok(), freed.is_err());
        },
    );
}

#[test]
fn one_of_two_concurrent_destroys_succeeds() {
    race(
        |function, pd, cq| {
            let number = function.create_qp(new_qp(pd, cq)).unwrap().number();
            function.destroy_qp(number, &mut Outbox::new()).is_ok()
        },
        |function, _, _| (0..50).any(|_| function.destroy_qp(2, &mut Outbox::new()).is_ok()),
        |function, pd, cq, first, second| {
            assert!(first != second);
            function.destroy_cq(cq).unwrap();
            function.free_pd(pd).unwrap();
            assert_eq!(function.used().qps, 0);
        },
    );
}
