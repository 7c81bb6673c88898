//! What passed a port of the switch, and what did not and why.
//! It promises that every frame that came is counted as received, and as dropped if it went to nobody for a fault of its own.
//! It refuses to forget: counters only grow.

/// Why a frame went to nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropped {
    /// Shorter than its addresses, or from an address that no station can have.
    Malformed,
    /// From an address that its port may not use: not the host's own, or another's.
    Spoofed,
    /// For an address that bridges keep to themselves.
    Reserved,
    /// For a station on the side that it came from.
    Local,
}

/// Frames and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Frames.
    pub frames: u64,
    /// Their bytes, Ethernet header included.
    pub bytes: u64,
}

impl Traffic {
    pub(super) fn add(&mut self, len: usize) {
        self.frames += 1;
        self.bytes += len as u64;
    }
}

/// What passed a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Came from the port.
    pub received: Traffic,
    /// Went to the port.
    pub sent: Traffic,
    /// Came malformed.
    pub malformed: u64,
    /// Came from an address that the port may not use.
    pub spoofed: u64,
    /// Came for an address that bridges keep to themselves.
    pub reserved: u64,
    /// Came for a station on the same side.
    pub local: u64,
    /// Came from an address for which there was no room in the port's share of the table.
    pub unlearnt: u64,
}

impl Statistics {
    pub(super) fn drop(&mut self, why: Dropped) {
        *match why {
            Dropped::Malformed => &mut self.malformed,
            Dropped::Spoofed => &mut self.spoofed,
            Dropped::Reserved => &mut self.reserved,
            Dropped::Local => &mut self.local,
        } += 1;
    }
}
