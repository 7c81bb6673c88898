//! Heads as they are on the wire, and requests that a disk does not accept.

use super::*;

const DISK: DiskInfo = DiskInfo {
    block_size: 512,
    read_only: false,
    blocks: 100,
    max_data: 4096,
};

fn request(operation: BlockOperation, offset: u64, len: u32) -> BlockRequest {
    BlockRequest {
        context: 0x0102_0304_0506_0708,
        operation,
        offset,
        len,
    }
}

#[test]
fn requests_parse_as_emitted() {
    for (operation, offset, len) in [
        (BlockOperation::Read, 1 << 40, 4096),
        (BlockOperation::Write { fua: false }, 512, 512),
        (BlockOperation::Write { fua: true }, 0, 1024),
        (BlockOperation::Flush, 0, 0),
    ] {
        let request = request(operation, offset, len);
        let packet = HEAD + request.data_len();
        assert_eq!(
            BlockRequest::parse(&request.to_bytes(), packet),
            Ok(request)
        );
    }
    let bytes = request(BlockOperation::Write { fua: true }, 0x0a0b, 0x0c00).to_bytes();
    let expected = [
        2, 1, 0, 0, 0, 0, 0x0c, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0x0a, 0x0b,
    ];
    assert_eq!(bytes, expected);
}

#[test]
fn invalid_heads_are_rejected_with_context() {
    let valid = request(BlockOperation::Write { fua: true }, 512, 512);
    let invalid = Err(InvalidBlockRequest {
        context: valid.context,
    });
    for packet in [0, HEAD - 1, HEAD, HEAD + 511, HEAD + 513] {
        assert_eq!(BlockRequest::parse(&valid.to_bytes(), packet), invalid);
    }
    // Unknown operations and flags, and bytes that must be zero.
    for (at, byte) in [(0, 0), (0, 4), (0, 0x82), (1, 2), (2, 1), (3, 1)] {
        let mut bytes = valid.to_bytes();
        bytes[at] = byte;
        assert_eq!(BlockRequest::parse(&bytes, HEAD + 512), invalid, "{at}");
    }
    let reads_with_fua = {
        let mut bytes = request(BlockOperation::Read, 0, 512).to_bytes();
        bytes[1] = 1;
        bytes
    };
    assert_eq!(BlockRequest::parse(&reads_with_fua, HEAD), invalid);
    let flush = request(BlockOperation::Flush, 512, 0).to_bytes();
    assert_eq!(BlockRequest::parse(&flush, HEAD), invalid);
    let flush = request(BlockOperation::Flush, 0, 512).to_bytes();
    assert_eq!(BlockRequest::parse(&flush, HEAD), invalid);
}

#[test]
fn replies_parse_as_emitted() {
    for status in BlockStatus::ALL {
        for len in [0, 512] {
            let reply = BlockReply {
                context: 7,
                status,
                len,
            };
            let bytes = reply.to_bytes();
            assert_eq!(BlockReply::parse(&bytes, HEAD + len as usize), Some(reply));
            assert_eq!(BlockReply::parse(&bytes, HEAD + len as usize + 1), None);
            for (at, byte) in [(0, 1), (1, 5), (2, 1), (23, 1)] {
                let mut bytes = bytes;
                bytes[at] = byte;
                assert_eq!(BlockReply::parse(&bytes, HEAD + len as usize), None);
            }
        }
    }
}

#[test]
fn requests_outside_the_disk_are_refused() {
    let (read, write) = (BlockOperation::Read, BlockOperation::Write { fua: false });
    for (offset, len, status) in [
        (0, 512, None),
        (99 * 512, 512, None),
        (92 * 512, 4096, None),
        (0, 0, Some(BlockStatus::Invalid)),
        (0, 4608, Some(BlockStatus::Invalid)),
        (0, u32::MAX, Some(BlockStatus::Invalid)),
        (1, 512, Some(BlockStatus::Invalid)),
        (512, 100, Some(BlockStatus::Invalid)),
        (100 * 512, 512, Some(BlockStatus::NoSpace)),
        (99 * 512, 1024, Some(BlockStatus::NoSpace)),
        (u64::MAX - 511, 512, Some(BlockStatus::NoSpace)),
    ] {
        let checked = request(write, offset, len).check(&DISK);
        assert_eq!(checked.err(), status, "{offset} {len}");
        // Nothing can be read there either.
        let status = status.map(|_| BlockStatus::Invalid);
        let checked = request(read, offset, len).check(&DISK);
        assert_eq!(checked.err(), status, "{offset} {len}");
    }
    let protected = DiskInfo {
        read_only: true,
        ..DISK
    };
    let refused = request(write, 0, 512).check(&protected);
    assert_eq!(refused, Err(BlockStatus::ReadOnly));
    assert_eq!(request(read, 0, 512).check(&protected), Ok(()));
    assert_eq!(
        request(BlockOperation::Flush, 0, 0).check(&protected),
        Ok(())
    );
}

#[test]
fn properties_parse_as_emitted() {
    for read_only in [false, true] {
        let info = DiskInfo { read_only, ..DISK };
        let bytes = info.to_bytes();
        assert_eq!(DiskInfo::parse(&bytes), Some(info));
        assert_eq!(DiskInfo::parse(&bytes[..23]), None);
    }
    let invalid = [
        DiskInfo {
            block_size: 0,
            ..DISK
        },
        DiskInfo {
            block_size: 1000,
            ..DISK
        },
        DiskInfo { blocks: 0, ..DISK },
        DiskInfo {
            max_data: 0,
            ..DISK
        },
        DiskInfo {
            max_data: 1000,
            ..DISK
        },
        DiskInfo {
            max_data: MAX_DATA + 512,
            ..DISK
        },
    ];
    for info in invalid {
        assert_eq!(DiskInfo::parse(&info.to_bytes()), None, "{info:?}");
    }
}

#[test]
fn packets_hold_whole_blocks() {
    assert_eq!(max_data(0), 0);
    assert_eq!(max_data(HEAD as u32 + 511), 0);
    assert_eq!(max_data(1412), 1024);
    assert_eq!(max_data(u32::MAX), MAX_DATA);
}
