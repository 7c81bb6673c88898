//! A client that lends a server one buffer per question: registered and sent in one request, good for one answer.
//! Nothing is registered by a call and nothing is taken back: the answer that fills the buffer also ends the loan.

use verbena::low::{BLANK, Data, Flags, OnFailure, RecvWr, Registration, SendOp, SendWr, Wc, WcOp};
use verbena::{Access, Cq, Device, Error, Memory, Qp, QpOptions, RemoteMemory, Status};

const QUESTIONS: usize = 1000;
const ANSWER: usize = 4096;

/// The next completion of a kind.
fn next(cq: &Cq, op: WcOp) -> Result<Wc, Error> {
    let mut end = [BLANK];
    loop {
        if cq.wait(&mut end)? > 0 && end[0].op == op {
            return Ok(end[0]);
        }
    }
}

fn post(qp: &Qp, op: SendOp, data: Data<'_>) -> Result<(), Error> {
    let (id, flags) = (1, Flags::SIGNALED);
    let wr = SendWr {
        id,
        op,
        flags,
        data,
    };
    Ok(qp.post_send(&[wr]).map_err(|(_, error)| error)?)
}

/// Answers questions: each brings a handle, and the answer goes there. Then it breaks the rule.
fn serve(qp: &Qp, cq: &Cq, memory: &Memory) -> Result<Status, Error> {
    let mut lent = None;
    for question in 0..QUESTIONS {
        next(cq, WcOp::Receive)?;
        let handle = RemoteMemory::from_bytes(&memory.get::<[u8; RemoteMemory::BYTES]>(0)?)?;
        receive(qp, memory)?;
        memory.write_at(64, &[question as u8; ANSWER])?;
        let op = SendOp::Write {
            remote: handle.place(),
            immediate: Some(question as u32),
        };
        post(qp, op, Data::Gather(&[memory.sge(64, ANSWER)?]))?;
        next(cq, WcOp::Write)?;
        lent = Some(handle);
    }
    let op = SendOp::Write {
        remote: lent.map_or(memory.place(0)?, |handle| handle.place()),
        immediate: None,
    };
    post(qp, op, Data::Gather(&[memory.sge(64, ANSWER)?]))?;
    Ok(next(cq, WcOp::Write)?.status)
}

fn receive(qp: &Qp, memory: &Memory) -> Result<(), Error> {
    let scatter = &[memory.sge(0, RemoteMemory::BYTES)?][..];
    let posted = qp.post_recv(&[RecvWr { id: 0, scatter }]);
    Ok(posted.map_err(|(_, error)| error)?)
}

fn main() -> Result<(), Error> {
    let device = Device::open()?;
    let (pd, other) = (device.pd()?, device.pd()?);
    let (cq, server_cq) = (device.cq(64)?, device.cq(64)?);
    let registration = Registration {
        enabled: true,
        on_failure: OnFailure::Anticipatory,
    };
    let options = QpOptions {
        registration,
        ..QpOptions::default()
    };
    let client = Qp::new(&pd, &cq, &cq, options)?;
    let server = Qp::new(&other, &server_cq, &server_cq, QpOptions::default())?;
    let desk = other.memory(64 + ANSWER, Access::LOCAL_WRITE)?;
    receive(&server, &desk)?;
    let listener = device.listen("127.0.0.1:0")?;
    let joining = client.connect(listener.local()?, b"")?;
    let accepted = listener.next().wait()?.accept_on(&server, b"")?;
    accepted.wait()?;
    joining.wait()?;
    let serving = std::thread::spawn(move || serve(&server, &server_cq, &desk));

    let memory = pd.memory(ANSWER, Access::LOCAL_WRITE)?;
    let mut tag = pd.tag(1)?.one_touch();
    for question in 0..QUESTIONS {
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let (ticket, handle) = tag.register(&memory, 0, ANSWER, rights)?;
        let posted = client.post_recv(&[RecvWr {
            id: 2,
            scatter: &[],
        }]);
        posted.map_err(|(_, error)| error)?;
        let op = SendOp::RegisterSend {
            ticket,
            invalidate: None,
            immediate: None,
        };
        post(&client, op, Data::Inline(&handle.to_bytes()))?;
        let answer = next(&cq, WcOp::ReceiveWriteImm)?;
        assert_eq!(answer.immediate, Some(question as u32));
        let last: u8 = memory.get(ANSWER - 1)?;
        assert_eq!(last, question as u8, "every answer is whole");
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
