//! M10: read requests of a peer occupy a queue by their numbers; on a stream they arrive in order, and any other number ends it.

use crate::testing::{Pair, Setup, feed, read, transmit};
use crate::wc::Status;

/// With a standard peer: its numbers are those of RFC 5041 only.
fn pair() -> Pair {
    let pair = Pair::new(Setup {
        extensions: false,
        ..Setup::default()
    });
    for at in 0..4u8 {
        pair.b.memory.write(usize::from(at) * 100, &[at + 1; 100]);
    }
    pair
}

/// The bytes of so many read requests, each by itself, as `a` sends them: the first for the first hundred bytes, and so on.
fn requests(pair: &mut Pair, count: u64) -> Vec<Vec<u8>> {
    let one = |at: u64| {
        let (from, sink) = (at * 100, [pair.a.sge(4000 + at * 100, 100)]);
        pair.a.post(at + 1, read(pair.b.remote(from)), &sink);
        transmit(&pair.a.qp, 4096, pair.now, &mut pair.a.out)
    };
    (0..count).map(one).collect()
}

fn statuses(pair: &mut Pair) -> Vec<Status> {
    pair.run();
    let ends = pair.a.statuses();
    assert!(ends.iter().map(|(id, _)| *id).eq(1..=ends.len() as u64));
    ends.into_iter().map(|(_, status)| status).collect()
}

#[test]
fn queued_reads_are_answered_in_msn_order() {
    let mut pair = pair();
    let all = requests(&mut pair, 4).concat();
    feed(&pair.b.qp, &all, pair.now, &mut pair.b.out);
    assert_eq!(statuses(&mut pair), [Status::Success; 4]);
    for at in 0..4u8 {
        let got = pair.a.memory.read(4000 + usize::from(at) * 100, 100);
        assert_eq!(got, [at + 1; 100]);
    }
}

#[test]
fn unexpected_msn_ends_stream_after_earlier_reads() {
    // The second is missing; the first comes again, before and after others; the last comes first.
    for order in [&[0, 2][..], &[0, 0], &[0, 1, 0], &[0, 1, 1], &[0, 1, 3]] {
        let mut pair = pair();
        let made = requests(&mut pair, 4);
        let bytes: Vec<u8> = order.iter().flat_map(|at| made[*at].clone()).collect();
        feed(&pair.b.qp, &bytes, pair.now, &mut pair.b.out);
        let ends = statuses(&mut pair);
        let good = order.len() - 1;
        assert_eq!(ends[..good], vec![Status::Success; good], "{order:?}");
        assert!(!ends[good..].contains(&Status::Success), "{order:?}");
        let cause = pair.a.qp.cause().unwrap();
        assert!(
            cause.contains("the peer sent Terminate"),
            "{order:?}: {cause}"
        );
        // Nothing was answered out of order.
        let untouched = pair.a.memory.read(4000 + good * 100, (4 - good) * 100);
        assert!(untouched.iter().all(|byte| *byte == 0), "{order:?}");
    }
}
