//! The handshake phase (fixed newstyle): flags, options, and the choice of the export. Answers are bounded, input may be split anywhere,
//! and nothing after the option that ends the phase is consumed. There is no I/O here.

use super::codec::{
    FIXED_NEWSTYLE, GREETING, NO_ZEROES, OPTION, OPTION_REPLY, info, option, reply_type,
};

/// The longest export name (the protocol's limit on strings).
pub const MAX_NAME: usize = 4096;
/// The longest option that is read; a longer one is answered with NBD_REP_ERR_TOO_BIG and skipped.
const MAX_OPTION: usize = MAX_NAME + 256;
/// The longest option that is skipped; a longer one ends the connection.
const MAX_SKIPPED: u32 = 64 << 10;
/// Most options per client.
const MAX_OPTIONS: u32 = 128;
/// Bytes before an option's data.
const OPTION_HEAD: usize = 16;
/// Size that the caller's input buffer needs.
pub(super) const LONGEST: usize = OPTION_HEAD + MAX_OPTION;
/// Zeroes after the reply to NBD_OPT_EXPORT_NAME without NBD_FLAG_C_NO_ZEROES.
const ZEROES: usize = 124;

/// What clients are told about the export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ExportInfo {
    pub(super) name: String,
    pub(super) bytes: u64,
    /// Transmission flags, without those that depend on the negotiation.
    pub(super) flags: u16,
    /// Block sizes: minimum, preferred, maximum.
    pub(super) sizes: [u32; 3],
    /// Added to the flags after structured replies were negotiated.
    pub(super) structured_flags: u16,
}

/// State of the negotiation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The client flags are expected.
    Flags,
    /// An option is expected.
    Option,
    /// Bytes left of an option that is skipped.
    Skip(u32),
}

/// End of the negotiation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The client has chosen the export; the transmission phase begins.
    Go {
        /// Structured replies were negotiated.
        structured_replies: bool,
    },
    /// NBD_OPT_ABORT.
    Abort,
}

/// A protocol violation, which ends the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Violation {
    #[error("flags {0:#x} that were not offered")]
    Flags(u32),
    #[error("an option begins with {0:#018x}")]
    Magic(u64),
    #[error("option {option} of {len} bytes")]
    Long { option: u32, len: u32 },
    #[error("more than {MAX_OPTIONS} options")]
    Options,
    #[error("unknown export requested with NBD_OPT_EXPORT_NAME")]
    Export,
}

/// The negotiation with one client.
#[derive(Debug)]
pub(super) struct Handshake {
    state: State,
    options: u32,
    zeroes: bool,
    structured_replies: bool,
}

