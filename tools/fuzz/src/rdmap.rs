//! The RDMAP headers of fixed size: Read Request, Read V2 Request, atomics and immediate data (RFC 5040 §4.4, RFC 7306).
//! A header that parses must be emitted as it came, apart from fields that the operation ignores; atomic operations must have the result
//! of bit-by-bit arithmetic.

use core::fmt::{Debug, Display};

use verbena_wire::Malformed;
use verbena_wire::ext::ReadV2Request;
use verbena_wire::rdmap::{
    AtomicOp, AtomicRequest, AtomicResponse, FlushScope, Immediate, ReadRequest,
};

use crate::source::Source;

/// Bytes of an Atomic Request with the operation code; the rest of the word is reserved (RFC 7306 §5.2.1).
const CODE: core::ops::Range<usize> = 0..4;
/// Fields that some operations do not use. Compare data and its mask are one range.
const DATA: core::ops::Range<usize> = 20..28;
const MASK: core::ops::Range<usize> = 28..36;
const COMPARE: core::ops::Range<usize> = 36..52;
const COMPARE_MASK: core::ops::Range<usize> = 44..52;

/// Runs one input.
pub fn target(data: &[u8]) {
    if let Some(request) = exact(data, ReadRequest::parse, |r| r.emit().to_vec()) {
        advance(&request, data);
    }
    exact(data, ReadV2Request::parse, |r| r.emit().to_vec());
    exact(data, AtomicResponse::parse, |r| r.emit().to_vec());
    match Immediate::parse(data) {
        Ok(immediate) => {
            assert_eq!(immediate.emit(), data);
            let _ = immediate.to_string();
        }
        Err(_) => assert_ne!(data.len(), Immediate::LEN),
    }
    atomic(data);
}

/// A format without ignored bits.
fn exact<T: Debug + Display + PartialEq>(
    data: &[u8],
    parse: impl Fn(&[u8]) -> Result<T, Malformed>,
    emit: impl Fn(&T) -> Vec<u8>,
) -> Option<T> {
    let value = parse(data).ok()?;
    let bytes = emit(&value);
    assert_eq!(bytes, data[..bytes.len()]);
    assert_eq!(parse(&bytes).as_ref(), Ok(&value));
    assert!(parse(&data[..bytes.len() - 1]).is_err());
    let _ = value.to_string();
    Some(value)
}

fn advance(request: &ReadRequest, data: &[u8]) {
    let sent = Source::new(&data[ReadRequest::LEN..]).u32();
    if let Some(rest) = request.advanced(sent) {
        assert_eq!(rest.size + sent, request.size);
        assert_eq!(
            rest.source_to.get() - request.source_to.get(),
            u64::from(sent)
        );
    }
}

fn atomic(data: &[u8]) {
    let Ok(request) = AtomicRequest::parse(data) else {
        return;
    };
    let emitted = request.emit();
    assert_eq!(AtomicRequest::parse(&emitted), Ok(request));
    let mut came = data[..AtomicRequest::LEN].to_vec();
    let code = came[CODE.end - 1] & 0x0f;
    came[CODE].copy_from_slice(&[0, 0, 0, code]);
    let unused = match request.op {
        AtomicOp::FetchAdd { .. } => &[COMPARE][..],
        AtomicOp::CmpSwap { .. } => &[],
        AtomicOp::Write { .. } => &[MASK, COMPARE],
        AtomicOp::Flush(FlushScope::Range { .. }) => &[COMPARE_MASK],
        AtomicOp::Flush(FlushScope::Region) => &[DATA, COMPARE_MASK],
    };
    for field in unused.iter().cloned() {
        came[field.clone()].copy_from_slice(&emitted[field]);
    }
    assert_eq!(emitted[..], came[..]);
    let _ = request.to_string();
    let original = Source::new(&data[AtomicRequest::LEN..]).u64();
    assert_eq!(
        request.op.apply(original),
        bit_by_bit(&request.op, original)
    );
}

/// The operations of RFC 7306 §5.1 as in its pseudocode: one bit after the other.
fn bit_by_bit(op: &AtomicOp, original: u64) -> u64 {
    match *op {
        AtomicOp::FetchAdd { add, mask } => {
            let (mut sum, mut carry) = (0, 0);
            for at in 0..64 {
                let total = (original >> at & 1) + (add >> at & 1) + carry;
                sum |= (total & 1) << at;
                carry = if mask >> at & 1 != 0 { 0 } else { total >> 1 };
            }
            sum
        }
        AtomicOp::CmpSwap {
            swap,
            swap_mask,
            compare,
            compare_mask,
        } => {
            let equal = (0..64)
                .filter(|at| compare_mask >> at & 1 != 0)
                .all(|at| compare >> at & 1 == original >> at & 1);
            let from = |at: u32| {
                if equal && swap_mask >> at & 1 != 0 {
                    swap
                } else {
                    original
                }
            };
            (0..64).fold(0, |word, at| word | (from(at) >> at & 1) << at)
        }
        AtomicOp::Write { bytes } => u64::from_ne_bytes(bytes),
        AtomicOp::Flush(_) => original,
    }
}
