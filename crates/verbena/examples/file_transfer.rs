//! Transfers a file to the memory of its receiver by RDMA writes; one message carries its length, another tells that it is complete.
//! Run it without arguments for both sides in one process (with a generated file), or with `server FILE [ADDR]` and
//! `client FILE ADDR`.

use std::fs;
use std::path::Path;

use verbena::{Access, Connection, Device, Error, RemoteMemory};

const CHUNK: usize = 256 << 10;
/// Writes outstanding at once.
const WINDOW: usize = 8;

/// Allocates memory of the length that the sender announces, lets it write, and returns the bytes.
fn receive(connection: &Connection) -> Result<Vec<u8>, Error> {
    let device = connection.device();
    let (received, message) = connection.recv(device.buffer(8)?).wait();
    received?;
    let mut len = [0; 8];
    len.copy_from_slice(&message);
    let len = u64::from_be_bytes(len) as usize;
    let memory = device.memory(len, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let done = connection.recv(message);
    let handle = device.buffer_from(&memory.remote().to_bytes())?;
    connection.send(handle).wait().0?;
    done.wait().0?;
    let mut bytes = vec![0; len];
    memory.read_at(0, &mut bytes)?;
    Ok(bytes)
}

fn send(connection: &Connection, bytes: &[u8]) -> Result<(), Error> {
    let device = connection.device();
    let answer = connection.recv(device.buffer(RemoteMemory::BYTES)?);
    let len = device.buffer_from(&(bytes.len() as u64).to_be_bytes())?;
    let (sent, spare) = connection.send(len).wait();
    sent?;
    let (answered, handle) = answer.wait();
    answered?;
    let room = RemoteMemory::from_bytes(&handle)?;
    let mut free = (0..WINDOW)
        .map(|_| device.buffer(CHUNK))
        .collect::<Result<Vec<_>, _>>()?;
    let mut under_way = std::collections::VecDeque::new();
    for (at, piece) in (0_u64..).step_by(CHUNK).zip(bytes.chunks(CHUNK)) {
        if free.is_empty()
            && let Some((written, buf)) = under_way.pop_front().map(verbena::Pending::wait)
        {
            written?;
            free.push(buf);
        }
        if let Some(mut buf) = free.pop() {
            buf.fill_from(piece)?;
            under_way.push_back(connection.write(buf, &room.slice(at, piece.len() as u64)?));
        }
    }
    for one in under_way {
        one.wait().0?;
    }
    // The writes were placed before this message is delivered.
    connection.send(spare).wait().0
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let device = Device::open()?;
    match words[..] {
        ["server", file, ..] => {
            let at = words.get(2).copied().unwrap_or("0.0.0.0:4791");
            let listener = device.listen(at)?;
            println!("listening at {}", listener.local_addr()?);
            let bytes = receive(&listener.accept().wait()?)?;
            fs::write(Path::new(file), &bytes)?;
            println!("{} bytes in {file}", bytes.len());
        }
        ["client", file, to] => {
            let bytes = fs::read(file)?;
            send(&device.connect(to).wait()?, &bytes)?;
            println!("{} bytes sent", bytes.len());
        }
        _ => {
            let bytes: Vec<u8> = (0..5_000_017_u32).map(|i| ((i * 31) >> 5) as u8).collect();
            let listener = device.listen("127.0.0.1:0")?;
            let to = listener.local_addr()?;
            let got = std::thread::scope(|scope| {
                let sender = scope.spawn(|| send(&Device::open()?.connect(to).wait()?, &bytes));
                let got = receive(&listener.accept().wait()?)?;
                sender.join().unwrap_or(Err(Error::Timeout))?;
                Ok::<_, Error>(got)
            })?;
            assert_eq!(got, bytes, "every byte is there");
            println!("{} bytes sent", bytes.len());
        }
    }
    Ok(())
}
