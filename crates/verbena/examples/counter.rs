//! A counter in the memory of one process that others increment by remote atomics, without work for its owner.
//! Run it without arguments for both sides in one process, or with `server [ADDR]` and `client ADDR`.

use verbena::{Access, Device, Error, Listener, Memory, RemoteMemory, RemoteValue};

const CLIENTS: u64 = 4;
const EACH: u64 = 500;

/// Gives the handle of the counter to every client, until all have disconnected.
fn serve(listener: &Listener, counter: &Memory, clients: u64) -> Result<u64, Error> {
    let handle = counter.remote_value::<u64>(0)?.memory().to_bytes();
    let mut connections = Vec::new();
    for _ in 0..clients {
        // The handle is private data of the accept, so no message is needed.
        connections.push(listener.next().wait()?.accept(&handle).wait()?);
    }
    for connection in connections {
        let (end, _) = connection.recv(connection.device().buffer(1)?).wait();
        assert!(end.is_err_and(|error| error.is_closed()), "it disconnects");
    }
    counter.load(0)
}

fn count(to: &str) -> Result<(), Error> {
    let connection = Device::open()?.connect(to).wait()?;
    let counter: RemoteValue<u64> =
        RemoteMemory::from_bytes(connection.private_data())?.value(0)?;
    // All at once; each returns a distinct number.
    let adds: Vec<_> = (0..EACH)
        .map(|_| connection.fetch_add(&counter, 1))
        .collect();
    let mut last = None;
    for add in adds {
        let before = add.wait()?;
        assert!(last < Some(before), "they run in order");
        last = Some(before);
    }
    let now = connection.read_value(&counter).wait()?;
    println!("added {EACH}, the counter is at {now}");
    Ok(())
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let device = Device::open()?;
    let counter = device.memory(8, Access::ALL)?;
    match arguments.first().map(String::as_str) {
        Some("server") => {
            let at = arguments.get(1).map_or("0.0.0.0:4791", String::as_str);
            let listener = device.listen(at)?;
            println!("listening at {}", listener.local_addr()?);
            println!("the end: {}", serve(&listener, &counter, 1)?);
        }
        Some("client") => count(arguments.get(1).map_or("127.0.0.1:4791", String::as_str))?,
        _ => {
            let listener = device.listen("127.0.0.1:0")?;
            let to = listener.local_addr()?.to_string();
            let clients: Vec<_> = (0..CLIENTS)
                .map(|_| {
                    let to = to.clone();
                    std::thread::spawn(move || count(&to))
                })
                .collect();
            let total = serve(&listener, &counter, CLIENTS)?;
            for client in clients {
                client.join().unwrap_or(Err(Error::Timeout))?;
            }
            assert_eq!(total, CLIENTS * EACH);
            println!("the end: {total}");
        }
    }
    Ok(())
}
