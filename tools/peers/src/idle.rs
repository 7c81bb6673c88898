//! Wake-ups of idle Verbena connections: voluntary context switches of all threads of the process but the counting one. Counting starts
//! after a pause for startup, and nothing is sent meanwhile.

use std::time::Duration;

use anyhow::Result;
use verbena::low::QpState;

use crate::job::{Figures, Job};
use crate::many_qps::{Side, connect_all};
use crate::usage;

/// The pause after startup, for its timers to expire.
const SETTLE_TIME: Duration = Duration::from_millis(500);

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
        let joining = request.accept_on(&qp, b"")?;
        Ok((qp, joining))
    })?;
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
    let figures = count_wakeups(job)?;
    // The peer may still be counting.
    std::thread::sleep(SETTLE_TIME);
    drop(qps);
    Ok(figures)
}
