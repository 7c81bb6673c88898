//! What was sent on a service connection in one direction, and what of it arrived.
//! A packet that is damaged, arrives twice or out of order, or belongs to another connection is an error.

use std::collections::VecDeque;

use verbena_push::Arrangement;

/// The shortest packet: its number and that of its connection fit.
pub(super) const SHORTEST: u32 = 8;

/// How the receiver learns of a packet; each form has its own order (P7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Indication {
    /// In immediate data, in a message with the packet, or by its descriptor.
    WithData,
    /// In a message that follows.
    Separate,
}

/// One direction of a service connection.
#[derive(Debug)]
pub(super) struct PacketAccounting {
    tag: u32,
    acknowledged: bool,
    sent: Vec<u32>,
    /// The pool that each was sent to, where there is one at a time.
    pools: Vec<Option<u32>>,
    /// Packets that have to arrive, by form.
    due: [VecDeque<u32>; 2],
    last: Option<u32>,
    pub(super) arrived: u64,
}

impl PacketAccounting {
    pub(super) fn new(tag: u32, arrangement: Arrangement) -> PacketAccounting {
        PacketAccounting {
            tag,
            acknowledged: arrangement != Arrangement::Sends,
            sent: Vec::new(),
            pools: Vec::new(),
            due: Default::default(),
            last: None,
            arrived: 0,
        }
    }

    /// The number and the bytes of the next packet.
    pub(super) fn next(&mut self, len: u32) -> (u32, Vec<u8>) {
        let number = self.sent.len() as u32;
        self.sent.push(len);
        self.pools.push(None);
        (number, content(self.tag, number, len))
    }

    /// A packet was handed to its channel.
    pub(super) fn record_sent(&mut self, number: u32, form: Indication, pool: Option<u32>) {
        self.pools[number as usize] = pool;
        self.due[form as usize].push_back(number);
    }

    /// Checks a packet that arrived.
    pub(super) fn arrive(&mut self, bytes: &[u8]) -> Result<(), String> {
        let (number, tag) = head(bytes)?;
        let sent = self.sent.get(number as usize).copied();
        if tag != self.tag || sent.is_none() {
            return Err(format!(
                "packet {number} of {tag:#x} belongs to another connection"
            ));
        }
        if sent != Some(bytes.len() as u32) || bytes != content(tag, number, bytes.len() as u32) {
            return Err(format!("packet {number} was damaged: {sent:?} bytes"));
        }
        if self.acknowledged {
            let mut firsts = self.due.iter_mut();
            let due = firsts.find(|due| due.front() == Some(&number));
            let due = due.ok_or_else(|| format!("packet {number} came twice or out of order"))?;
            due.pop_front();
        } else if self.last.is_some_and(|last| last >= number) {
            return Err(format!("packet {number} came behind {:?}", self.last));
        }
        self.last = Some(number);
        self.arrived += 1;
        Ok(())
    }

    /// Checks a packet that does not fit an element of this pool: it must have been sent to another one, which was given up since.
    pub(super) fn check_late(&self, bytes: &[u8], pool: u32) -> Result<(), String> {
        let (number, _) = head(bytes)?;
        match self.pools.get(number as usize) {
            Some(Some(other)) if *other != pool => Ok(()),
            _ => Err(format!(
                "packet {number} of {} bytes was sent to pool {pool}",
                bytes.len()
            )),
        }
    }

    /// When nothing is under way any more: acknowledged packets have arrived.
    pub(super) fn judge(&self) -> Result<(), String> {
        let missing: usize = self.due.iter().map(VecDeque::len).sum();
        if self.acknowledged && missing > 0 {
            return Err(format!("{missing} packets of {:#x} were lost", self.tag));
        }
        Ok(())
    }
}

/// The number of a packet and that of its connection.
fn head(bytes: &[u8]) -> Result<(u32, u32), String> {
    let word = |at: usize| {
        let word = bytes.get(at..at + 4).and_then(|w| w.try_into().ok());
        word.map(u32::from_be_bytes)
    };
    let never = || format!("a packet of {} bytes was never sent", bytes.len());
    word(0).zip(word(4)).ok_or_else(never)
}

/// Every byte depends on the packet's number and its connection.
fn content(tag: u32, number: u32, len: u32) -> Vec<u8> {
    let mut state = u64::from(tag) << 32 | u64::from(number);
    let mut bytes = Vec::with_capacity(len as usize + 8);
    bytes.extend(number.to_be_bytes());
    bytes.extend(tag.to_be_bytes());
    while bytes.len() < len as usize {
        state = state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        bytes.extend((state >> 16).to_be_bytes());
    }
    bytes.truncate(len as usize);
    bytes
}
