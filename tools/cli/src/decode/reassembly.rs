//! Reassembly of one direction of a TCP connection. Each byte is returned once and in sequence, however often and in whatever segments it
//! was sent, across the wrap of sequence numbers. Bytes behind a gap are counted; the caller decides when to give up.

use std::collections::BTreeMap;

/// The bytes of one direction; offsets count from its first byte.
#[derive(Debug)]
pub struct Reassembly {
    /// Sequence number of offset 0.
    base: u32,
    /// Offset of the next byte in order.
    next: u64,
    /// Bytes received out of order, by offset. Invariant: every key is greater than `next`.
    pending: BTreeMap<u64, Vec<u8>>,
    buffered: usize,
    /// The offset of the sender's FIN.
    fin: Option<u64>,
}

impl Reassembly {
    /// A direction whose first byte has this sequence number.
    pub fn new(first: u32) -> Reassembly {
        Reassembly {
            base: first,
            next: 0,
            pending: BTreeMap::new(),
            buffered: 0,
            fin: None,
        }
    }

    /// Takes a segment and appends to `out` what is in order now.
    pub fn take(&mut self, seq: u32, payload: &[u8], fin: bool, out: &mut Vec<u8>) {
        let start = self.offset(seq);
        let end = start + payload.len() as i64;
        if fin && self.fin.is_none() {
            self.fin = u64::try_from(end).ok().filter(|end| *end >= self.next);
        }
        let behind = (self.next as i64 - start).max(0) as usize;
        let Some(fresh) = payload.get(behind..).filter(|p| !p.is_empty()) else {
            return;
        };
        let start = self.next.max(start.max(0) as u64);
        if start == self.next {
            self.next += fresh.len() as u64;
            out.extend_from_slice(fresh);
            self.drain(out);
        } else {
            self.keep(start, fresh);
        }
    }

    /// Whether its first byte has this sequence number.
    pub fn begins_at(&self, seq: u32) -> bool {
        self.base == seq
    }

    /// Whether everything before this sequence number was taken.
    pub fn has_reached(&self, seq: u32) -> bool {
        self.missing_before(seq) == 0
    }

    /// The number of bytes before this sequence number that were not taken.
    pub fn missing_before(&self, seq: u32) -> u64 {
        // A FIN takes one sequence number.
        let reach = self.next as i64 + i64::from(self.is_finished());
        (self.offset(seq) - reach).max(0) as u64
    }

    /// The size of the first gap, if there is one.
    pub fn gap(&self) -> Option<u64> {
        let ahead = self.pending.keys().next().copied().or(self.fin)?;
        ahead.checked_sub(self.next).filter(|gap| *gap > 0)
    }

    /// Bytes buffered behind gaps.
    pub fn buffered(&self) -> usize {
        self.buffered
    }

    /// Whether the sender has closed the direction and every byte was taken.
    pub fn is_finished(&self) -> bool {
        self.fin == Some(self.next)
    }

    /// The offset of a sequence number: the one nearest to the next byte in order.
    fn offset(&self, seq: u32) -> i64 {
        let here = self.base.wrapping_add(self.next as u32);
        self.next as i64 + i64::from(seq.wrapping_sub(here) as i32)
    }

    fn keep(&mut self, start: u64, bytes: &[u8]) {
        let known = self.pending.get(&start).map_or(0, Vec::len);
        if known < bytes.len() {
            self.buffered += bytes.len() - known;
            self.pending.insert(start, bytes.to_vec());
        }
    }

    fn drain(&mut self, out: &mut Vec<u8>) {
        while let Some(entry) = self.pending.first_entry() {
            if *entry.key() > self.next {
                break;
            }
            let (start, bytes) = entry.remove_entry();
            self.buffered -= bytes.len();
            let fresh = bytes
                .get((self.next - start) as usize..)
                .unwrap_or_default();
            self.next += fresh.len() as u64;
            out.extend_from_slice(fresh);
        }
    }
}

#[cfg(test)]
mod tests;
