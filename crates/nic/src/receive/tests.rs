//! Tests of receive queues: order, depth, scatter elements.

use verbena_wire::Stag;

use super::*;

#[test]
fn receives_are_fifo_within_limits() {
    let sge = Sge {
        addr: 0,
        len: u32::MAX,
        stag: Stag::new(1),
    };
    let mut queue = ReceiveQueue::new(2, 3);
    fn wr(id: u64, scatter: &[Sge]) -> ReceiveWr<'_> {
        ReceiveWr { id, scatter }
    }
    queue.post(&wr(1, &[])).unwrap();
    let pieces = queue.post(&wr(2, &[sge; 4]));
    assert_eq!(pieces, Err(PostError::TooManySges { got: 4, limit: 3 }));
    queue.post(&wr(3, &[sge; 3])).unwrap();
    assert_eq!(queue.post(&wr(4, &[])), Err(PostError::Full(2)));
    assert_eq!(queue.take().map(|r| (r.id, r.capacity())), Some((1, 0)));
    assert_eq!(
        queue.take().map(|r| (r.id, r.capacity())),
        Some((3, u32::MAX))
    );
    assert_eq!(queue.take(), None);
}
