//! A publisher that sends every item to all subscribers through one shared send queue.
//! Its memory for requests is that of one queue, whatever the number of subscribers; one that stops receiving is failed.

use std::thread;
use std::time::{Duration, Instant};

use verbena::low::{
    Cq, Data, Flags, Limits, Qp, QpOptions, QpState, RecvWr, SendOp, SendWr, Ssq, SsqOptions, Wc,
};
use verbena::{Access, Device, Error, Memory, Status};

const SUBSCRIBERS: usize = 16;
const MESSAGES: u64 = 200;
/// Requests of the shared queue, for all subscribers.
const REQUESTS: usize = 64;
const RECEIVES: usize = 32;
const ITEM: usize = 16;

const SEND: SendOp = SendOp::Send {
    invalidate: None,
    immediate: None,
};

/// Receives until all items have arrived, and checks each; the lazy subscriber stops after a few.
fn subscribe(qp: &Qp, cq: &Cq, memory: &Memory, lazy: bool) -> Result<u64, Error> {
    let mut completions = [Wc::default(); 16];
    let mut next = 0;
    while next < if lazy { RECEIVES as u64 } else { MESSAGES } {
        let n = cq.wait(&mut completions)?;
        for wc in &completions[..n] {
            assert_eq!(wc.status, Status::Success, "subscriber: {wc:?}");
            let item: u64 = memory.get(wc.id as usize * ITEM)?;
            assert_eq!(item, next, "items come in order");
            next += 1;
            if !lazy {
                receive(qp, memory, wc.id)?;
            }
        }
    }
    Ok(next)
}

fn receive(qp: &Qp, memory: &Memory, id: u64) -> Result<(), Error> {
    let scatter = &[memory.sge(id as usize * ITEM, ITEM)?];
    let posted = qp.post_recv(&[RecvWr { id, scatter }]);
    Ok(posted?)
}

/// Sends all items to all channels. Returns how many requests did not reach their subscriber.
fn publish(ssq: &Ssq, sent: &Cq, channels: &[Qp]) -> Result<u64, Error> {
    let total = MESSAGES * channels.len() as u64;
    let (mut posted, mut ended, mut lost) = (0, 0, 0);
    let mut completions = [Wc::default(); 32];
    while ended < total {
        while posted < total && posted - ended < REQUESTS as u64 {
            let (item, at) = (
                posted / channels.len() as u64,
                posted as usize % channels.len(),
            );
            let wr = SendWr {
                id: posted,
                op: SEND,
                flags: Flags::SIGNALED,
                data: Data::Inline(&item.to_ne_bytes()),
            };
            let asked = ssq.post(channels[at].number(), &[wr]);
            asked?;
            posted += 1;
        }
        let n = sent.wait(&mut completions)?;
        for wc in &completions[..n] {
            // One order for the queue, whichever subscriber answered first.
            assert_eq!(wc.id, ended, "completions come in the order of posting");
            ended += 1;
            lost += u64::from(wc.status != Status::Success);
        }
    }
    Ok(lost)
}

fn main() -> Result<(), Error> {
    let (publisher, subscriber) = (Device::open()?, Device::open()?);
    let (pd, sent, unused) = (publisher.pd()?, publisher.cq(256)?, publisher.cq(16)?);
    let options = SsqOptions::default()
        .requests(REQUESTS)
        .stall(Some(Duration::from_millis(500)));
    let ssq = pd.ssq(&sent, options)?;
    let listener = subscriber.listen("127.0.0.1:0")?;
    let few = QpOptions::default().limits(Limits {
        sends: 8,
        ..Limits::default()
    });
    let theirs = subscriber.pd()?;
    let (mut channels, mut listening) = (Vec::new(), Vec::new());
    for at in 0..SUBSCRIBERS {
        let channel = Qp::with_ssq(&ssq, &unused, None, few)?;
        let cq = subscriber.cq(2 * RECEIVES)?;
        let qp = Qp::new(&theirs, &cq, &cq, QpOptions::default())?;
        let memory = theirs.memory(RECEIVES * ITEM, Access::ALL)?;
        qp.modify(QpState::Init)?;
        for id in 0..RECEIVES as u64 {
            receive(&qp, &memory, id)?;
        }
        let joining = channel.connect(listener.local_addr()?, b"")?;
        listener.next().wait()?.accept_on(&qp, b"")?.wait()?;
        joining.wait()?;
        channels.push(channel);
        // One of them stops receiving after a while, without notice.
        let lazy = at == 3;
        listening.push(thread::spawn(move || {
            let items = subscribe(&qp, &cq, &memory, lazy);
            (items, qp)
        }));
    }

    let begin = Instant::now();
    let lost = publish(&ssq, &sent, &channels)?;
    let took = begin.elapsed();
    let mut items = 0;
    for one in listening {
        // Its queue pair is kept until here, so that no subscriber disconnects early.
        let (count, _qp) = one.join().expect("a subscriber failed");
        items += count?;
    }
    assert_eq!(items + lost, MESSAGES * SUBSCRIBERS as u64);
    let counters = ssq.query()?.counters;
    println!("{SUBSCRIBERS} subscribers, {items} items received, {lost} not, in {took:.1?}");
    println!(
        "{} channel detached; all completions in order",
        counters.stalls
    );
    Ok(())
}
