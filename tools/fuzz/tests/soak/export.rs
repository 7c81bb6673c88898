//! A disk that is exported over NBD by TCP. Conforming clients read what they wrote; hostile ones break the protocol at any byte,
//! do not read replies, or disconnect within a request.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use verbena_storage::Stop;
use verbena_storage::nbd::{Export, ExportAddr, Options};

use crate::ram::RamDisk;
use crate::{Counts, LIMIT, add, is_hostile, mix};

const BLOCK: u32 = 512;
/// Blocks of each client's part of the disk.
const PART: u64 = 256;
/// Flags, and NBD_OPT_EXPORT_NAME for the export without a name.
const CHOOSE: &[u8] = b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0";
const READ: u16 = 0;
const WRITE: u16 = 1;
const DISC: u16 = 2;

pub(crate) struct Disk {
    at: SocketAddr,
    stop: Stop,
    server: Option<JoinHandle<()>>,
}

impl Disk {
    pub(crate) fn new(parts: u64) -> Disk {
        let options = Options {
            idle: Duration::from_secs(5),
            ..Options::default()
        };
        let any = ExportAddr::Tcp("127.0.0.1:0".parse().unwrap());
        let export = Export::bind(&any, options).unwrap();
        let ExportAddr::Tcp(at) = export.local_addr().unwrap() else {
            panic!("bound to a TCP port");
        };
        let stop = Stop::new().unwrap();
        let pulled = stop.clone();
        let server = thread::spawn(move || {
            let mut ram = RamDisk::new(parts * PART, BLOCK);
            let served = export.serve(&mut ram, &pulled, &mut |_| {});
            served.expect("no client ends the export");
        });
        Disk {
            at,
            stop,
            server: Some(server),
        }
    }

    pub(crate) fn connect(&self, on: &AtomicBool, counts: &Counts, part: u64, seed: u64) {
        let mut round = seed << 32 | part << 24;
        while on.load(Ordering::Relaxed) {
            round += 1;
            if is_hostile(round) {
                // The server may close the connection at any byte.
                let _ = self.abuse(mix(round + 1));
                add(&counts.hostile);
                continue;
            }
            self.use_disk(part, round).expect("an honest client");
            add(&counts.exports);
        }
    }

    /// A connected client that has chosen the export if `chooses`.
    fn client(&self, chooses: bool) -> std::io::Result<TcpStream> {
        let mut client = TcpStream::connect(self.at)?;
        client.set_read_timeout(Some(LIMIT))?;
        client.set_write_timeout(Some(Duration::from_secs(2)))?;
        client.read_exact(&mut [0; 18])?;
        if chooses {
            client.write_all(CHOOSE)?;
            client.read_exact(&mut [0; 10])?;
        }
        Ok(client)
    }

    fn use_disk(&self, part: u64, round: u64) -> std::io::Result<()> {
        let mut client = self.client(true)?;
        let len = BLOCK * (1 + mix(round) as u32 % PART as u32);
        let (bytes, offset) = (
            vec![round as u8; len as usize],
            part * PART * u64::from(BLOCK),
        );
        client.write_all(&request(WRITE, offset, len))?;
        client.write_all(&bytes)?;
        client.write_all(&request(READ, offset, len))?;
        let mut answers = vec![0; 16 + 16 + bytes.len()];
        client.read_exact(&mut answers)?;
        assert!(answers[32..] == bytes, "what was written is there");
        client.write_all(&request(DISC, 0, 0))
    }

    fn abuse(&self, how: u64) -> std::io::Result<()> {
        let mut client = self.client(!how.is_multiple_of(6))?;
        let garbage: Vec<u8> = (0..500_u64).map(|at| mix(at ^ how) as u8).collect();
        match how % 6 {
            // Garbage in place of an option; of a request; behind a write out of range.
            0 | 1 => client.write_all(&garbage),
            2 => {
                client.write_all(&request(WRITE, u64::MAX, 1 << 20))?;
                client.write_all(&garbage)
            }
            // Part of a request, then a pause; part of a write.
            3 => {
                client.write_all(&request(READ, 0, BLOCK)[..11])?;
                // real time: a client that is silent for a while.
                thread::sleep(Duration::from_millis(50));
                Ok(())
            }
            4 => {
                client.write_all(&request(WRITE, 0, BLOCK * PART as u32))?;
                client.write_all(&garbage)
            }
            // Replies that are not read.
            _ => {
                let ask = request(READ, 0, BLOCK * PART as u32);
                (0..200).try_for_each(|_| client.write_all(&ask))
            }
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.stop.request();
        let ended = self.server.take().map(JoinHandle::join);
        // A panic of this test is reported instead.
        assert!(thread::panicking() || ended.is_none_or(|ended| ended.is_ok()));
    }
}

fn request(kind: u16, offset: u64, len: u32) -> [u8; 28] {
    let mut bytes = [0; 28];
    bytes[..4].copy_from_slice(&0x2560_9513_u32.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[16..24].copy_from_slice(&offset.to_be_bytes());
    bytes[24..].copy_from_slice(&len.to_be_bytes());
    bytes
}
