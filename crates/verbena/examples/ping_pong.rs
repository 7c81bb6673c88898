//! Two programs exchange one message in turn and print how long that takes.
//! Run it without arguments for both sides in one process, or with `server [ADDR]` and `client ADDR` on two machines.

use std::time::Instant;

use verbena::{Connection, Device, Error};

const ROUNDS: u32 = 2000;
const BYTES: usize = 64;

fn serve(connection: &Connection) -> Result<(), Error> {
    let mut buf = connection.device().buffer(BYTES)?;
    for _ in 0..ROUNDS {
        let (received, mut message) = connection.recv(buf).wait();
        received?;
        // Marks it as an answer.
        message[0] ^= 0xff;
        let (sent, message) = connection.send(message).wait();
        sent?;
        buf = message;
    }
    Ok(())
}

fn run_client(connection: &Connection) -> Result<(), Error> {
    let (mut ping, mut pong) = (
        connection.device().buffer(BYTES)?,
        connection.device().buffer(BYTES)?,
    );
    let begin = Instant::now();
    for round in 0..ROUNDS {
        ping.set_len(BYTES)?;
        ping.fill(round as u8);
        // Posted first, so that the answer finds a receive.
        let receiving = connection.recv(pong);
        let (sent, sent_buf) = connection.send(ping).wait();
        sent?;
        let (received, answer) = receiving.wait();
        received?;
        let mut expected = [round as u8; BYTES];
        expected[0] ^= 0xff;
        assert_eq!(answer[..], expected, "every byte comes back");
        (ping, pong) = (sent_buf, answer);
    }
    let each = begin.elapsed() / ROUNDS;
    println!("{ROUNDS} rounds of {BYTES} bytes, {each:?} each");
    Ok(())
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let device = Device::open()?;
    match arguments.first().map(String::as_str) {
        Some("server") => {
            let at = arguments.get(1).map_or("0.0.0.0:4791", String::as_str);
            let listener = device.listen(at)?;
            println!("listening at {}", listener.local_addr()?);
            serve(&listener.accept().wait()?)
        }
        Some("client") => {
            let to = arguments.get(1).map_or("127.0.0.1:4791", String::as_str);
            run_client(&device.connect(to).wait()?)
        }
        _ => {
            let listener = device.listen("127.0.0.1:0")?;
            let to = listener.local_addr()?;
            std::thread::scope(|scope| {
                let server = scope.spawn(|| serve(&listener.accept().wait()?));
                run_client(&Device::open()?.connect(to).wait()?)?;
                server.join().unwrap_or(Err(Error::Timeout))
            })
        }
    }
}
