//! The one register that a driver writes: queue number, armed, valid and read indicator in 64 bits (E3).
//! One write acknowledges what was read and re-arms. Whether the queue exists is not checked here.
//!
//! ```text
//! 63     62     61         60..48     47..32         31..0
//! armed  valid  relative   must be 0  queue number   read indicator, or how far it advances
//! ```

const ARMED: u64 = 1 << 63;
const VALID: u64 = 1 << 62;
const RELATIVE: u64 = 1 << 61;
const RESERVED: u64 = 0x1fff << 48;

/// The read indicator of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Indicator {
    /// Nothing (valid = 0): it stays.
    Keep,
    /// It is at this position.
    At(u32),
    /// It advances by so many entries, in whichever memory they were, so that one thread may advance while another
    /// switches.
    By(u32),
}

/// One write of the register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Doorbell {
    /// Which queue.
    pub queue: u16,
    /// Armed after the write, or else unarmed.
    pub armed: bool,
    /// How far it has been read.
    pub read: Indicator,
}

/// A write with reserved bits set. It has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:#018x} is no write of the event register: bits 48 to 60, and those of an indicator that is not valid, must be 0"
)]
pub struct Malformed(pub u64);

impl Doorbell {
    /// The register value.
    pub const fn pack(self) -> u64 {
        let armed = if self.armed { ARMED } else { 0 };
        let read = match self.read {
            Indicator::Keep => 0,
            Indicator::At(position) => VALID | position as u64,
            Indicator::By(count) => VALID | RELATIVE | count as u64,
        };
        armed | (self.queue as u64) << 32 | read
    }

    /// Decodes a register value.
    pub const fn unpack(register: u64) -> Result<Doorbell, Malformed> {
        let (valid, relative) = (register & VALID != 0, register & RELATIVE != 0);
        let value = register as u32;
        let read = match (valid, relative) {
            (true, false) => Indicator::At(value),
            (true, true) => Indicator::By(value),
            (false, false) if value == 0 => Indicator::Keep,
            _ => return Err(Malformed(register)),
        };
        if register & RESERVED != 0 {
            return Err(Malformed(register));
        }
        Ok(Doorbell {
            queue: (register >> 32) as u16,
            armed: register & ARMED != 0,
            read,
        })
    }
}

#[cfg(test)]
mod tests;
