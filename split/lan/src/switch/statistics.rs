//! Counters of a port of the switch. Every frame from a port counts as received, and additionally by its [`Dropped`] reason if it has
//! one; a frame for which there is simply no other port is only counted as received.

/// Why a frame was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropped {
    /// Shorter than an Ethernet header, or its source is not a unicast address.
    Malformed,
    /// Its source is not the host's own address, or is another port's.
    Spoofed,
    /// Its destination is reserved for bridges (IEEE 802.1Q, table 8-1).
    Reserved,
    /// Its destination is behind the port that it came from.
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

/// Counters of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Came from the port.
    pub received: Traffic,
    /// Went to the port.
    pub sent: Traffic,
    /// Dropped as [`Dropped::Malformed`].
    pub malformed: u64,
    /// Dropped as [`Dropped::Spoofed`].
    pub spoofed: u64,
    /// Dropped as [`Dropped::Reserved`].
    pub reserved: u64,
    /// Dropped as [`Dropped::Local`].
    pub local: u64,
    /// Forwarded, but the source was not learnt because the port's share of the table is full.
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
