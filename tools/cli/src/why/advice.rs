//! From a kind of failure or wait to sentences: where the fault lies, and what to do.
//! Every kind of the adapter has its sentences; one that is not known is shown with its cause alone.

use crate::objects::Object;

/// What is said about a failure or a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Advice {
    /// What happened, where the adapter's sentence does not say it.
    pub(super) cause: Option<String>,
    /// Where the fault lies.
    pub(super) fault: String,
    /// What to do.
    pub(super) remedy: String,
}

fn advice(fault: &str, remedy: impl Into<String>) -> Advice {
    Advice {
        cause: None,
        fault: fault.to_owned(),
        remedy: remedy.into(),
    }
}

fn wait(cause: impl Into<String>, fault: &str, remedy: impl Into<String>) -> Advice {
    Advice {
        cause: Some(cause.into()),
        ..advice(fault, remedy)
    }
}

const PROGRAM: &str = "this program";
const PEER: &str = "the peer";

/// About a failure.
pub(super) fn of_failure(failure: &Object) -> Advice {
    match failure.get("kind").unwrap_or("") {
        "closed-busy" => advice(
            PROGRAM,
            "wait for the completions of all sends before closing",
        ),
        "request" => advice(
            PROGRAM,
            "compare the request with the limits and the state of its queue pair",
        ),
        "registration" => advice(
            PROGRAM,
            "check the key, the pages and the rights that the request registers",
        ),
        "local-memory" => advice(
            PROGRAM,
            "check the lkey, address and length of every element of the request, and that the memory stays registered and mapped until its completion",
        ),
        "cq-overflow" => advice(
            PROGRAM,
            "poll the completion queue more often, or create it with as many entries as requests can be outstanding on all of its queue pairs",
        ),
        "no-receive" => advice(
            PROGRAM,
            "post receives before the peer sends; a peer that is no Verbena cannot be asked to wait (the setting `receive_wait` says how long its message is held)",
        ),
        "access" => of_access(failure),
        "not-enabled" => advice(
            "this program or the peer: they disagree on what the peer may do",
            "enable the operation with `qp_access_flags` of ibv_modify_qp at this side, or do not use it at the peer",
        ),
        "too-long" => advice(
            "this program or the peer: they disagree on the size of messages",
            "post receives that are as large as the largest message of the peer",
        ),
        "protocol" => advice(
            PEER,
            "capture the connection and show it with `verbena decode`; the peer's adapter is at fault",
        ),
        "corrupted" => advice(
            "the network, or a device that changes bytes",
            "look for errors of the network interfaces on the path (`ip -s link`), and for middleboxes",
        ),
        "access-refused" => advice(
            "this program: it named memory that the peer does not let it access so",
            "compare rkey, address and length with what the peer registered and sent; `verbena why` at the peer names the region and its rights",
        ),
        "request-refused" => advice(
            "this program: the peer finds its request invalid",
            "check that the peer enables the operation, has a receive that is large enough, and that atomics are aligned to 8 bytes",
        ),
        "peer-failed" => advice(
            PEER,
            "run `verbena why` at the peer: it could not execute the request",
        ),
        "peer-complained" => advice(
            "this adapter or the network: the peer reports that bytes from here broke the protocol",
            "capture the connection, show it with `verbena decode`, and report it",
        ),
        "rnr-exceeded" => advice(
            "the peer: it had no receive posted for longer than `rnr_retry` allows",
            "post receives at the peer before this side sends, or raise `rnr_retry` (7 waits for ever) or the peer's `min_rnr_timer`",
        ),
        "peer-gone" => advice(
            "the peer: it closed the connection or ended",
            "see why the peer ended: its exit status, the kernel's log, `verbena why` there",
        ),
        "peer-silent" => advice(
            "the peer or the network: nothing has come from it for the whole timeout",
            "check that the peer's machine and process run (`ping`, `verbena why` there), and that no firewall drops packets",
        ),
        "peer-stopped" => advice(
            PEER,
            "see what the peer's process does: it began something and did not go on",
        ),
        "injected" => advice(
            "none: a fault that was set by `verbena faults` for a test",
            "`verbena faults PID --show` names the rules; without them the queue pair would not have failed so",
        ),
        "mismatch" => advice(
            "the programs: they exchanged values that do not fit together",
            "compare key, queue pair type, number and PSN that both programs use",
        ),
        _ => advice("not known", "run `verbena devinfo PID` for all attributes"),
    }
}

