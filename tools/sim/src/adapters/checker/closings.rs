//! Graceful close of the iWARP personality: with nothing outstanding both sides become idle without an event of failure;
//! with sends outstanding the closing side fails at once. Every close by a program is checked. The outcome of a close during traffic of
//! the peer is not checked.

use verbena_nic::QpState;

use crate::adapters::record::{Closing, Record};

pub(super) fn check(record: &Record) -> Result<(), String> {
    for closing in &record.closings {
        one(closing).map_err(|why| format!("queue pair {} closed: {why}", closing.qp))?;
    }
    Ok(())
}

fn one(closing: &Closing) -> Result<(), String> {
    let first = if closing.outstanding > 0 {
        QpState::Err
    } else {
        QpState::Closing
    };
    if closing.state_after != first {
        let (outstanding, then) = (closing.outstanding, closing.state_after);
        return Err(format!(
            "with {outstanding} sends outstanding it is {then:?}"
        ));
    }
    if !closing.idle {
        return Ok(());
    }
    if closing.final_states != [QpState::Init; 2] {
        return Err(format!(
            "idle sides are {:?} afterwards",
            closing.final_states
        ));
    }
    if closing.failure_events > 0 {
        return Err(format!("{} events of failure", closing.failure_events));
    }
    Ok(())
}
