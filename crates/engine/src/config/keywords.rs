//! Types of the settings that accept a few words.
//! What a word means for a connection is computed in [`super::peer_settings`].

use verbena_events::interrupts::Scheme;

/// On, off, or chosen by the adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The adapter chooses.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

impl Choice {
    /// The value; `circumstances` is that of `Auto`.
    pub fn resolve(self, circumstances: bool) -> bool {
        match self {
            Choice::Auto => circumstances,
            Choice::On => true,
            Choice::Off => false,
        }
    }
}

/// How long a frame may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fpdu {
    /// Large towards Verbena, fitting a TCP segment towards other peers.
    Auto,
    /// Fits a TCP segment (RFC 5044 §4.1).
    Mss,
    /// As long as the length field allows.
    Large,
}

/// The kind of peer that is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Another Verbena: the extensions are offered; a peer that declines them is treated as standard.
    Verbena,
    /// Linux `siw`: software, RFC 5040 only, rejects all messages of RFC 7306.
    Siw,
    /// Any adapter that implements the RFCs.
    Standard,
    /// Any RoCEv2 adapter: connections and datagrams use UDP port 4791.
    Roce,
}

/// The protocol that queue pairs are connected with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// The adapter chooses: iWARP over TCP, and RoCEv2 for connections by address that are refused there.
    Auto,
    /// iWARP over TCP.
    Tcp,
    /// RoCEv2 over UDP.
    Roce,
}

/// How connections between adapters are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsMode {
    /// Not at all.
    Off,
    /// By TLS with the shared key.
    Psk,
    /// By TLS with certificates of one authority on both sides.
    Cert,
}

/// How an event finds its processor, event queue and interrupt vector (E8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routing {
    /// Scheme 1: by duty and processor; a completion goes to the processors of its handler.
    Processor,
    /// Scheme 1, and a completion goes to the processors that the redirection table names for the addresses of its packet.
    Hash,
    /// Scheme 2: by event queue; the redirection table names that of channel events.
    Queue,
}

impl Routing {
    /// The scheme of the event queues.
    pub fn scheme(self) -> Scheme {
        match self {
            Routing::Processor | Routing::Hash => Scheme::ByProcessor,
            Routing::Queue => Scheme::ByQueue,
        }
    }
}

/// How the memory of event queues is allocated (E1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventMemory {
    /// In one piece.
    Contiguous,
    /// In separate pages of 4 KiB.
    Paged,
}

/// When the driver acknowledges the event queue entries that it has read (E5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acknowledge {
    /// At the end of each service, in the write that arms the queue.
    Eager,
    /// When half of the queue is read, or when it is empty; the queue is polled and not armed meanwhile.
    Lazy,
}

/// Which events are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Log {
    /// Nothing.
    Off,
    /// Failures.
    Error,
    /// Possible mistakes.
    Warn,
    /// Connections that begin and end.
    Info,
    /// For developers of the program.
    Debug,
    /// For developers of Verbena.
    Trace,
}
