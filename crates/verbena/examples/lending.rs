//! A client that grants a server write access to one buffer per request: registered and sent in one work request, valid for one answer.
//! No call registers or deregisters the buffer: the write that fills it also invalidates the registration (one-touch).

use verbena::low::{
    Cq, Data, Flags, OnFailure, Pd, Qp, QpOptions, QpState, RecvWr, Registration, SendOp, SendWr,
    Wc,
};
use verbena::{Access, Device, Error, Memory, RemoteMemory, Status};

const QUESTIONS: usize = 1000;
const ANSWER: usize = 4096;

/// One side of the connection, with separate queues for send and receive completions.
struct Side {
    qp: Qp,
    sent: Cq,
    received: Cq,
}

impl Side {
    fn new(device: &Device, pd: &Pd, options: QpOptions) -> Result<Side, Error> {
        let (sent, received) = (device.cq(64)?, device.cq(64)?);
        let qp = Qp::new(pd, &sent, &received, options)?;
        // The first message may arrive with the connection, so its receive is posted before.
        qp.modify(QpState::Init)?;
        Ok(Side { qp, sent, received })
    }
}

/// The next completion.
fn next(cq: &Cq) -> Result<Wc, Error> {
    let mut end = [Wc::default()];
    while cq.wait(&mut end)? == 0 {}
    Ok(end[0])
}

fn post(qp: &Qp, op: SendOp, data: Data<'_>) -> Result<(), Error> {
    let (id, flags) = (1, Flags::SIGNALED);
    let wr = SendWr {
        id,
        op,
        flags,
        data,
    };
    Ok(qp.post_send(&[wr])?)
}

/// Answers requests: each carries a handle, to which the answer is written. Then it writes to a handle a second time, which fails.
fn serve(side: &Side, memory: &Memory) -> Result<Status, Error> {
    let mut lent = None;
    for request in 0..QUESTIONS {
        next(&side.received)?;
        let handle = RemoteMemory::from_bytes(&memory.get::<[u8; RemoteMemory::BYTES]>(0)?)?;
        receive(&side.qp, memory)?;
        memory.write_at(64, &[request as u8; ANSWER])?;
        let op = SendOp::Write {
            remote: handle.remote_addr(),
            immediate: Some(request as u32),
        };
        post(&side.qp, op, Data::Gather(&[memory.sge(64, ANSWER)?]))?;
        next(&side.sent)?;
        lent = Some(handle);
    }
    let op = SendOp::Write {
        remote: lent.map_or(memory.remote_addr(0)?, |handle| handle.remote_addr()),
        immediate: None,
    };
    post(&side.qp, op, Data::Gather(&[memory.sge(64, ANSWER)?]))?;
    Ok(next(&side.sent)?.status)
}

fn receive(qp: &Qp, memory: &Memory) -> Result<(), Error> {
    let scatter = &[memory.sge(0, RemoteMemory::BYTES)?][..];
    let posted = qp.post_recv(&[RecvWr { id: 0, scatter }]);
    Ok(posted?)
}

fn main() -> Result<(), Error> {
    let device = Device::open()?;
    let (pd, other) = (device.pd()?, device.pd()?);
    let registration = Registration {
        enabled: true,
        on_failure: OnFailure::Anticipatory,
    };
    let options = QpOptions::default().registration(registration);
    let client = Side::new(&device, &pd, options)?;
    let server = Side::new(&device, &other, QpOptions::default())?;
    let replies = other.memory(64 + ANSWER, Access::LOCAL_WRITE)?;
    receive(&server.qp, &replies)?;
    let listener = device.listen("127.0.0.1:0")?;
    let joining = client.qp.connect(listener.local_addr()?, b"")?;
    let accepted = listener.next().wait()?.accept_on(&server.qp, b"")?;
    accepted.wait()?;
    joining.wait()?;
    let serving = std::thread::spawn(move || serve(&server, &replies));

    let memory = pd.memory(ANSWER, Access::LOCAL_WRITE)?;
    let mut tag = pd.fast_reg_mr(1)?.one_touch();
    for request in 0..QUESTIONS {
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let (ticket, handle) = tag.register(&memory, 0, ANSWER, rights)?;
        let posted = client.qp.post_recv(&[RecvWr {
            id: 2,
            scatter: &[],
        }]);
        posted?;
        let op = SendOp::RegisterSend {
            ticket,
            invalidate: None,
            immediate: None,
        };
        post(&client.qp, op, Data::Inline(&handle.to_bytes()))?;
        assert_eq!(next(&client.sent)?.status, Status::Success);
        let answer = next(&client.received)?;
        assert_eq!(answer.immediate, Some(request as u32));
        let last: u8 = memory.get(ANSWER - 1)?;
        assert_eq!(last, request as u8, "every answer is whole");
    }
    let second = match serving.join() {
        Ok(end) => end?,
        Err(panic) => std::panic::resume_unwind(panic),
    };
    println!(
        "{QUESTIONS} answers, each into a buffer lent for it alone; one too many ended as {second:?}"
    );
    assert_eq!(second, Status::RemAccessErr);
    Ok(())
}
