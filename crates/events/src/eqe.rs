//! An entry of an event queue: a code and parameters that suffice to handle the event without further queries (E1, E7, E12).
//! The code determines class, cause and channel; code 0 is an empty entry. Every cause can be encoded, and a code that is not known
//! decodes to [`Unknown`].

pub use crate::event::ChannelEvent;
use crate::event::{Event, Reason};

/// Largest number that the 4-byte form can carry.
pub const SHORT_LIMIT: u32 = 0x00ff_ffff;
/// Channels that a code can name.
pub const CHANNELS: u8 = 32;

/// First code of the channel class; the kind lies above the channel number.
const CHANNEL: u8 = 0x40;
/// The queue continues in other memory (E3). Only the reader of a queue sees it.
const MOVED: u8 = 0xff;

/// How long the entries of a queue are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// 4 bytes: code in byte 3, parameters in bytes 2 to 0.
    Short,
    /// 16 bytes: the short form, the object's whole number, a second object, the write indicator.
    Long,
}

impl Form {
    /// Words of 32 bits per entry.
    pub const fn words(self) -> usize {
        match self {
            Form::Short => 1,
            Form::Long => 4,
        }
    }
}

/// What an event concerns: one range of codes each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Queue pairs and their queues.
    Rdma,
    /// Channels of plain TCP and of the split driver.
    Channel,
    /// The adapter as a whole.
    Global,
    /// Management of the adapter.
    Management,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// A completion, or something asynchronous about an object.
    Rdma(Event),
    /// An administrative command is done.
    CommandDone {
        /// The command: the low 24 bits of the request's id.
        command: u32,
    },
    /// Something about a channel.
    Channel {
        /// The channel, below [`CHANNELS`].
        channel: u8,
        /// What.
        what: ChannelEvent,
        /// Buffers or descriptors concerned.
        count: u32,
    },
    /// Memory failed for good.
    MemoryError {
        /// Memory of the adapter itself, not outside it.
        internal: bool,
        /// Which bank.
        bank: u16,
    },
    /// A link went up or down.
    Link {
        /// The port.
        port: u16,
        /// It is up now.
        up: bool,
    },
    /// A general-purpose signal.
    GeneralPurpose {
        /// The pin.
        pin: u16,
    },
    /// An event queue has no room (E2): resize it, or switch to a larger one.
    Overflow {
        /// The queue.
        queue: u16,
    },
    /// For the management of the adapter.
    Management {
        /// Not interpreted here.
        parameter: u32,
    },
}

impl Cause {
    /// Its class.
    pub const fn class(self) -> Class {
        match self {
            Cause::Rdma(_) | Cause::CommandDone { .. } => Class::Rdma,
            Cause::Channel { .. } => Class::Channel,
            Cause::MemoryError { .. }
            | Cause::Link { .. }
            | Cause::GeneralPurpose { .. }
            | Cause::Overflow { .. } => Class::Global,
            Cause::Management { .. } => Class::Management,
        }
    }

    /// Code and number. The one table of codes.
    const fn code(self) -> (u8, u32) {
        match self {
            Cause::Rdma(Event::Completion { cq, reason }) => match reason {
                Reason::Next => (0x01, cq),
                Reason::Solicited => (0x06, cq),
                Reason::Failure => (0x07, cq),
            },
            Cause::Rdma(Event::CqOverflow { cq }) => (0x02, cq),
            Cause::Rdma(Event::SrqLimit { srq }) => (0x03, srq),
            Cause::Rdma(Event::SrqError { srq }) => (0x04, srq),
            Cause::CommandDone { command } => (0x05, command),
            Cause::Rdma(Event::QpRequest { qp }) => (0x10, qp),
            Cause::Rdma(Event::QpAccess { qp }) => (0x11, qp),
            Cause::Rdma(Event::QpFatal { qp }) => (0x12, qp),
            Cause::Rdma(Event::Established { qp }) => (0x13, qp),
            Cause::Rdma(Event::SqDrained { qp }) => (0x14, qp),
            Cause::Rdma(Event::LastWqe { qp }) => (0x15, qp),
            Cause::Rdma(Event::Disconnected { qp }) => (0x16, qp),
            // In an entry these are global events.
            Cause::Rdma(Event::PortError { port }) => (0xa2, port as u32),
            Cause::Rdma(Event::PortActive { port }) => (0xa3, port as u32),
            Cause::Rdma(Event::Missed { count }) => (0x17, count),
            Cause::Rdma(Event::DeviceFatal) => (0x18, 0),
            // In an entry, an event of the channel class.
            Cause::Rdma(Event::Channel {
                channel,
                what,
                count,
            })
            | Cause::Channel {
                channel,
                what,
                count,
            } => (
                CHANNEL + (what as u8) * CHANNELS + channel % CHANNELS,
                count,
            ),
            Cause::MemoryError { internal, bank } => (0xa0 + internal as u8, bank as u32),
            Cause::Link { port, up } => (0xa2 + up as u8, port as u32),
            Cause::GeneralPurpose { pin } => (0xa4, pin as u32),
            Cause::Overflow { queue } => (0xa5, queue as u32),
            Cause::Management { parameter } => (0xc0, parameter),
        }
    }
}

