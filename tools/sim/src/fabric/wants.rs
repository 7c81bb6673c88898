//! A check at every step of every simulation: what a queue pair tells about having something to send is true.
//! It fails if a queue pair that reported nothing to send sends something, or has a deadline that it did not report.

use verbena_events::event::Outbox;
use verbena_nic::qp::{ConnectionAction, SendDemand};
use verbena_nic::{Acks, MemoryCarrier, Qp};
use verbena_stream::Time;

/// If the queue pair reports nothing to send, transmitting must produce nothing.
pub(super) fn check_wants(qp: &Qp, wants: SendDemand, now: Time, out: &mut Outbox) {
    let acks = match wants {
        SendDemand::Send => return,
        SendDemand::Acks => Acks::Piggyback,
        SendDemand::Nothing => Acks::Now,
    };
    let mut carrier = MemoryCarrier::with_room(1 << 20);
    let tried = qp.try_transmit(&mut carrier, acks, now, out);
    let outlook = tried.map(|(_, outlook)| (outlook.action, outlook.deadline));
    assert_eq!(
        carrier.output,
        [],
        "a queue pair that wants {wants:?} sends"
    );
    assert_eq!(
        outlook,
        Some((ConnectionAction::Open, None)),
        "wants {wants:?}"
    );
}
