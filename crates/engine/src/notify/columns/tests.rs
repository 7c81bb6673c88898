//! Tests of the columns: what handlers own and share in the arrangements.

use super::*;
use verbena_events::arrangement::Arrangement;
use verbena_events::interrupts::Scheme;
use verbena_events::vector::{Delivery, Fire, Shutdown};

struct NoSignals;

impl Fire for NoSignals {
    fn fire(&self, _: Signal, _: Delivery) {}
    fn overflow(&self, _: u16) {}
    fn shutdown(&self, _: Shutdown) {}
}

fn columns(arrangement: Arrangement, scheme: Scheme, count: u16, granted: u16) -> Columns {
    let interrupts = Interrupts::new(arrangement, scheme, count, Box::new(NoSignals)).unwrap();
    interrupts.vectors().grant(granted);
    Columns::new(&interrupts).unwrap()
}

#[test]
fn handlers_own_vectors_by_default() {
    let usual = Arrangement::ProcessorQueuesProcessorVectors;
    let all = columns(usual, Scheme::ByProcessor, 40, u16::MAX);
    for column in 3..40 {
        let own = Column {
            queue: column,
            own_queue: true,
            own_vector: Some(column),
        };
        assert_eq!(all.get(column), own);
        assert_eq!(all.handler_of_vector(column), Some(HandlerId(column - 3)));
    }
    assert_eq!(all.handler_of_vector(2), None);
    // The flat map names 32 vectors: columns that are 32 apart share one.
    let flat = columns(usual, Scheme::ByQueue, 40, u16::MAX);
    assert_eq!(flat.get(7).own_vector, None);
    assert_eq!(flat.get(39).own_vector, None);
    assert_eq!(flat.get(8).own_vector, Some(8));
    assert!(flat.get(39).own_queue);
}

#[test]
fn shared_queues_and_vectors_are_not_owned() {
    use Arrangement::*;
    for (arrangement, own_queue, own_vector) in [
        (OneQueueProcessorVectors, false, false),
        (DutyQueuesAllVectors, false, false),
        (ProcessorQueuesOneVector, true, false),
        (ProcessorQueuesLine, true, false),
        (AllQueuesAllVectors, true, true),
    ] {
        let column = columns(arrangement, Scheme::ByProcessor, 5, u16::MAX).get(4);
        let owned = (column.own_queue, column.own_vector.is_some());
        assert_eq!(owned, (own_queue, own_vector), "{arrangement:?}");
    }
    let few = columns(ProcessorQueuesProcessorVectors, Scheme::ByProcessor, 5, 2);
    assert_eq!(few.get(4).own_vector, None);
}
