//! Many Verbena connections at once: the memory of each on either side, and the throughput of all. Memory is measured when all are
//! connected, throughput after a warm-up of two messages per connection, with messages posted on them in turn. If the descriptor limit is
//! too low for all connections, the measurement fails with that limit.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use verbena::low::{
    Cq, Data, Flags, Limits, Pd, Qp, QpConnecting, QpOptions, QpState, SendOp, SendWr, Wc,
};
use verbena::{Access, Device, Memory, RemoteMemory, Status};

use crate::job::{Figures, Job};
use crate::rdma::device;
use crate::usage;

/// Connections in startup at once; a listener's backlog is 128.
const WINDOW: usize = 100;

/// The objects of one side that exist before the first connection.
pub(crate) struct Side {
    pub(crate) device: Device,
    pd: Pd,
    pub(crate) cq: Cq,
    pub(crate) memory: Memory,
    /// Requests of one queue pair: completions are not in turn, so that one queue pair may have all of them.
    depth: usize,
}

impl Side {
    pub(crate) fn new(job: &Job) -> Result<Side> {
        usage::allow_connections(job.connections)?;
        let device = device(job)?;
        let (pd, cq) = (device.pd()?, device.cq(4096)?);
        let memory = pd.memory(job.size.max(64) as usize, Access::ALL)?;
        Ok(Side {
            device,
            pd,
            cq,
            memory,
            depth: job.depth as usize,
        })
    }

    pub(crate) fn qp(&self) -> Result<Qp> {
        let options = QpOptions::default().limits(Limits {
            sends: self.depth.max(16),
            receives: 16,
            ..Limits::default()
        });
        let qp = Qp::new(&self.pd, &self.cq, &self.cq, options)?;
        qp.modify(QpState::Init)?;
        Ok(qp)
    }
}

/// Starts connections one after the other, with up to `WINDOW` in startup at once.
pub(crate) fn connect_all(
    count: usize,
    mut start: impl FnMut() -> Result<(Qp, QpConnecting)>,
) -> Result<(Vec<Qp>, Vec<u8>)> {
    let (mut qps, mut under, mut said) = (Vec::with_capacity(count), VecDeque::new(), Vec::new());
    for _ in 0..count {
        if under.len() >= WINDOW
            && let Some(first) = under.pop_front()
        {
            said = QpConnecting::wait(first)?;
        }
        let (qp, joining) = start()?;
        qps.push(qp);
        under.push_back(joining);
    }
    for joining in under {
        said = joining.wait()?;
    }
    Ok((qps, said))
}

fn memory_growth(before: u64) -> Result<u64> {
    Ok(usage::resident()?.saturating_sub(before))
}

pub(crate) fn serve(job: &Job) -> Result<Figures> {
    let side = Side::new(job)?;
    let listener = side.device.listen(job.at)?;
    let words = side.memory.remote().to_bytes();
    let (before, cpu) = (usage::resident()?, usage::cpu());
    let (qps, _) = connect_all(job.connections, || {
        let (request, qp) = (listener.next().wait()?, side.qp()?);
        let joining = request.accept_on(&qp, &words)?;
        Ok((qp, joining))
    })?;
    let grown = memory_growth(before)?;
    let last = qps.last().context("no connections were requested")?;
    while last.view().state == QpState::Rts && !last.view().peer_disconnected {
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(Figures {
        grown,
        cpu: usage::cpu() - cpu,
        ..Figures::default()
    })
}

pub(crate) fn call(job: &Job) -> Result<Figures> {
    let side = Side::new(job)?;
    let (before, cpu) = (usage::resident()?, usage::cpu());
    let (qps, said) = connect_all(job.connections, || {
        let qp = side.qp()?;
        let joining = qp.connect(job.at, b"")?;
        Ok((qp, joining))
    })?;
    let grown = memory_growth(before)?;
    let remote = RemoteMemory::from_bytes(&said)
        .context("the server's private data has no memory handle")?;
    let figures = write_in_turn(job, &side, &qps, &remote)?;
    Ok(Figures {
        grown,
        cpu: usage::cpu() - cpu,
        ..figures
    })
}

/// Writes on the connections in turn, with a limit on the writes in flight on all of them together.
fn write_in_turn(job: &Job, side: &Side, qps: &[Qp], remote: &RemoteMemory) -> Result<Figures> {
    let source = [side.memory.sge(0, job.size as usize)?];
    let (mut turn, mut under, mut going) = (0, 0_usize, true);
    let depth = job.inflight();
    let (mut wcs, mut meter) = ([Wc::default(); 64], job.meter_for_connections());
    while going || under > 0 {
        while going && under < depth {
            let wr = SendWr {
                id: turn as u64,
                op: SendOp::Write {
                    remote: remote.remote_addr(),
                    immediate: None,
                },
                flags: Flags::SIGNALED,
                data: Data::Gather(&source),
            };
            let posted = qps[turn % qps.len()].post_send(&[wr]);
            posted?;
            turn += 1;
            under += 1;
        }
        let n = side.cq.poll(&mut wcs);
        if let Some(bad) = wcs[..n].iter().find(|wc| wc.status != Status::Success) {
            bail!("a write completed with {:?}", bad.status);
        }
        under -= n;
        if n > 0 {
            going &= meter.record(n as u64);
        }
    }
    Ok(meter.figures().into())
}
