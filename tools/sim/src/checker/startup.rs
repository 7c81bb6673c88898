//! Both sides have the same agreement, and the private data of the other.
//! A startup succeeds if and only if the terms allow it and there was no fault. Frames are not checked here.

use verbena_stream::Outcome;
use verbena_stream::startup::Failure;
use verbena_wire::mpa::startup::Revision;

use super::Verdict;
use crate::work::Report;
use crate::world::Transcript;

/// Checks the startup of both sides.
pub fn check(t: &Transcript) -> Verdict {
    let can = t.abilities();
    for side in 0..2 {
        let found = t.reports[side].iter().find_map(|r| match r {
            Report::Established {
                extensions,
                crc,
                private_data,
            } => Some((*extensions, *crc, private_data)),
            _ => None,
        });
        let Some((extensions, crc, private_data)) = found else {
            if can.established && !t.reset {
                return Err(format!("side {side} never established"));
            }
            if side == 0 && !t.reset {
                declined(t)?;
            }
            continue;
        };
        // A responder has agreed before it learns that the initiator does not.
        if !can.established && side == 0 {
            return Err(format!("side {side} established what cannot be agreed"));
        }
        if extensions != can.extensions || crc != can.crc {
            return Err(format!(
                "side {side} agreed to extensions {extensions}, crc {crc}"
            ));
        }
        if *private_data != t.session.profiles[1 - side].private_data {
            return Err(format!("side {side} received other private data"));
        }
    }
    Ok(())
}

/// An initiator without a stream reports why, and whether an older revision may help (RFC 6581 §6).
fn declined(t: &Transcript) -> Verdict {
    let [us, them] = &t.session.profiles;
    let got = t.reports[0].iter().find_map(|r| match r {
        Report::NotEstablished(outcome) => Some(outcome),
        _ => None,
    });
    let retry = (us.terms.revision == Revision::Two).then_some(Revision::One);
    let expected = if t.session.times_out() {
        let reason = Failure::Timeout;
        Outcome::Failed { reason, retry }
    } else if retry.is_some() && them.rfc5044_only {
        let reason = Failure::Closed;
        Outcome::Failed { reason, retry }
    } else if them.rejects {
        let private_data = them.private_data.clone();
        Outcome::Rejected { private_data }
    } else {
        let (reason, retry) = (Failure::NoCommonRtr, None);
        Outcome::Failed { reason, retry }
    };
    if got == Some(&expected) {
        Ok(())
    } else {
        Err(format!("the initiator reports {got:?}, not {expected:?}"))
    }
}
