//! A key-value store whose clients read the table directly, by one-sided reads.
//! Run it without arguments for both sides in one process, or with `server [ADDR]` and `client ADDR`.
//!
//! Each bucket has a version in front of its value, which is odd while the owner changes the value. A reader that finds an odd
//! version, or another one when it reads it again, retries.

use std::sync::atomic::{AtomicBool, Ordering};

use verbena::{Access, Connection, Device, Error, Memory, RemoteMemory};

const BUCKETS: u64 = 64;
const BUCKET: u64 = 256;
const VALUE: usize = 200;

fn bucket_of(key: u64) -> u64 {
    (key % BUCKETS) * BUCKET
}

/// A value whose bytes all depend on key and round.
fn value_of(key: u64, round: u64) -> [u8; VALUE] {
    core::array::from_fn(|i| (key as u8) ^ (round as u8).wrapping_mul(7) ^ i as u8)
}

/// The owner's side: local stores, no messages.
fn put(table: &Memory, key: u64, round: u64) -> Result<(), Error> {
    let at = bucket_of(key) as usize;
    table.fetch_add(at, 1)?;
    table.put(at + 8, &round)?;
    table.write_at(at + 16, &value_of(key, round))?;
    table.fetch_add(at, 1)?;
    Ok(())
}

/// The reader's side: reads the bucket, then its version once more.
fn get(connection: &Connection, table: &RemoteMemory, key: u64) -> Result<u64, Error> {
    let bucket = table.slice(bucket_of(key), BUCKET)?;
    let mut buf = connection.device().buffer(BUCKET as usize)?;
    loop {
        let (read, bytes) = connection.read(buf, &bucket).wait();
        read?;
        let version = word(&bytes, 0);
        let again = connection.read_value(&bucket.value::<u64>(0)?).wait()?;
        if version.is_multiple_of(2) && version == again {
            let round = word(&bytes, 8);
            assert_eq!(bytes[16..16 + VALUE], value_of(key, round), "not torn");
            return Ok(round);
        }
        buf = bytes;
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(word)
}

fn look_up(connection: &Connection) -> Result<(), Error> {
    let table = RemoteMemory::from_bytes(connection.private_data())?;
    let mut newest = 0;
    for round in 0..20 {
        for key in 0..BUCKETS {
            newest = newest.max(get(connection, &table, key)?);
        }
        if round == 0 {
            println!("the first round of reads found versions up to {newest}");
        }
    }
    println!("{} reads, every byte right", 20 * BUCKETS);
    Ok(())
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let device = Device::open()?;
    if arguments.first().is_some_and(|first| first == "client") {
        let to = arguments.get(1).map_or("127.0.0.1:4791", String::as_str);
        return look_up(&device.connect(to).wait()?);
    }
    let alone = arguments.is_empty();
    let at = if alone { "127.0.0.1:0" } else { "0.0.0.0:4791" };
    let listener = device.listen(arguments.get(1).map_or(at, String::as_str))?;
    let table = device.memory(
        (BUCKETS * BUCKET) as usize,
        Access::LOCAL_WRITE | Access::REMOTE_READ,
    )?;
    for key in 0..BUCKETS {
        put(&table, key, 1)?;
    }
    let to = listener.local_addr()?;
    println!("listening at {to}");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = alone.then(|| scope.spawn(|| look_up(&Device::open()?.connect(to).wait()?)));
        // The owner changes the table while it is read.
        scope.spawn(|| {
            for round in 2.. {
                for key in 0..BUCKETS {
                    if over.load(Ordering::Relaxed) || put(&table, key, round).is_err() {
                        return;
                    }
                }
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
        });
        let handle = table.remote().to_bytes();
        let connection = listener.next().wait()?.accept(&handle).wait()?;
        let (end, _) = connection.recv(device.buffer(1)?).wait();
        over.store(true, Ordering::Relaxed);
        assert!(
            end.is_err_and(|error| error.is_closed()),
            "readers send nothing"
        );
        reader.map_or(Ok(()), |reader| {
            reader.join().unwrap_or(Err(Error::Timeout))
        })
    })
}