/// About an access of the peer that was refused.
fn of_access(failure: &Object) -> Advice {
    const FAULT: &str = "the peer, or this program that gave it the key";
    let has = |key| failure.get(key).is_some();
    if has("needs") && !has("region_rights") {
        return advice(
            FAULT,
            "no valid region has this rkey: compare it with the one that was sent to the peer, in the same byte order, and deregister or invalidate memory only when the peer is done with it",
        );
    }
    if let (Some(region), Some(own)) = (failure.number("region_pd"), failure.number("pd"))
        && region != own
    {
        return advice(
            FAULT,
            format!(
                "the region is in protection domain {region} and the queue pair in {own}: register it in the queue pair's domain"
            ),
        );
    }
    let (Some(needs), Some(rights)) = (failure.get("needs"), failure.get("region_rights")) else {
        return advice(FAULT, "compare the key with what this program registered");
    };
    let missing: Vec<&str> = needs
        .split('+')
        .filter(|right| !rights.split('+').any(|has| has == *right))
        .collect();
    if !missing.is_empty() {
        return advice(
            "this program, if the peer is to have the right; otherwise the peer",
            format!(
                "the region does not grant {}: register it with that right (IBV_ACCESS_REMOTE_…), or use another operation at the peer",
                missing.join("+")
            ),
        );
    }
    advice(
        FAULT,
        "the access is not inside the region: compare address and length with what was registered",
    )
}

/// About a wait. `peer_stopped`: the process at the other end is stopped.
pub(super) fn of_wait(waits: &Object, peer_stopped: Option<u64>) -> Advice {
    let some = |key: &str| waits.number(key).filter(|n| *n > 0);
    match waits.get("for").unwrap_or("") {
        "rnr" => wait(
            "the peer has no receive for the message (receiver not ready)",
            PEER,
            "post receives at the peer",
        ),
        "receive" => wait(
            "a message of the peer has arrived, and no receive is posted",
            PROGRAM,
            "post receives",
        ),
        "responses" => wait(
            "the peer does not take the responses to its reads, and its next request would change their memory",
            PEER,
            "see what the peer's process does",
        ),
        "memory" => wait(
            "a message of the peer needs memory whose registration is not done",
            PROGRAM,
            "see what delays the registration (control queue pair)",
        ),
        "process" => wait(
            "a message is for a shared receive queue of another process of the XRC domain, which has not answered",
            PROGRAM,
            "see what the process that has the queue does",
        ),
        "room" => wait(
            "the peer does not read what this side owes it",
            PEER,
            "see what the peer's process does",
        ),
        "lost-peer" => wait(
            "the peer has closed the connection, and requests wait for its answer for the rest of the grace period",
            PEER,
            "see why the peer ended",
        ),
        "connection" => wait(
            "it is not connected, and requests or receives are posted",
            "not known yet: neither side has finished connecting",
            "check that the other side runs and that both use the same addresses and numbers",
        ),
        "start" => wait(
            "requests are posted and none has begun",
            PROGRAM,
            "a queue pair in Rtr or Sqd does not send: move it to Rts; one in Rts waits for the first message of the peer's adapter",
        ),
        _ if peer_stopped.is_some() => wait(
            format!(
                "the peer does not answer: process {} is stopped",
                peer_stopped.unwrap_or(0)
            ),
            "the peer: a signal (SIGSTOP, SIGTSTP) or a debugger holds it",
            format!("kill -CONT {}", peer_stopped.unwrap_or(0)),
        ),
        _ if waits.get("path") == Some("roce") => wait(
            "the peer does not answer",
            "the peer or the network: packets are repeated until `retry_cnt` is used up",
            "check that the peer's process runs and that UDP port 4791 is not filtered",
        ),
        // Its TCP has room and acknowledges, or its process has not taken what is in shared memory.
        _ if some("untaken").is_some() => wait(
            "the peer does not answer: its process has not taken what was sent",
            "the peer: its program or its threads do not run, or it reads more slowly than this side sends",
            "see what the peer's process does (stopped, in a debugger, out of processor time), and check the network if it is on another machine",
        ),
        _ => wait(
            "the peer does not answer: it has taken the request and not acknowledged it",
            PEER,
            "see what the peer's process does; `verbena why` there says whether it waits for its program",
        ),
    }
}
