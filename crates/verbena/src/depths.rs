//! How many operations of a connection are posted at once. Numbers beyond the device's limits are reduced to them.

/// How many operations of a connection are posted at once; more wait in a queue.
///
/// ```
/// let depths = verbena::Depths { recvs: 1024, ..verbena::Depths::default() };
/// # assert_eq!(depths.sends, 128);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Depths {
    /// Sends, writes, reads and atomics.
    pub sends: usize,
    /// Receives.
    pub recvs: usize,
    /// Inbound reads and atomics served at once (IRD); by default the device's setting.
    pub ird: Option<u16>,
    /// Outbound reads and atomics outstanding at once (ORD), reduced to what the peer serves; by default the device's setting.
    pub ord: Option<u16>,
}

impl Default for Depths {
    fn default() -> Depths {
        Depths {
            sends: 128,
            recvs: 128,
            ird: None,
            ord: None,
        }
    }
}
