//! Settings that are one of a few words.
//! It promises a type for each, so that no other word gets further than the reading of it.
//! It refuses to say what follows from them; [`super::manners`] does.

/// Let the circumstances decide, or do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The circumstances decide.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

impl Choice {
    /// On, off, or what the circumstances say.
    pub fn or(self, circumstances: bool) -> bool {
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
    /// Long towards software, fitting a TCP segment towards others.
    Auto,
    /// Fits a TCP segment (RFC 5044 §4.1).
    Mss,
    /// As long as the length field allows.
    Large,
}

/// Whom we expect at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Another Verbena: the extensions are offered, and one that declines them is treated as standard.
    Verbena,
    /// Linux `siw`: software, plain RFC 5040, refuses everything of RFC 7306.
    Siw,
    /// Any adapter that keeps to the RFCs.
    Standard,
}

/// How connections between adapters are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsMode {
    /// Not at all.
    Off,
    /// By TLS; both sides know the shared key.
    Psk,
    /// By TLS; both sides have a certificate of the same authority.
    Cert,
}

/// What is worth a line in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Log {
    /// Nothing.
    Off,
    /// What failed.
    Error,
    /// What may be a mistake.
    Warn,
    /// Connections that come and go.
    Info,
    /// What a developer of the program wants to see.
    Debug,
    /// What a developer of Verbena wants to see.
    Trace,
}
