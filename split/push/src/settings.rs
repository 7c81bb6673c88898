//! The settings of a session: the arrangement of channels, sizes, and a limit on everything that can grow. They are checked once,
//! by `Session::new`.

use crate::error::Misuse;
use crate::window::INITIAL_CREDIT;

/// How channels and transfers are arranged (P5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arrangement {
    /// (A) Control and data channel, each with its own connection: sends only, unacknowledged. A packet is sent bare.
    Sends,
    /// (B) One service connection of two acknowledged channels: packets by RDMA write, messages on the control channel.
    Writes,
    /// (C) A single channel: packets inside SendData messages.
    Single,
}

impl Arrangement {
    /// Every arrangement.
    pub const ALL: [Arrangement; 3] =
        [Arrangement::Sends, Arrangement::Writes, Arrangement::Single];

    /// Whether the elements of a pool are receive descriptors, used in order and counted, instead of addressed memory.
    pub const fn counts(self) -> bool {
        !matches!(self, Arrangement::Writes)
    }
}

/// How transfers by RDMA write are indicated (P7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IndicationMode {
    /// In the immediate data if it fits, by pool and element in a message otherwise.
    Immediate,
    /// Always by pool and element in a message.
    Element,
    /// Always by address in a message: the form for the outbound direction.
    Address,
}

/// Limits on everything that the peer or the program can make grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Pools of one owner.
    pub pools: u32,
    /// Elements of all pools of one owner together.
    pub elements: u32,
    /// Open requests of one side; also answers that one side owes.
    pub transactions: u32,
    /// Outputs not yet polled; beyond it input is an error.
    pub outputs: usize,
}

impl Limits {
    /// Enough for a driver; bounds the memory of a session to a few megabytes.
    pub const DEFAULT: Limits = Limits {
        pools: 1024,
        elements: 1 << 17,
        transactions: 64,
        outputs: 1 << 18,
    };
}

/// The settings of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Both sides must choose the same.
    pub arrangement: Arrangement,
    /// How our transfers are indicated.
    pub indication: IndicationMode,
    /// Bytes of the longest message; both sides must choose the same. A SendData may be longer, by the size of its pool's elements.
    pub frame: u32,
    /// Receive descriptors that we keep posted for messages other than SendData.
    pub messages: u32,
    /// Ask for more when fewer elements than this are free; 0 asks only when a packet was refused.
    pub low: u32,
    /// Number of elements to ask for.
    pub request_count: u32,
    /// The limits.
    pub limits: Limits,
}

/// The shortest frame: holds a pool entry and some configuration data.
pub const MIN_FRAME: u32 = 64;
/// The longest frame.
pub const MAX_FRAME: u32 = 1 << 20;
/// Most descriptors for messages.
pub const MAX_MESSAGES: u32 = 1 << 16;

impl Settings {
    /// The default settings.
    pub const fn new(arrangement: Arrangement) -> Settings {
        Settings {
            arrangement,
            indication: IndicationMode::Immediate,
            frame: 4096,
            messages: 64,
            low: 16,
            request_count: 256,
            limits: Limits::DEFAULT,
        }
    }

    /// Checks every number against the range that a session supports.
    pub(crate) fn check(self) -> Result<Settings, Misuse> {
        let limits = self.limits;
        let fields = [
            ("frame", self.frame, MIN_FRAME, MAX_FRAME),
            ("messages", self.messages, INITIAL_CREDIT, MAX_MESSAGES),
            ("low", self.low, 0, i32::MAX as u32),
            ("ask", self.request_count, 1, i32::MAX as u32),
            ("pools", limits.pools, 1, 1 << 24),
            // Differences of 32-bit running numbers must stay below half the range.
            ("elements", limits.elements, 1, 1 << 28),
            ("transactions", limits.transactions, 1, 1 << 20),
        ];
        for (field, got, least, most) in fields {
            if got < least || got > most {
                return Err(Misuse::Setting {
                    field,
                    got,
                    least,
                    most,
                });
            }
        }
        if limits.outputs == 0 {
            return Err(Misuse::Setting {
                field: "outputs",
                got: 0,
                least: 1,
                most: u32::MAX,
            });
        }
        Ok(self)
    }
}