/// The server's initial bytes.
pub(super) fn greeting() -> [u8; 18] {
    let mut out = [0; 18];
    out[..8].copy_from_slice(&GREETING.to_be_bytes());
    out[8..16].copy_from_slice(&OPTION.to_be_bytes());
    out[16..].copy_from_slice(&(FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
    out
}

impl Handshake {
    pub(super) fn new() -> Handshake {
        Handshake {
            state: State::Flags,
            options: 0,
            zeroes: true,
            structured_replies: false,
        }
    }

    /// Consumes at most one item of the input. Returns the bytes consumed (0: more are needed) and the end of the negotiation, if reached.
    /// Replies are appended to `out`.
    pub(super) fn take(
        &mut self,
        input: &[u8],
        facts: &ExportInfo,
        out: &mut Vec<u8>,
    ) -> Result<(usize, Option<Verdict>), Violation> {
        match self.state {
            State::Flags => {
                let Some(flags) = number(input, 0) else {
                    return Ok((0, None));
                };
                if flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
                    return Err(Violation::Flags(flags));
                }
                self.zeroes = flags & u32::from(NO_ZEROES) == 0;
                self.state = State::Option;
                Ok((4, None))
            }
            State::Skip(left) => {
                let now = left.min(u32::try_from(input.len()).unwrap_or(left));
                self.state = match left - now {
                    0 => State::Option,
                    left => State::Skip(left),
                };
                Ok((now as usize, None))
            }
            State::Option => self.option(input, facts, out),
        }
    }

    fn option(
        &mut self,
        input: &[u8],
        facts: &ExportInfo,
        out: &mut Vec<u8>,
    ) -> Result<(usize, Option<Verdict>), Violation> {
        let (Some(high), Some(low)) = (number(input, 0), number(input, 4)) else {
            return Ok((0, None));
        };
        let magic = u64::from(high) << 32 | u64::from(low);
        if magic != OPTION {
            return Err(Violation::Magic(magic));
        }
        let (Some(option), Some(len)) = (number(input, 8), number(input, 12)) else {
            return Ok((0, None));
        };
        if len as usize > MAX_OPTION {
            if len > MAX_SKIPPED || option == option::EXPORT_NAME {
                return Err(Violation::Long { option, len });
            }
            self.count()?;
            reply(out, option, reply_type::TOO_BIG, &[]);
            self.state = State::Skip(len);
            return Ok((OPTION_HEAD, None));
        }
        let end = OPTION_HEAD + len as usize;
        let Some(data) = input.get(OPTION_HEAD..end) else {
            return Ok((0, None));
        };
        self.count()?;
        Ok((end, self.decide(option, data, facts, out)?))
    }

    fn count(&mut self) -> Result<(), Violation> {
        self.options += 1;
        (self.options <= MAX_OPTIONS)
            .then_some(())
            .ok_or(Violation::Options)
    }

    /// Handles one option.
    fn decide(
        &mut self,
        option: u32,
        data: &[u8],
        facts: &ExportInfo,
        out: &mut Vec<u8>,
    ) -> Result<Option<Verdict>, Violation> {
        let go = Verdict::Go {
            structured_replies: self.structured_replies,
        };
        match option {
            option::EXPORT_NAME => {
                if !facts.is_named(data) {
                    return Err(Violation::Export);
                }
                out.extend_from_slice(&facts.bytes.to_be_bytes());
                out.extend_from_slice(&self.flags(facts).to_be_bytes());
                out.extend_from_slice(&[0; ZEROES][..if self.zeroes { ZEROES } else { 0 }]);
                return Ok(Some(go));
            }
            option::ABORT => {
                reply(out, option, reply_type::ACK, &[]);
                return Ok(Some(Verdict::Abort));
            }
            option::LIST if data.is_empty() => {
                let name = facts.name.as_bytes();
                let len = (name.len() as u32).to_be_bytes();
                reply(out, option, reply_type::SERVER, &[&len, name]);
                reply(out, option, reply_type::ACK, &[]);
            }
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.structured_replies = true;
                reply(out, option, reply_type::ACK, &[]);
            }
            option::INFO | option::GO => match choice(data) {
                Some((name, wants)) if facts.is_named(name) => {
                    self.inform(option, wants, facts, out);
                    return Ok((option == option::GO).then_some(go));
                }
                Some(_) => reply(out, option, reply_type::UNKNOWN, &[]),
                None => reply(out, option, reply_type::INVALID, &[]),
            },
            option::LIST | option::STRUCTURED_REPLY => reply(out, option, reply_type::INVALID, &[]),
            _ => reply(out, option, reply_type::UNSUPPORTED, &[]),
        }
        Ok(None)
    }

    /// Answers NBD_OPT_INFO and NBD_OPT_GO: always with NBD_INFO_EXPORT and NBD_INFO_BLOCK_SIZE, and with NBD_INFO_NAME on request.
    fn inform(&self, option: u32, wants: &[u8], facts: &ExportInfo, out: &mut Vec<u8>) {
        let (bytes, flags) = (facts.bytes.to_be_bytes(), self.flags(facts).to_be_bytes());
        let export = [&info::EXPORT.to_be_bytes()[..], &bytes, &flags];
        reply(out, option, reply_type::INFO, &export);
        let [least, best, most] = facts.sizes.map(u32::to_be_bytes);
        let sizes = [&info::BLOCK_SIZE.to_be_bytes()[..], &least, &best, &most];
        reply(out, option, reply_type::INFO, &sizes);
        let mut kinds = wants.as_chunks::<2>().0.iter();
        if kinds.any(|kind| *kind == info::NAME.to_be_bytes()) {
            let name = [&info::NAME.to_be_bytes()[..], facts.name.as_bytes()];
            reply(out, option, reply_type::INFO, &name);
        }
        reply(out, option, reply_type::ACK, &[]);
    }

    fn flags(&self, facts: &ExportInfo) -> u16 {
        facts.flags
            | if self.structured_replies {
                facts.structured_flags
            } else {
                0
            }
    }
}

impl ExportInfo {
    /// There is one export: the empty name selects it as well.
    fn is_named(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.name.as_bytes()
    }
}

/// Name and information requests of NBD_OPT_INFO and NBD_OPT_GO, if the lengths are consistent.
fn choice(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = number(data, 0)? as usize;
    let after = data.get(4..)?;
    let (name, rest) = after.split_at_checked(len)?;
    let (count, wants) = rest.split_at_checked(2)?;
    let count = u16::from_be_bytes([count[0], count[1]]);
    (wants.len() == 2 * usize::from(count)).then_some((name, wants))
}

fn reply(out: &mut Vec<u8>, option: u32, kind: u32, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    out.extend_from_slice(&OPTION_REPLY.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&(len as u32).to_be_bytes());
    for part in parts {
        out.extend_from_slice(part);
    }
}

/// A big-endian number of the input, if its four bytes are there.
fn number(input: &[u8], at: usize) -> Option<u32> {
    let four = input.get(at..at + 4)?.first_chunk()?;
    Some(u32::from_be_bytes(*four))
}

#[cfg(test)]
mod tests;
