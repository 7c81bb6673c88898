//! Every named arrangement delivers events of every duty from every processor to a driver, by the signal that it names.

use std::collections::BTreeSet;

use super::*;

const PROCESSORS: u16 = 3;

/// Raises one event for each cell, serves each by the signal of the cell, and counts.
fn carries(arrangement: Arrangement) {
    for granted in [u16::MAX, 2] {
        let (interrupts, board) = adapter(arrangement, Scheme::ByProcessor, PROCESSORS);
        interrupts.vectors().grant(granted);
        let mut queues = BTreeSet::new();
        for duty in Duty::ALL {
            for processor in 0..PROCESSORS {
                let cell = arrangement.route(duty, processor, PROCESSORS);
                let number = duty as u32 * 100 + u32::from(processor);
                let origin = Origin::new(At::Processor(processor)).with_duty(duty);
                let raised = interrupts.raise(completion(number), origin, NOW).unwrap();
                assert_eq!(raised.queue, cell.queue);
                queues.insert(cell.queue);
                let (signal, _) = interrupts.vectors().resolve(cell.signal);
                let signals = board.signals();
                assert_eq!(signals, [signal], "{duty:?} on {processor}");
                let mut got = Vec::new();
                let _ = interrupts
                    .service(signal, NOW, |queue, eqe| got.push((queue, eqe.number())))
                    .unwrap();
                assert_eq!(got, [(cell.queue, number)], "{duty:?} on {processor}");
            }
        }
        assert_eq!(queues.len(), usize::from(interrupts.queues()));
        // The same without serving in between: every event is found, however queues and vectors are shared.
        for duty in Duty::ALL {
            for processor in 0..PROCESSORS {
                let origin = Origin::new(At::Processor(processor)).with_duty(duty);
                let _ = interrupts.raise(completion(0), origin, NOW).unwrap();
            }
        }
        let cells = Duty::ALL.len() * usize::from(PROCESSORS);
        assert_eq!(board.serve(&interrupts).len(), cells);
    }
}

macro_rules! carried {
    ($($test:ident $name:ident)+) => {
        $(
            #[test]
            fn $test() {
                carries(Arrangement::$name);
            }
        )+

        #[test]
        fn every_arrangement_is_tested() {
            assert_eq!([$(Arrangement::$name),+], Arrangement::ALL);
        }
    };
}

carried! {
    one_queue_line OneQueueLine
    processor_queues_line ProcessorQueuesLine
    duty_queues_line DutyQueuesLine
    all_queues_line AllQueuesLine
    one_queue_one_vector OneQueueOneVector
    one_queue_processor_vectors OneQueueProcessorVectors
    one_queue_duty_vectors OneQueueDutyVectors
    one_queue_all_vectors OneQueueAllVectors
    processor_queues_one_vector ProcessorQueuesOneVector
    processor_queues_processor_vectors ProcessorQueuesProcessorVectors
    processor_queues_duty_vectors ProcessorQueuesDutyVectors
    processor_queues_all_vectors ProcessorQueuesAllVectors
    several_queues_several_vectors SeveralQueuesSeveralVectors
    all_queues_grouped_vectors AllQueuesGroupedVectors
    duty_queues_one_vector DutyQueuesOneVector
    duty_queues_processor_vectors DutyQueuesProcessorVectors
    duty_queues_duty_vectors DutyQueuesDutyVectors
    duty_queues_all_vectors DutyQueuesAllVectors
    all_queues_one_vector AllQueuesOneVector
    all_queues_processor_vectors AllQueuesProcessorVectors
    all_queues_duty_vectors AllQueuesDutyVectors
    all_queues_all_vectors AllQueuesAllVectors
}
