//! Both sides agree on what they agreed on, and heard what the other's program said.
//! It promises that a startup succeeds if and only if the terms allow it and nothing broke.
//! It refuses to look at frames.

use super::Verdict;
use crate::work::Report;
use crate::world::Transcript;

/// Judges the startup of both sides.
pub fn check(t: &Transcript) -> Verdict {
    let can = t.can();
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
            continue;
        };
        // A responder has agreed before it learns that the initiator cannot.
        if !can.established && side == 0 {
            return Err(format!("side {side} established what cannot be agreed"));
        }
        if extensions != can.extensions || crc != can.crc {
            return Err(format!(
                "side {side} agreed to extensions {extensions}, crc {crc}"
            ));
        }
        if *private_data != t.session.profiles[1 - side].private_data {
            return Err(format!("side {side} heard other private data"));
        }
    }
    Ok(())
}
