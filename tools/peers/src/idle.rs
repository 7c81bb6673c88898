//! Wake-ups of idle Verbena connections: voluntary context switches of all threads of the process but the counting one. Counting starts
//! after a pause for startup, and nothing is sent meanwhile. With shared memory, messages are exchanged before, until both sides use it.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use verbena::Status;
use verbena::low::{Data, Flags, Qp, QpState, RecvWr, SendOp, SendWr, StreamPath, Wc};

use crate::job::{Figures, Job};
use crate::many_qps::{Side, connect_all};
use crate::usage;

/// The pause after startup, for its timers to expire; one is of 500 ms.
const SETTLE_TIME: Duration = Duration::from_secs(1);

/// How long a connection may take to get into shared memory.
const SHARE_LIMIT: Duration = Duration::from_secs(5);
/// The messages before the last one, and that one.
const MORE: &[u8] = b"more";
const LAST: &[u8] = b"last";

/// The numbers of requests.
const SENT: u64 = 0;
const RECEIVED: u64 = 1;

/// Sends a message.
fn send(qp: &Qp, text: &[u8]) -> Result<()> {
    let op = SendOp::Send {
        invalidate: None,
        immediate: None,
    };
    let request = SendWr {
        id: SENT,
        op,
        flags: Flags::SIGNALED,
        data: Data::Inline(text),
    };
    Ok(qp.post_send(&[request])?)
}

/// Posts a receive for one message.
fn post_receive(side: &Side, qp: &Qp) -> Result<()> {
    let scatter = [side.memory.sge(0, MORE.len())?];
    let receive = RecvWr {
        id: RECEIVED,
        scatter: &scatter,
    };
    Ok(qp.post_recv(&[receive])?)
}

/// Waits for a message.
fn await_message(side: &Side) -> Result<[u8; 4]> {
    let mut wcs = [Wc::default(); 1];
    loop {
        side.cq.wait(&mut wcs)?;
        if wcs[0].status != Status::Success {
            bail!("a message ended with {:?}", wcs[0].status);
        }
        if wcs[0].id == RECEIVED {
            break;
        }
    }
    let mut text = [0; 4];
    side.memory.read_at(0, &mut text)?;
    Ok(text)
}

fn is_shared(qp: &Qp) -> Result<bool> {
    Ok(matches!(
        qp.query()?.path,
        Some(StreamPath::SharedMemory(_))
    ))
}

/// The client's side: asks until its direction is in shared memory, and a last time for that of the server.
fn ask_until_shared(side: &Side, qp: &Qp) -> Result<()> {
    let start = Instant::now();
    while !is_shared(qp)? {
        if start.elapsed() > SHARE_LIMIT {
            bail!("the connection does not use shared memory");
        }
        post_receive(side, qp)?;
        send(qp, MORE)?;
        await_message(side)?;
    }
    post_receive(side, qp)?;
    send(qp, LAST)?;
    await_message(side)?;
    Ok(())
}

/// The server's side, whose receive was posted before the connection.
fn answer_until_shared(side: &Side, qp: &Qp) -> Result<()> {
    loop {
        let text = await_message(side)?;
        post_receive(side, qp)?;
        send(qp, &text)?;
        if text == *LAST {
            break;
        }
    }
    if !is_shared(qp)? {
        bail!("the server's direction does not use shared memory");
    }
    Ok(())
}

fn count_wakeups(job: &Job) -> Result<Figures> {
    std::thread::sleep(SETTLE_TIME);
    let before = usage::wakeups()?;
    std::thread::sleep(Duration::from_secs_f64(job.seconds.clamp(0.1, 60.0)));
    Ok(Figures {
        wakeups: usage::wakeups()?.saturating_sub(before),
        seconds: job.seconds,
        ..Figures::default()
    })
}

pub(crate) fn serve(job: &Job) -> Result<Figures> {
    let side = Side::new(job)?;
    let listener = side.device.listen(job.at)?;
    let (qps, _) = connect_all(job.connections, || {
        let (request, qp) = (listener.next().wait()?, side.qp()?);
        post_receive(&side, &qp)?;
        let joining = request.accept_on(&qp, b"")?;
        Ok((qp, joining))
    })?;
    if job.same_host {
        for qp in &qps {
            answer_until_shared(&side, qp)?;
        }
    }
    let figures = count_wakeups(job)?;
    while qps
        .iter()
        .any(|qp| qp.state() == QpState::Rts && !qp.view().peer_disconnected)
    {
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(figures)
}

pub(crate) fn call(job: &Job) -> Result<Figures> {
    let side = Side::new(job)?;
    let (qps, _) = connect_all(job.connections, || {
        let qp = side.qp()?;
        let joining = qp.connect(job.at, b"")?;
        Ok((qp, joining))
    })?;
    if job.same_host {
        for qp in &qps {
            ask_until_shared(&side, qp)?;
        }
    }
    let figures = count_wakeups(job)?;
    // The peer may still be counting.
    std::thread::sleep(SETTLE_TIME);
    drop(qps);
    Ok(figures)
}
