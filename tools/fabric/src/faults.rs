//! The faults of a link, in both directions alike: ratios of lost, repeated, corrupted and overtaken frames, delay, jitter and bandwidth.
//! A ratio is at most one, and none of the values can stop the machine.

use core::fmt;
use core::time::Duration;

/// A ratio in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ratio(u32);

impl Ratio {
    /// Never.
    pub const NEVER: Ratio = Ratio(0);
    /// Always.
    pub const ALWAYS: Ratio = Ratio(1_000_000);

    /// `n` of a million; more than a million is a million.
    pub const fn millionths(n: u32) -> Ratio {
        Ratio(if n > 1_000_000 { 1_000_000 } else { n })
    }

    /// In millionths.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.0) / 10_000.0)
    }
}

/// What a link does to frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// Frames that are lost.
    pub loss: Ratio,
    /// Frames that arrive twice.
    pub repeat: Ratio,
    /// Frames in which one bit is inverted.
    pub corrupt: Ratio,
    /// Frames that are held back, so that later ones overtake them.
    pub reorder: Ratio,
    /// The time that a frame takes.
    pub delay: Duration,
    /// A random part of this is added to the delay, for each frame on its own: frames overtake each other.
    pub jitter: Duration,
    /// Bits per second; `None`: unlimited.
    pub bandwidth: Option<u64>,
}

impl Faults {
    /// No fault.
    pub const NONE: Faults = Faults {
        loss: Ratio::NEVER,
        repeat: Ratio::NEVER,
        corrupt: Ratio::NEVER,
        reorder: Ratio::NEVER,
        delay: Duration::ZERO,
        jitter: Duration::ZERO,
        bandwidth: None,
    };
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        for (name, ratio) in [
            ("loss", self.loss),
            ("repeat", self.repeat),
            ("corrupt", self.corrupt),
            ("reorder", self.reorder),
        ] {
            if ratio != Ratio::NEVER {
                words.push(format!("{name}={ratio}"));
            }
        }
        for (name, time) in [("delay", self.delay), ("jitter", self.jitter)] {
            if !time.is_zero() {
                words.push(format!("{name}={time:?}"));
            }
        }
        if let Some(bits) = self.bandwidth {
            words.push(match bits {
                bits if bits % 1_000_000_000 == 0 => {
                    format!("bandwidth={}gbit", bits / 1_000_000_000)
                }
                bits if bits % 1_000_000 == 0 => format!("bandwidth={}mbit", bits / 1_000_000),
                bits if bits % 1_000 == 0 => format!("bandwidth={}kbit", bits / 1_000),
                bits => format!("bandwidth={bits}bit"),
            });
        }
        f.write_str(&words.join(" "))
    }
}
