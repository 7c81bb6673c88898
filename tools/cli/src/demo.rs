//! `verbena demo`: two processes on this machine, every operation once, every byte checked. Each step prints a line, and a wrong byte or
//! word is an error. Performance is measured by `verbena bench`.

use std::io::{self, Write};
use std::net::SocketAddr;

use verbena::{Access, Config, Connection, Device, RemoteMemory};

/// Bytes of the memory that the server shares.
const SHARED: usize = 1 << 20;
/// Offset of its counter.
const COUNTER: u64 = 0;
/// Offset of writes and reads.
const DATA: u64 = 4096;

/// Why the demonstration failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The adapter.
    #[error(transparent)]
    Adapter(#[from] verbena::Error),
    /// The terminal, or the other process.
    #[error("{0}")]
    System(#[from] io::Error),
    /// Bytes differ.
    #[error("{0}: byte {1} differs")]
    Bytes(&'static str, usize),
    /// An atomic's result differs.
    #[error("{what}: got {got}, expected {expected}")]
    Atomic {
        /// The operation.
        what: &'static str,
        /// The expected value.
        expected: u64,
        /// The value returned.
        got: u64,
    },
}

/// The server: shares memory and echoes messages, for one client. `ready` gets its address.
pub fn serve(
    config: Config,
    ready: impl FnOnce(SocketAddr) -> io::Result<()>,
) -> Result<(), Error> {
    let device = Device::with(config)?;
    let listener = device.listen("127.0.0.1:0")?;
    ready(listener.local_addr()?)?;
    let memory = device.memory(SHARED, Access::ALL)?;
    let request = listener.next().wait()?;
    let connection = request.accept(&memory.remote().to_bytes()).wait()?;
    // Echoes until the client disconnects.
    loop {
        let (received, buf) = connection.recv(device.buffer(SHARED)?).wait();
        if received.is_err() {
            return Ok(());
        }
        if connection.send(buf).wait().0.is_err() {
            return Ok(());
        }
    }
}

fn pattern(len: usize, salt: u8) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8 ^ salt)
        .collect()
}

fn compare(what: &'static str, expected: &[u8], got: &[u8]) -> Result<(), Error> {
    if expected.len() != got.len() {
        return Err(Error::Bytes(what, expected.len().min(got.len())));
    }
    match expected.iter().zip(got).position(|(a, b)| a != b) {
        Some(at) => Err(Error::Bytes(what, at)),
        None => Ok(()),
    }
}

/// The client, which performs every operation once.
pub fn run(config: Config, server: SocketAddr, out: &mut impl Write) -> Result<(), Error> {
    let device = Device::with(config)?;
    let connection = device.connect(server).wait()?;
    let remote = RemoteMemory::from_bytes(connection.private_data())?;
    writeln!(
        out,
        "  connected to {server}; the other process shares {} bytes",
        remote.len()
    )?;
    messages(&device, &connection, out)?;
    one_sided(&device, &connection, &remote, out)?;
    atomics(&connection, &remote, out)?;
    connection.close();
    writeln!(out, "  disconnected")?;
    Ok(())
}

fn messages(device: &Device, connection: &Connection, out: &mut impl Write) -> Result<(), Error> {
    for len in [1, 64, 4096, 1 << 20] {
        let data = pattern(len, 3);
        let receiving = connection.recv(device.buffer(len)?);
        connection.send(device.buffer_from(&data)?).wait().0?;
        let (received, buf) = receiving.wait();
        received?;
        compare("the message that came back", &data, &buf)?;
        writeln!(
            out,
            "  send and receive     {len:>8} bytes there and back, all equal"
        )?;
    }
    Ok(())
}

fn one_sided(
    device: &Device,
    connection: &Connection,
    remote: &RemoteMemory,
    out: &mut impl Write,
) -> Result<(), Error> {
    let room = remote.len() - DATA;
    for len in [8, 4096, room as usize] {
        let data = pattern(len, 9);
        let place = remote.slice(DATA, len as u64)?;
        connection
            .write(device.buffer_from(&data)?, &place)
            .wait()
            .0?;
        let mut buf = device.buffer(len)?;
        buf.set_len(len)?;
        let (read, buf) = connection.read(buf, &place).wait();
        read?;
        compare("memory that was written and read", &data, &buf)?;
        writeln!(
            out,
            "  write, then read     {len:>8} bytes of the other process's memory, all equal"
        )?;
    }
    Ok(())
}

fn atomics(
    connection: &Connection,
    remote: &RemoteMemory,
    out: &mut impl Write,
) -> Result<(), Error> {
    let counter = remote.value::<u64>(COUNTER)?;
    let word = |what, expected, got| match got == expected {
        true => Ok(()),
        false => Err(Error::Atomic {
            what,
            expected,
            got,
        }),
    };
    for turn in 0..5 {
        let before = connection.fetch_add(&counter, 7).wait()?;
        word("fetch and add", turn * 7, before)?;
    }
    let before = connection.compare_swap(&counter, 35, 1000).wait()?;
    word("compare and swap", 35, before)?;
    let before = connection.compare_swap(&counter, 35, 5).wait()?;
    word("compare and swap that must not swap", 1000, before)?;
    writeln!(
        out,
        "  atomics              five additions and two compare-and-swaps on one word, all results correct"
    )?;
    Ok(())
}
