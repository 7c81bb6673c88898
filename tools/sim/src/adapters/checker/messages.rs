//! The messages that were sent to a queue pair, in the order of its peer's requests, as the receiver sees them.
//! A request with immediate data is two messages where the peer sends the data separately.

use crate::adapters::record::{Kind, Record};

/// A message as the receiver sees it.
#[derive(Debug)]
pub(super) struct Message<'a> {
    pub(super) op: usize,
    /// The bytes in the receive; `None` for immediate data alone.
    pub(super) payload: Option<&'a [u8]>,
    /// Its bytes, with those that a write placed elsewhere.
    pub(super) len: usize,
    pub(super) immediate: bool,
}

/// All messages sent to queue pair `qp`.
pub(super) fn messages(record: &Record, qp: usize) -> Vec<Message<'_>> {
    let mut out = Vec::new();
    let sender = record.qps[qp].peer;
    for (op, entry) in record.ops_of(sender) {
        let alone = |len| Message {
            op,
            payload: None,
            len,
            immediate: true,
        };
        match &entry.kind {
            Kind::Send {
                payload, immediate, ..
            } => {
                // V7: towards a peer without the feature, the immediate data is a separate message.
                let together = record.qps[sender].send_imm;
                out.push(Message {
                    op,
                    payload: Some(payload),
                    len: payload.len(),
                    immediate: *immediate && together,
                });
                if *immediate && !together {
                    out.push(alone(0));
                }
            }
            Kind::Write {
                len,
                immediate: true,
            } => out.push(alone(*len)),
            _ => {}
        }
    }
    out
}
