//! Waiting for memory that is reserved and not registered yet (V5): what waits, until when, and how it continues.
//! Only what needs the pending entry waits: a send queue stops at its request, a stream is not read further; everything else
//! continues, and every wait of a peer ends in time. There is no polling: the thread that completes the registration wakes the queue pair.
//!
//! Every access to memory, and the effect of a pending entry on it:
//!
//! | access | effect |
//! | --- | --- |
//! | posting | no lookup |
//! | a request is begun: elements of a Send or Write, the sink of a Read or atomic | the send queue stops ([`waits_for_memory`]) |
//! | bind: the region or the window | the send queue stops (`run_local` in [`super::send`]) |
//! | local or remote invalidate | fails as for a valid region: neither can be invalidated |
//! | framing and sending a request, placing its answer | it was valid when the request began and never is pending again |
//! | a Write's target, a receive's elements, staged or read directly | the stream is held (`block_for_memory` in [`super::place`]) |
//! | the source of a read, the word of an atomic | the stream is held (`admit` in [`super::answer`]) |
//! | framing and sending an answer | it was valid when the request arrived |

use verbena_wire::Stag;

use super::QpInit;
use super::memory::{Right, is_pending};
use super::wqe::{Payload, PeerFeatures, Wqe};
use crate::wr::SendOp;

/// Requests to be woken for this entry; false if it is not pending any more.
pub(super) fn wait_for_entry(init: &QpInit, stag: Stag) -> bool {
    init.tpt.wait(stag, init.number)
}

/// A request needs memory that is pending: the send queue stops until the queue pair is woken.
pub(super) fn waits_for_memory(init: &QpInit, wqe: &Wqe, peer: PeerFeatures) -> bool {
    // A program got its STags from the table, so a table without any pending entry needs no closer look.
    if !init.tpt.has_pending() {
        return false;
    }
    let Payload::Gather(sges) = &wqe.payload else {
        return false;
    };
    let classic = matches!(wqe.op, SendOp::Read { .. }) && !peer.read_v2;
    let sink = wqe.op.has_sink().then(|| Right::of_sink(init, classic));
    // All of them, before anything of the message is sent: in the middle of one nothing else could be sent.
    sges.iter()
        .any(|sge| is_pending(init, sge, sink).is_some_and(|stag| wait_for_entry(init, stag)))
}