/// An entry whose code or parameters are not known. The reader continues after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown event entry: code {code:#04x}, number {number}")]
pub struct Unknown {
    /// Its code.
    pub code: u8,
    /// Its number.
    pub number: u32,
}

/// One entry.
///
/// ```text
///            byte 3   byte 2   byte 1   byte 0
/// word 0   [  code  |   parameters: number, low bits   ]   all there is of the 4-byte form
/// word 1   [  number of the object, whole              ]
/// word 2   [  a second object: connection or queue     ]
/// word 3   [  write indicator when it was written      ]
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Eqe {
    code: u8,
    number: u32,
    /// A second object: the connection or work queue of a completion where it is known; otherwise 0.
    pub context: u32,
    /// The write indicator when the entry was written; 0 in the short form.
    pub indicator: u32,
}

impl Eqe {
    /// The entry for a cause.
    pub const fn new(cause: Cause) -> Eqe {
        let (code, number) = cause.code();
        Eqe {
            code,
            number,
            context: 0,
            indicator: 0,
        }
    }

    /// The entry that points the reader to the next memory.
    pub(crate) const fn moved() -> Eqe {
        Eqe {
            code: MOVED,
            number: 0,
            context: 0,
            indicator: 0,
        }
    }

    pub(crate) const fn is_moved(self) -> bool {
        self.code == MOVED
    }

    /// With a second object.
    pub const fn with_context(self, context: u32) -> Eqe {
        Eqe { context, ..self }
    }

    /// With the current write indicator.
    pub(crate) const fn with_indicator(self, indicator: u32) -> Eqe {
        Eqe { indicator, ..self }
    }

    /// Its code; never 0.
    pub const fn code(self) -> u8 {
        self.code
    }

    /// A queue of this form can carry it.
    pub const fn fits(self, form: Form) -> bool {
        match form {
            Form::Short => self.number <= SHORT_LIMIT,
            Form::Long => true,
        }
    }

    /// The number of the object, or the parameter.
    pub const fn number(self) -> u32 {
        self.number
    }

    /// The words; a short entry is only the first.
    pub const fn words(self) -> [u32; 4] {
        let first = (self.code as u32) << 24 | self.number & SHORT_LIMIT;
        [first, self.number, self.context, self.indicator]
    }

    /// The entry in these words; none if it is empty.
    pub const fn from_words(words: [u32; 4], form: Form) -> Option<Eqe> {
        let code = (words[0] >> 24) as u8;
        if code == 0 {
            return None;
        }
        let short = words[0] & SHORT_LIMIT;
        Some(match form {
            Form::Short => Eqe {
                code,
                number: short,
                context: 0,
                indicator: 0,
            },
            Form::Long => Eqe {
                code,
                number: words[1],
                context: words[2],
                indicator: words[3],
            },
        })
    }

    /// What happened.
    pub const fn cause(self) -> Result<Cause, Unknown> {
        let Eqe { code, number, .. } = self;
        let small = number as u16;
        // The upper bits of a number of 16 bits must be 0.
        let narrow = number == small as u32;
        Ok(match code {
            0x01 => completion(number, Reason::Next),
            0x06 => completion(number, Reason::Solicited),
            0x07 => completion(number, Reason::Failure),
            0x02 => Cause::Rdma(Event::CqOverflow { cq: number }),
            0x03 => Cause::Rdma(Event::SrqLimit { srq: number }),
            0x04 => Cause::Rdma(Event::SrqError { srq: number }),
            0x05 => Cause::CommandDone { command: number },
            0x10 => Cause::Rdma(Event::QpRequest { qp: number }),
            0x11 => Cause::Rdma(Event::QpAccess { qp: number }),
            0x12 => Cause::Rdma(Event::QpFatal { qp: number }),
            0x13 => Cause::Rdma(Event::Established { qp: number }),
            0x14 => Cause::Rdma(Event::SqDrained { qp: number }),
            0x15 => Cause::Rdma(Event::LastWqe { qp: number }),
            0x16 => Cause::Rdma(Event::Disconnected { qp: number }),
            0x17 => Cause::Rdma(Event::Missed { count: number }),
            0x18 if number == 0 => Cause::Rdma(Event::DeviceFatal),
            0x40..0x60 => channel(code, ChannelEvent::BuffersLow, number),
            0x60..0x80 => channel(code, ChannelEvent::Returned, number),
            0x80..0xa0 => channel(code, ChannelEvent::IllegalPost, number),
            0xa0 | 0xa1 if narrow => Cause::MemoryError {
                internal: code == 0xa1,
                bank: small,
            },
            0xa2 | 0xa3 if narrow => Cause::Link {
                port: small,
                up: code == 0xa3,
            },
            0xa4 if narrow => Cause::GeneralPurpose { pin: small },
            0xa5 if narrow => Cause::Overflow { queue: small },
            0xc0 => Cause::Management { parameter: number },
            _ => return Err(Unknown { code, number }),
        })
    }
}

const fn completion(cq: u32, reason: Reason) -> Cause {
    Cause::Rdma(Event::Completion { cq, reason })
}

const fn channel(code: u8, what: ChannelEvent, count: u32) -> Cause {
    Cause::Channel {
        channel: code % CHANNELS,
        what,
        count,
    }
}

#[cfg(test)]
mod tests;
