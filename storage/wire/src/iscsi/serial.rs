//! Sequence numbers of 32 bits, which wrap (RFC 1982, RFC 7143 §4.2.2), and the window of commands a target grants.
//! Comparisons are valid while two numbers are less than half the number space apart.

use core::fmt;

const HALF: u32 = 1 << 31;

/// Whether `b` lies ahead of `a`.
pub const fn sn_lt(a: u32, b: u32) -> bool {
    let ahead = b.wrapping_sub(a);
    ahead != 0 && ahead < HALF
}

/// Whether `b` is `a` or lies ahead of it.
pub const fn sn_le(a: u32, b: u32) -> bool {
    b.wrapping_sub(a) < HALF
}

/// The CmdSNs that a target accepts now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Window {
    /// ExpCmdSN: the first command that the target has not received yet.
    pub exp_cmd_sn: u32,
    /// MaxCmdSN: the last command it accepts; ExpCmdSN − 1 if it accepts none.
    pub max_cmd_sn: u32,
}

impl Window {
    /// Whether a request with this CmdSN may be sent.
    pub const fn has_room_for(self, cmd_sn: u32) -> bool {
        sn_le(cmd_sn, self.max_cmd_sn)
    }

    /// Whether MaxCmdSN is at least ExpCmdSN − 1, as RFC 7143 §4.2.2.1 requires.
    pub const fn is_valid(self) -> bool {
        sn_le(self.exp_cmd_sn.wrapping_sub(1), self.max_cmd_sn)
    }

    /// The window after `news`: an invalid one changes nothing, and either end only moves forward (RFC 7143 §4.2.2.1).
    #[must_use]
    pub const fn advanced_to(self, other: Window) -> Window {
        let mut now = self;
        if !other.is_valid() {
            return now;
        }
        if sn_lt(self.exp_cmd_sn, other.exp_cmd_sn) {
            now.exp_cmd_sn = other.exp_cmd_sn;
        }
        if sn_lt(self.max_cmd_sn, other.max_cmd_sn) {
            now.max_cmd_sn = other.max_cmd_sn;
        }
        now
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "window={}..={}", self.exp_cmd_sn, self.max_cmd_sn)
    }
}
