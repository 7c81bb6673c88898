//! What messages that did not arrive whole left behind in receives: of queue pairs that were reset, in those of a shared queue, and of
//! unreliable connections over packets, in those of the same connection.
//! Such a receive is used again with the beginning of a message in it, and the next one overwrites only as much as
//! it is long. Every byte is of a message that was under way then, or fresh.

use verbena_nic::Status;

use super::messages::messages;
use crate::adapters::record::{FRESH, QpEnd, Queue, Record};

/// The messages of which a part may be left in receives of `queue`.
pub(super) fn of(record: &Record, queue: Queue) -> Vec<&[u8]> {
    let mut left = Vec::new();
    for (at, qp) in record.qps.iter().enumerate() {
        let takes = match queue {
            Queue::Own(owner) => owner == at,
            Queue::Shared(srq) => qp.srq == Some(srq),
        };
        if takes && qp.packets && !qp.reliable {
            let sent = messages(record, at).into_iter();
            left.extend(sent.filter_map(|message| message.payload));
            continue;
        }
        // With the iWARP personality it was failed first, which flushed the receive it was filling. Receives of its own are not used again.
        let returned = qp.ended == Some(QpEnd::Reset) && qp.roce;
        if !takes || matches!(queue, Queue::Own(_)) || !returned {
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
