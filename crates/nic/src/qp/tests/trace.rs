//! What an observer is told of requests: each is posted, segmented and ended under one number, whatever becomes of it.

use std::sync::{Arc, Mutex};

use crate::state::QpState;
use crate::testing::{Pair, SEND};
use crate::trace::{self, Observer, TraceEvent};
use crate::wr::Flags;

#[derive(Debug, Default)]
struct Log(Mutex<Vec<TraceEvent>>);

impl Observer for Log {
    fn now(&self) -> u64 {
        1
    }

    fn record(&self, _: u64, event: &TraceEvent) {
        self.0.lock().unwrap().push(*event);
    }
}

/// Observers of other tests are not called: each belongs to its function or queue pair.
struct Active;

impl Active {
    fn begin() -> Active {
        trace::begin();
        Active
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        trace::end();
    }
}

#[test]
fn observer_follows_requests_by_their_numbers() {
    let mut pair = Pair::roce();
    let log = Arc::new(Log::default());
    pair.a.qp.init().observer.set(log.clone());
    // Not traced, but numbered.
    pair.b.receive(0, &[]);
    pair.a.post(9, SEND, &[]);
    pair.run();
    let _active = Active::begin();
    let out = [pair.a.sge(0, 4000)];
    // Short, long, and refused at first for want of a receive; only the last completes with an entry.
    pair.b.receive(1, &[]);
    pair.a.post_flagged(1, SEND, &[], Flags::NONE);
    let sink = [pair.b.sge(0, 4000)];
    pair.b.receive(2, &sink);
    pair.a.post_flagged(2, SEND, &out, Flags::NONE);
    pair.a.post(3, SEND, &[]);
    pair.run();
    pair.b.receive(3, &[]);
    pair.run();
    let qp = pair.a.qp.number();
    let mut out = verbena_events::event::Outbox::new();
    pair.a.qp.modify(QpState::Err, &mut out).unwrap();
    let log = log.0.lock().unwrap();
    let of =
        |which: fn(&TraceEvent) -> Option<u64>| log.iter().filter_map(which).collect::<Vec<_>>();
    let posted = of(|event| match event {
        TraceEvent::PostSend { number, .. } => Some(*number),
        _ => None,
    });
    let ended = of(|event| match event {
        TraceEvent::Ended { number, .. } => Some(*number),
        _ => None,
    });
    let entries = of(|event| match event {
        TraceEvent::Ended {
            id, entry: true, ..
        } => Some(*id),
        _ => None,
    });
    let segmented = of(|event| match event {
        TraceEvent::Segmented { number, .. } => Some(*number),
        _ => None,
    });
    let ends = of(|event| match event {
        TraceEvent::Segmented { end, .. } => Some(*end),
        _ => None,
    });
    assert_eq!(
        (posted, ended, entries),
        (vec![1, 2, 3], vec![1, 2, 3], vec![3])
    );
    assert_eq!(
        segmented,
        [1, 2, 3, 3],
        "the last one was refused and sent again"
    );
    assert!(ends.is_sorted() && ends[1] - ends[0] > 4000, "{ends:?}");
    let state = log.iter().any(|event| {
        matches!(event, TraceEvent::State { qp: of, from: QpState::Rts, to: QpState::Err, .. } if *of == qp)
    });
    assert!(state, "{log:?}");
}
