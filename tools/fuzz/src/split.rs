//! What host and I/O unit of the split driver exchange outside of its messages: the request for a channel, the response to it, the
//! data of the configuration service, and block requests. A structure that parses must be emitted as it came where the format ignores nothing.

use verbena_split::disk::{BlockReply, BlockRequest, DiskInfo};
use verbena_split::hello::{Hello, MAX_NAME};
use verbena_split::lane::Lane;
use verbena_split::service::{ConfigRequest, Counts, Terms};
use verbena_split::welcome::Welcome;
use verbena_split_wire::push::Operation;

use crate::source::Source;

/// Runs one input: every parser on the input as it is, the hello also with a valid header.
pub fn target(data: &[u8]) {
    hello(data);
    for version in [1, 2] {
        let mut framed = [b"VSPL".as_slice(), &[version], data].concat();
        hello(&framed);
        framed.truncate(8 + 8 * usize::from(version) + MAX_NAME);
        hello(&framed);
    }
    if let Some(welcome) = Welcome::parse(data) {
        assert_eq!(welcome.to_bytes(), data[..8]);
        let pair = Welcome::data_pair(data);
        assert!(data.starts_with(&welcome.with_data_pair(pair)));
    }
    blocks(data);
    let mut source = Source::new(data);
    let operation = Operation::from_code(u16::from(source.byte()));
    configuration(operation, source.rest());
    if let Some(counts) = Counts::parse(data) {
        let bytes = counts.to_bytes();
        assert!(data.starts_with(&bytes));
        let mut none = counts;
        none.subtract(&counts);
        assert_eq!(none, Counts::default());
    }
    if let Some(terms) = Terms::parse(data) {
        assert_eq!(Terms::parse(&terms.to_bytes()), Some(terms));
    }
}

/// Block requests and replies, and the properties of a disk.
fn blocks(data: &[u8]) {
    if let Some(info) = DiskInfo::parse(data) {
        assert_eq!(DiskInfo::parse(&info.to_bytes()), Some(info));
    }
    let Some((head, _)) = data.split_first_chunk() else {
        return;
    };
    if let Some(reply) = BlockReply::parse(head, data.len()) {
        assert_eq!(reply.to_bytes(), *head);
    }
    let disk = DiskInfo {
        block_size: 512,
        read_only: false,
        blocks: 1 << 20,
        max_data: 4096,
    };
    match BlockRequest::parse(head, data.len()) {
        Ok(request) => {
            assert_eq!(request.to_bytes(), *head);
            if request.check(&disk).is_ok() {
                assert!(request.len <= disk.max_data);
                assert!(request.offset + u64::from(request.len) <= disk.bytes());
            }
        }
        Err(invalid) => assert_eq!(invalid.context.to_be_bytes(), head[8..16]),
    }
}

fn hello(bytes: &[u8]) {
    let hello = match Hello::parse(bytes) {
        Ok(hello) => hello,
        Err(error) => return drop(error.to_string()),
    };
    let fixed = 16 + 8 * usize::from(hello.kinds.is_some());
    assert!(bytes.len() <= fixed + MAX_NAME);
    assert!(hello.channel_kinds().check(hello.arrangement).is_ok());
    assert_eq!(
        hello.data_pair.is_some(),
        hello.channel_kinds().connectionless
    );
    assert!(!hello.name.chars().any(char::is_control));
    assert!(hello.lane.queue() < hello.lane.queue_count());
    assert_eq!(Lane::from_byte(hello.lane.to_byte()), Ok(hello.lane));
    let emitted = hello.to_bytes();
    assert_eq!(emitted[..fixed], bytes[..fixed]);
    if hello.name.is_ascii() && hello.name.len() <= MAX_NAME {
        assert_eq!(Hello::parse(&emitted), Ok(hello));
    }
}

fn configuration(operation: Operation, data: &[u8]) {
    let Ok(ask) = ConfigRequest::parse(operation, data) else {
        return;
    };
    let (again, bytes) = ask.encode();
    assert_eq!(again, operation);
    if !matches!(ask, ConfigRequest::Initialise(_)) {
        assert_eq!(bytes, data);
    }
    assert_eq!(ConfigRequest::parse(operation, &bytes), Ok(ask));
}
