//! The text of a login in both directions: long text is cut into PDUs and put together again (RFC 7143 §6.2, the C bit).
//! It promises whole texts, and an end: so many bytes and so many exchanges, whatever the target does. What the text says is not
//! known here.

use super::error::LoginError;

#[cfg(test)]
mod tests;

/// Most bytes of text in one PDU of a login: nothing else was declared yet (RFC 7143 §13.12).
pub(super) const MAX_CHUNK: usize = 8192;
/// Most bytes of text that the target may send in a whole login.
pub const MAX_TEXT: usize = 65536;
/// Most requests of a login.
pub const MAX_EXCHANGES: u32 = 64;

/// The text under way.
#[derive(Debug, Default)]
pub(super) struct Talk {
    /// What we say.
    out: Vec<u8>,
    /// Bytes of it that were answered.
    answered: usize,
    /// What the target said so far of a text that goes on.
    heard: Vec<u8>,
    /// The target's last response goes on: we say nothing until it is done.
    listening: bool,
    /// Bytes heard in the whole login.
    total: usize,
    exchanges: u32,
}

impl Talk {
    /// Text for the next requests.
    pub(super) fn say(&mut self, text: Vec<u8>) {
        self.out = text;
        self.answered = 0;
    }

    /// The text of the next request, and whether it goes on.
    pub(super) fn chunk(&self) -> (&[u8], bool) {
        let rest = self.out.get(self.answered..).unwrap_or_default();
        match rest.split_at_checked(MAX_CHUNK) {
            Some((chunk, behind)) => (chunk, !behind.is_empty()),
            None => (rest, false),
        }
    }

    /// Whether the next request is the last of what we have to say, so that it may ask to leave the stage.
    pub(super) fn is_last(&self) -> bool {
        !self.listening && !self.chunk().1
    }

    /// Takes the text of a response. The whole text comes out when both sides have said theirs.
    pub(super) fn hear(&mut self, more: bool, data: &[u8]) -> Result<Option<Vec<u8>>, LoginError> {
        self.exchanges += 1;
        if self.exchanges > MAX_EXCHANGES {
            let limit = MAX_EXCHANGES;
            return Err(LoginError::TooLong { limit });
        }
        let (chunk, goes_on) = self.chunk();
        let said = chunk.len();
        if goes_on {
            // RFC 7143 §6.2: until our text is whole, the target answers without any.
            if more || !data.is_empty() {
                return Err(LoginError::Interrupted);
            }
            self.answered += said;
            return Ok(None);
        }
        self.total += data.len();
        if self.total > MAX_TEXT {
            let limit = MAX_TEXT;
            return Err(LoginError::TooMuchText { limit });
        }
        self.say(Vec::new());
        self.heard.extend_from_slice(data);
        self.listening = more;
        Ok((!more).then(|| core::mem::take(&mut self.heard)))
    }
}
