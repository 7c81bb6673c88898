//! V5: the cost of registering a large memory for a program, at once and in the background through the control queue pair.
//! It prints the time until the call returns, the time until the first write that needs the memory has completed, and what
//! another connection of the same adapter did meanwhile. Nothing is asserted; docs/performance.md has the results.

#![allow(missing_docs, reason = "a program, not a library")]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on says why")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use verbena::low::{Cq, Data, Flags, Pd, Qp, QpOptions, SendOp, SendWr, Wc};
use verbena::{Access, Device, Error, Memory, Status};

const BYTES: usize = 1 << 30;
const ROUNDS: usize = 7;
/// Length of the writes on the other connection.
const SMALL: usize = 64;

struct Link {
    qp: Qp,
    cq: Cq,
    target: Memory,
    _peer: Qp,
}

fn link(pd: &Pd, device: &Device) -> Result<Link, Error> {
    let cq = device.cq(64)?;
    let far = device.cq(64)?;
    let (qp, peer) = (
        Qp::new(pd, &cq, &cq, QpOptions::default())?,
        Qp::new(pd, &far, &far, QpOptions::default())?,
    );
    let listener = device.listen("127.0.0.1:0")?;
    let joining = qp.connect(listener.local_addr()?, b"")?;
    listener.next().wait()?.accept_on(&peer, b"")?.wait()?;
    joining.wait()?;
    Ok(Link {
        qp,
        cq,
        target: pd.memory(4096, Access::ALL)?,
        _peer: peer,
    })
}

impl Link {
    /// Writes the first `len` bytes of `from` to the peer, and waits until that has completed.
    fn write(&self, from: &Memory, len: usize) -> Result<(), Error> {
        let remote = self.target.remote_addr(0)?;
        let immediate = None;
        let pieces = [from.sge(0, len)?];
        let wr = SendWr {
            id: 1,
            op: SendOp::Write { remote, immediate },
            flags: Flags::SIGNALED,
            data: Data::Gather(&pieces),
        };
        self.qp.post_send(&[wr])?;
        let mut end = [Wc::default()];
        while self.cq.poll(&mut end) == 0 {
            std::hint::spin_loop();
        }
        assert_eq!(end[0].status, Status::Success);
        Ok(())
    }
}

struct Figures {
    returned: Duration,
    first: Duration,
    others: f64,
}

/// Registers once by `register`, and uses the memory at once.
fn measure(
    link: &Link,
    writes: &AtomicU64,
    register: impl FnOnce() -> Result<Memory, Error>,
) -> Result<Figures, Error> {
    let (before, began) = (writes.load(Ordering::Relaxed), Instant::now());
    let memory = register()?;
    let returned = began.elapsed();
    link.write(&memory, 4096)?;
    let first = began.elapsed();
    let others = (writes.load(Ordering::Relaxed) - before) as f64 / first.as_secs_f64();
    Ok(Figures {
        returned,
        first,
        others,
    })
}

fn report(what: &str, mut figures: Vec<Figures>) {
    figures.sort_by_key(|f| f.first);
    let median = &figures[figures.len() / 2];
    println!(
        "{what:<14} returns after {:>12.3?}, first write done after {:>12.3?}, others {:>8.0} writes/s",
        median.returned, median.first, median.others
    );
}

fn main() -> Result<(), Error> {
    let device = Device::open()?;
    let pd = device.pd()?;
    let (ours, other) = (link(&pd, &device)?, link(&pd, &device)?);
    let small = pd.memory(SMALL, Access::ALL)?;
    let (writes, over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| -> Result<(), Error> {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) && other.write(&small, SMALL).is_ok() {
                writes.fetch_add(1, Ordering::Relaxed);
            }
        });
        let result = rounds(&pd, &ours, &writes);
        over.store(true, Ordering::Relaxed);
        result
    })
}

fn rounds(pd: &Pd, ours: &Link, writes: &AtomicU64) -> Result<(), Error> {
    let (before, began) = (writes.load(Ordering::Relaxed), Instant::now());
    // real time: the length of the measurement.
    std::thread::sleep(Duration::from_secs(1));
    let alone = (writes.load(Ordering::Relaxed) - before) as f64 / began.elapsed().as_secs_f64();
    println!("{BYTES} bytes, median of {ROUNDS}; others undisturbed: {alone:.0} writes/s");
    let (mut at_once, mut later) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        at_once.push(measure(ours, writes, || pd.memory(BYTES, Access::ALL))?);
        later.push(measure(ours, writes, || {
            let (memory, _registering) = pd.memory_async(BYTES, Access::ALL)?;
            Ok(memory)
        })?);
    }
    report("synchronous", at_once);
    report("control queue", later);
    Ok(())
}
