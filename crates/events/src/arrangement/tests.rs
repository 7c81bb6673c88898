//! Tests of arrangements as tables; that events are delivered through each is tested with `interrupts`.

use std::collections::BTreeSet;

use super::*;

const PROCESSORS: u16 = 3;

/// Queues and vectors that the map actually uses.
fn used(arrangement: Arrangement) -> (usize, usize) {
    let (mut queues, mut vectors) = (BTreeSet::new(), BTreeSet::new());
    for duty in Duty::ALL {
        for processor in 0..PROCESSORS {
            let route = arrangement.route(duty, processor, PROCESSORS);
            queues.insert(route.queue);
            if let Signal::Vector(vector) = route.signal {
                vectors.insert(vector);
            }
        }
    }
    (queues.len(), vectors.len())
}

/// Name, queues, vectors, for three processors and six duties.
#[test]
fn table_matches_snapshot() {
    let mut out = String::new();
    for arrangement in Arrangement::ALL {
        let (queues, vectors) = used(*arrangement);
        assert_eq!(queues, usize::from(arrangement.queues(PROCESSORS)));
        assert_eq!(vectors, usize::from(arrangement.vectors(PROCESSORS)));
        out += &format!(
            "{:<32} {queues:>2} {vectors:>2}\n",
            format!("{arrangement:?}")
        );
    }
    insta::assert_snapshot!(out);
}

/// E7 holds in every arrangement without an exception: management is row 0, and processor 0 the default.
#[test]
fn management_has_queue_zero_everywhere() {
    for arrangement in Arrangement::ALL {
        let route = arrangement.route(Duty::Management, 0, PROCESSORS);
        assert_eq!(route.queue, 0, "{arrangement:?}");
    }
}

/// Sharing as in docs/events.md, for one of each kind.
#[test]
fn routes_match_arrangement_names() {
    use Arrangement as A;
    let at = |a: A, duty, p| a.route(duty, p, PROCESSORS);
    let vector = |n| Signal::Vector(n);
    assert_eq!(
        at(A::OneQueueProcessorVectors, Duty::Mac, 2),
        Route {
            queue: 0,
            signal: vector(2)
        }
    );
    assert_eq!(
        at(A::ProcessorQueuesDutyVectors, Duty::Tcp, 1),
        Route {
            queue: 1,
            signal: vector(2)
        }
    );
    assert_eq!(
        at(A::AllQueuesGroupedVectors, Duty::RdmaRx, 2),
        Route {
            queue: 17,
            signal: vector(4)
        }
    );
    assert_eq!(
        at(A::AllQueuesLine, Duty::RdmaTx, 0),
        Route {
            queue: 12,
            signal: Signal::Line
        }
    );
    let several = A::SeveralQueuesSeveralVectors;
    let on_one: Vec<Route> = Duty::ALL.iter().map(|d| at(several, *d, 1)).collect();
    let queues: Vec<u16> = on_one.iter().map(|r| r.queue).collect();
    assert_eq!(queues, [2, 3, 2, 3, 2, 3]);
    let vectors: Vec<Signal> = on_one.iter().map(|r| r.signal).collect();
    assert_eq!(vectors, [3, 4, 5, 3, 4, 5].map(vector));
}

#[test]
fn flat_map_covers_every_queue() {
    for arrangement in Arrangement::ALL {
        let flat = arrangement.flat(PROCESSORS).unwrap();
        let line = arrangement.vectors(PROCESSORS) == 0;
        for queue in 0..flat.queues() {
            assert_eq!(flat.signal(queue).unwrap() == Signal::Line, line);
        }
    }
}
