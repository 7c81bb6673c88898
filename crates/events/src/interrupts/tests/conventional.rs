//! Register accesses per interrupt: this driver against a model of a conventional one (E12).

use super::*;

/// An adapter with registers for cause, mask and acknowledgement, and its driver.
#[derive(Debug, Default)]
struct Conventional {
    cause: u32,
    masked: bool,
    waiting: Vec<Cause>,
    accesses: Accesses,
}

impl Conventional {
    /// The adapter has an event; true if it interrupts.
    fn event(&mut self, cause: Cause) -> bool {
        self.waiting.push(cause);
        let quiet = self.cause == 0 && !self.masked;
        self.cause |= 1;
        quiet
    }

    fn read_cause(&mut self) -> u32 {
        self.accesses.reads += 1;
        self.cause
    }

    fn write_mask(&mut self, masked: bool) {
        self.accesses.writes += 1;
        self.masked = masked;
    }

    fn write_acknowledge(&mut self) {
        self.accesses.writes += 1;
        self.cause = 0;
    }

    /// Read the cause, mask, acknowledge, process, unmask.
    fn service(&mut self) -> Vec<Cause> {
        if self.read_cause() == 0 {
            return Vec::new();
        }
        self.write_mask(true);
        self.write_acknowledge();
        let events = core::mem::take(&mut self.waiting);
        self.write_mask(false);
        events
    }
}

#[test]
fn an_interrupt_costs_one_write_and_no_read() {
    const COUNT: u64 = 1000;
    let (interrupts, board) = adapter(
        Arrangement::ProcessorQueuesProcessorVectors,
        Scheme::ByProcessor,
        2,
    );
    let mut conventional = Conventional::default();
    let (start, fired) = (interrupts.accesses(), interrupts.fired());
    let mut interrupted = 0;
    for n in 0..COUNT as u32 {
        raise(&interrupts, completion(n), At::Processor((n % 2) as u16));
        if conventional.event(completion(n)) {
            interrupted += 1;
            assert_eq!(conventional.service(), [completion(n)]);
        }
        let before = interrupts.accesses();
        assert_eq!(
            board.serve(&interrupts).len(),
            1,
            "cause and object in the entry"
        );
        let after = interrupts.accesses();
        assert_eq!(
            (after.reads - before.reads, after.writes - before.writes),
            (0, 1)
        );
    }
    // Spurious ones: the conventional driver must read a register, this one need not.
    for _ in 0..COUNT {
        assert!(conventional.service().is_empty());
        let _ = interrupts.service(Signal::Line, NOW, |_, _| ()).unwrap();
    }
    let ours = interrupts.accesses();
    assert_eq!((interrupts.fired() - fired, interrupted), (COUNT, COUNT));
    assert_eq!((ours.reads, ours.writes - start.writes), (0, COUNT));
    let theirs = conventional.accesses;
    assert_eq!((theirs.reads, theirs.writes), (2 * COUNT, 3 * COUNT));
}

/// A burst also costs one write, however many events it has, up to the budget of a turn.
#[test]
fn a_burst_costs_one_write() {
    let (interrupts, board) = adapter(Arrangement::OneQueueOneVector, Scheme::ByProcessor, 1);
    let before = interrupts.accesses();
    for n in 0..64 {
        raise(&interrupts, completion(n), At::Unspecified);
    }
    assert_eq!(board.serve(&interrupts).len(), 64);
    let after = interrupts.accesses();
    assert_eq!((after.reads, after.writes - before.writes), (0, 1));
    assert_eq!(interrupts.read_register(0), Ok(64), "it could be read (E5)");
    assert_eq!(interrupts.accesses().reads, 1);
}
