//! A check at every step of every simulation: what a queue pair tells about having something to send is true.
//! It fails if a queue pair that reported nothing to send sends something, or has a deadline that it did not report.

use verbena_nic::event::Outbox;
use verbena_nic::qp::{Future, Wants};
use verbena_nic::{Acks, Hand, Qp};
use verbena_stream::Time;

/// If the queue pair reports nothing to send, transmitting must produce nothing.
pub(super) fn check_wants(qp: &Qp, wants: Wants, now: Time, out: &mut Outbox) {
    let acks = match wants {
        Wants::Send => return,
        Wants::Acks => Acks::Along,
        Wants::Nothing => Acks::Now,
    };
    let mut hand = Hand::open(1 << 20);
    let tried = qp.try_transmit(&mut hand, acks, now, out);
    let outlook = tried.map(|(_, outlook)| (outlook.future, outlook.deadline));
    assert_eq!(hand.went, [], "a queue pair that wants {wants:?} sends");
    assert_eq!(outlook, Some((Future::Open, None)), "wants {wants:?}");
}
