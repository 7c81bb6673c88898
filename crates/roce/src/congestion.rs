//! How many packets may be unacknowledged at once. Ethernet without pause frames drops packets when a queue is full, and a UDP
//! socket when its buffer is: the window grows while packets are acknowledged and shrinks when they are lost or a switch has marked them.

use crate::settings::Mtu;

/// The smallest window: a loss is still noticed by the packets behind it.
const MIN: u32 = 4;
/// The window of a new connection.
const INITIAL: u32 = 64;
/// The largest window.
const MAX: u32 = 2048;
/// Bytes of the largest window: what is unacknowledged lies in the peer's socket buffer, or in caches, until the peer has read it.
const MAX_BYTES: u32 = 2 << 20;

/// A window in packets. It doubles with each round trip up to a threshold, and grows by one packet for each beyond it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CongestionWindow {
    window: u32,
    threshold: u32,
    /// The largest window.
    max: u32,
    /// Acknowledged packets since the window last grew beyond the threshold.
    acked: u32,
    is_lossy: bool,
}

impl CongestionWindow {
    /// The window of a new connection with this MTU. On a path that is not lossy it never changes.
    pub fn new(is_lossy: bool, mtu: Mtu) -> CongestionWindow {
        let max = MAX.min(MAX_BYTES / mtu.bytes());
        CongestionWindow {
            window: if is_lossy { INITIAL } else { max },
            threshold: max,
            max,
            acked: 0,
            is_lossy,
        }
    }

    /// Packets that may be unacknowledged.
    pub fn get(&self) -> u32 {
        self.window
    }

    /// `packets` were acknowledged for the first time.
    pub fn handle_acked(&mut self, packets: u32) {
        if self.window < self.threshold {
            let grown = self.window.saturating_add(packets);
            self.window = grown.min(self.threshold);
            return;
        }
        self.acked = self.acked.saturating_add(packets);
        if self.acked >= self.window {
            self.acked = 0;
            self.window = (self.window + 1).min(self.max);
        }
    }

    /// A packet was lost, and others behind it have arrived. Call it once for each round trip.
    pub fn handle_loss(&mut self) {
        self.shrink(self.window / 2);
    }

    /// Nothing was heard for the time of a retry.
    pub fn handle_timeout(&mut self) {
        self.shrink(self.window / 2);
        if self.is_lossy {
            self.window = MIN;
        }
    }

    /// The peer reports that packets met congestion (CNP). Call it once for each round trip.
    pub fn handle_notification(&mut self) {
        self.shrink(self.window - self.window / 4);
    }

    fn shrink(&mut self, to: u32) {
        if !self.is_lossy {
            return;
        }
        self.threshold = to.max(MIN);
        self.window = self.threshold;
        self.acked = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_grows_and_shrinks_within_its_limits() {
        let mut window = CongestionWindow::new(true, Mtu::B1024);
        window.handle_acked(INITIAL);
        assert_eq!(window.get(), 2 * INITIAL);
        window.handle_loss();
        assert_eq!(window.get(), INITIAL);
        // Beyond the threshold: one packet more for each window that is acknowledged.
        window.handle_acked(INITIAL);
        assert_eq!(window.get(), INITIAL + 1);
        window.handle_notification();
        assert_eq!(window.get(), 49);
        for _ in 0..100 {
            window.handle_loss();
        }
        assert_eq!(window.get(), MIN);
        window.handle_timeout();
        assert_eq!(window.get(), MIN);
        for _ in 0..2 * MAX {
            window.handle_acked(u32::MAX);
        }
        assert_eq!(window.get(), MAX);
    }

    #[test]
    fn window_of_a_lossless_path_stays() {
        let mut window = CongestionWindow::new(false, Mtu::B256);
        window.handle_loss();
        window.handle_timeout();
        window.handle_notification();
        assert_eq!(window.get(), MAX);
    }

    #[test]
    fn window_is_limited_in_bytes() {
        let mut window = CongestionWindow::new(true, Mtu::B4096);
        window.handle_acked(u32::MAX);
        assert_eq!(window.get() * Mtu::B4096.bytes(), MAX_BYTES);
    }
}
