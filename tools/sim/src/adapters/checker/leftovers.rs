//! What queue pairs that were reset left behind in receives of a shared queue.
//! Such a receive is returned with the beginning of a message in it, and the next queue pair overwrites only as much as
//! its own message is long. Every byte is of a message that was under way then, or fresh.

use verbena_nic::Status;

use super::messages::messages;
use crate::adapters::record::{FRESH, QpEnd, Queue, Record};

/// The messages of which a part may be left in receives of `queue`; receives of a queue pair's own queue are not reused.
pub(super) fn of(record: &Record, queue: Queue) -> Vec<&[u8]> {
    let Queue::Shared(srq) = queue else {
        return Vec::new();
    };
    let mut left = Vec::new();
    for (at, qp) in record.qps.iter().enumerate() {
        // With the iWARP personality it was failed first, which flushed the receive it was filling.
        if qp.srq != Some(srq) || qp.ended != Some(QpEnd::Reset) || !qp.roce {
            continue;
        }
        let whole = qp.received.iter().filter(|w| w.status == Status::Success);
        // It was filling the message after those received whole; where messages may be lost or their completions are, a later one.
        let gaps = !qp.reliable || qp.lossy[1];
        let under_way = if gaps { usize::MAX } else { 1 };
        let sent = messages(record, at).into_iter();
        let sent = sent.skip(whole.count()).take(under_way);
        left.extend(sent.filter_map(|message| message.payload));
    }
    left
}

/// Whether from `at` on `held` consists of what is `left` and then only of fresh bytes. Each part begins where a later message ended,
/// which overwrote its beginning.
pub(super) fn explain(held: &[u8], mut at: usize, left: &[&[u8]]) -> bool {
    while held[at..].iter().any(|b| *b != FRESH) {
        let longest = left.iter().map(|payload| common(held, payload, at)).max();
        match longest {
            Some(len) if len > 0 => at += len,
            _ => return false,
        }
    }
    true
}

/// How many bytes are the same from `at` on.
pub(super) fn common(held: &[u8], payload: &[u8], at: usize) -> usize {
    let payload = payload.get(at..).unwrap_or_default();
    let pairs = held[at..].iter().zip(payload);
    pairs.take_while(|(a, b)| a == b).count()
}
