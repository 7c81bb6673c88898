//! What errors of a login have in common: the party at fault, and how a peer's text is shown. At most 64 characters of such a text
//! are repeated, escaped.

/// Most characters of a peer's text in an error.
const MAX_SHOWN: usize = 64;

/// The party at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The caller: a name, a secret or a value of the offer is wrong.
    Offer,
    /// The target, or a peer that poses as it: it violated the protocol.
    Target,
    /// Neither: the target lacks resources or is out of service. A later attempt may succeed.
    Resources,
    /// Neither: the sides have no value in common.
    Neither,
}

/// The beginning of a peer's text, escaped.
pub(super) fn clip(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .take(MAX_SHOWN)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().nth(MAX_SHOWN).is_some() {
        shown.push('…');
    }
    shown
}
