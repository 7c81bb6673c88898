//! A check on every receive of every simulated world: what a queue pair says about having something to send is true.
//! It promises to fail if a queue pair that wants nothing sends something, or has a future that it did not speak of.
//! It refuses to judge what is sent.

use verbena_nic::event::Outbox;
use verbena_nic::qp::{Future, Wants};
use verbena_nic::{Acks, Hand, Qp};
use verbena_stream::Time;

/// Whoever is told that there is nothing to send need not try: then trying must come to nothing.
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
