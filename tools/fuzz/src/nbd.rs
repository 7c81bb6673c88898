//! A client of an exported disk: handshake options, then requests, sent to a real server over its Unix socket.
//! The server must close each fuzzed connection in bounded time, and go on serving a conforming client that stays connected.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use verbena_storage::Stop;
use verbena_storage::nbd::{Export, ExportAddr, Options};

use crate::ram::RamDisk;
use crate::source::Source;

const BLOCK: u32 = 512;
const BLOCKS: u64 = 64;
/// Client flags, and NBD_OPT_EXPORT_NAME with an empty name.
const CHOOSE: &[u8] = b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0";
/// Timeout of reads and writes, so that a stalled server does not hang the fuzzer.
const LIMIT: Duration = Duration::from_secs(20);

struct Server {
    path: std::path::PathBuf,
    /// The conforming client.
    honest: Mutex<UnixStream>,
}

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let name = format!("verbena-fuzz-nbd-{}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let place = ExportAddr::Unix(path.clone());
        let export = Export::bind(&place, Options::default()).expect("a socket");
        std::thread::spawn(move || {
            let mut ram = RamDisk::new(BLOCKS, BLOCK);
            let stop = Stop::new().expect("a stop flag");
            export
                .serve(&mut ram, &stop, &mut |_| {})
                .expect("no client ends the export");
        });
        let mut honest = connect(&path);
        honest.write_all(CHOOSE).expect("a server");
        honest.read_exact(&mut [0; 10]).expect("an export");
        Server {
            path,
            honest: Mutex::new(honest),
        }
    })
}

/// A client that has read the greeting.
fn connect(path: &std::path::Path) -> UnixStream {
    let mut stream = UnixStream::connect(path).expect("a server");
    stream.set_read_timeout(Some(LIMIT)).expect("a socket");
    stream.set_write_timeout(Some(LIMIT)).expect("a socket");
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).expect("a greeting");
    assert_eq!(&greeting, b"NBDMAGICIHAVEOPT\0\x03");
    stream
}

/// Runs one input: the first byte selects raw bytes, options or requests, the rest is their content.
pub fn target(data: &[u8]) {
    let server = server();
    let mut source = Source::new(data);
    let bytes = match source.byte() % 3 {
        0 => source.rest().to_vec(),
        1 => options(source),
        _ => requests(source),
    };
    let stream = connect(&server.path);
    std::thread::scope(|scope| {
        // Replies are read concurrently: the server stops reading from a client that does not take them.
        scope.spawn(|| read_all(&stream));
        // Fails if the server has closed the connection.
        let _ = (&stream).write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
    });
    check_honest(&server.honest);
}

/// Reads until the server closes the connection, which it must do in bounded time.
fn read_all(mut stream: &UnixStream) {
    let mut room = [0; 4096];
    loop {
        match stream.read(&mut room) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
            Err(error) => panic!("the server neither answers nor closes the connection: {error}"),
        }
    }
}

/// Options with the right magic.
fn options(mut source: Source<'_>) -> Vec<u8> {
    let mut bytes = (u32::from(source.byte()) % 4).to_be_bytes().to_vec();
    while !source.is_empty() {
        let (option, len) = (source.byte() % 10, source.byte());
        let data = source.slice(usize::from(len));
        bytes.extend(b"IHAVEOPT");
        bytes.extend(u32::from(option).to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
    }
    bytes
}

/// Requests with the right magic, most of them within the disk.
fn requests(mut source: Source<'_>) -> Vec<u8> {
    let mut bytes = CHOOSE.to_vec();
    while !source.is_empty() && bytes.len() < 1 << 20 {
        let (kind, flags) = (source.byte() % 8, source.byte());
        let (offset, len) = (source.byte(), source.byte());
        let scale = if flags & 0x80 == 0 { BLOCK } else { 1 };
        let (offset, len) = (u64::from(offset) * u64::from(scale), u32::from(len) * scale);
        bytes.extend(0x2560_9513_u32.to_be_bytes());
        bytes.extend(u16::from(flags & 0x1f).to_be_bytes());
        bytes.extend(u16::from(kind).to_be_bytes());
        bytes.extend(u64::from(flags).to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(len.to_be_bytes());
        if kind == 1 {
            bytes.extend(core::iter::repeat_n(flags, len as usize));
        }
    }
    bytes
}

/// Reads one block, which must succeed.
fn check_honest(client: &Mutex<UnixStream>) {
    let mut client = client.lock().unwrap_or_else(PoisonError::into_inner);
    let mut request = [0; 28];
    request[..4].copy_from_slice(&0x2560_9513_u32.to_be_bytes());
    request[24..].copy_from_slice(&BLOCK.to_be_bytes());
    client.write_all(&request).expect("a server");
    let mut answer = [0; 16 + BLOCK as usize];
    client.read_exact(&mut answer).expect("an answer");
    assert_eq!(answer[..8], *b"\x67\x44\x66\x98\0\0\0\0");
}
