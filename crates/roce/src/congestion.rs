//! How many packets may be unacknowledged at once. Ethernet without pause frames drops packets when a queue is full, and a UDP
//! socket when its buffer is: the window grows while packets are acknowledged and shrinks when they are lost or a switch has marked them.

/// The smallest window: a loss is still noticed by the packets behind it.
const MIN: u32 = 4;
/// The window of a new connection.
const INITIAL: u32 = 64;
/// The largest window.
const MAX: u32 = 2048;

/// A window in packets. It doubles with each round trip up to a threshold, and grows by one packet for each beyond it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CongestionWindow {
    window: u32,
    threshold: u32,
    /// Acknowledged packets since the window last grew beyond the threshold.
    acked: u32,
    is_lossy: bool,
}

impl CongestionWindow {
    /// The window of a new connection. On a path that is not lossy it never changes.
    pub fn new(is_lossy: bool) -> CongestionWindow {
        CongestionWindow {
            window: if is_lossy { INITIAL } else { MAX },
            threshold: MAX,
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
            self.window = grown.min(self.threshold).min(MAX);
            return;
        }
        self.acked = self.acked.saturating_add(packets);
        if self.acked >= self.window {
            self.acked = 0;
            self.window = (self.window + 1).min(MAX);
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
        let mut window = CongestionWindow::new(true);
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
        let mut window = CongestionWindow::new(false);
        window.handle_loss();
        window.handle_timeout();
        window.handle_notification();
        assert_eq!(window.get(), MAX);
    }
}
