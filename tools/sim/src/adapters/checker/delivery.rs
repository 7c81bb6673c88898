//! Messages are delivered once and in order: what a queue pair received is a prefix of what its peer sent it.
//! Where success means that the peer has executed a request, the message was delivered; a refused message never was. The statuses of
//! receives are checked in [`super::receives`].

use verbena_nic::{Status, Wc, WcOp};

use super::leftovers;
use super::messages::{Message, messages};
use crate::adapters::record::Record;

pub(super) fn check(record: &Record) -> Result<(), String> {
    for qp in 0..record.qps.len() {
        arrivals(record, qp).map_err(|why| format!("queue pair {qp}: {why}"))?;
    }
    Ok(())
}

fn arrivals(record: &Record, qp: usize) -> Result<(), String> {
    let (receiver, sent) = (&record.qps[qp], messages(record, qp));
    let gaps = !receiver.reliable || receiver.lossy[1];
    let mut next = 0;
    for wc in receiver
        .received
        .iter()
        .filter(|w| w.status == Status::Success)
    {
        let found = sent[next..].iter().position(|m| matches(record, m, wc));
        match found {
            Some(skipped) if skipped == 0 || gaps => next += skipped + 1,
            _ => {
                let awaited = sent.get(next).map(|m| m.op);
                return Err(format!(
                    "receive {} does not hold request {awaited:?}",
                    wc.id
                ));
            }
        }
    }
    if gaps {
        return Ok(());
    }
    for message in &sent[next..] {
        if record.is_certain(message.op) {
            return Err(format!(
                "request {} succeeded and was not delivered",
                message.op
            ));
        }
    }
    for message in &sent[..next] {
        if record.ops[message.op].behind_damage {
            return Err(format!(
                "request {} was delivered from behind damaged bytes",
                message.op
            ));
        }
        let refused = record.final_status(message.op) == Some(Status::RnrRetryExcErr);
        // Over packets the acknowledgement may be lost, and an earlier NAK come late.
        if refused && !two_parts(&sent, message) && !receiver.packets {
            return Err(format!(
                "request {} found no receive and was delivered",
                message.op
            ));
        }
    }
    Ok(())
}

/// The first of two messages of a request may be delivered without the second.
fn two_parts(sent: &[Message<'_>], message: &Message<'_>) -> bool {
    sent.iter().filter(|m| m.op == message.op).count() > 1
}

fn matches(record: &Record, message: &Message<'_>, wc: &Wc) -> bool {
    let immediate = message.immediate.then_some(message.op as u32);
    if wc.immediate != immediate || wc.len as usize != message.len {
        return false;
    }
    let supply = record.supplies[wc.id as usize];
    let held = record.bytes_of(supply.slot);
    // Behind the message the receive is as it was when it was taken.
    let (op, text) = match message.payload {
        None => (WcOp::ReceiveWriteImm, &[][..]),
        Some(payload) => (WcOp::Receive, payload),
    };
    let behind = text.len();
    wc.op == op
        && held.starts_with(text)
        && leftovers::explain(held, behind, &leftovers::of(record, supply.queue))
}
