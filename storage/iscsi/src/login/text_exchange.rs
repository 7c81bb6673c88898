//! The text of a login in both directions: text longer than a PDU is split and reassembled with the C bit (RFC 7143 §6.2). The target's
//! text is bounded by [`MAX_TEXT`] bytes and the login by [`MAX_EXCHANGES`] exchanges. The text is not interpreted here.

use super::error::LoginError;

#[cfg(test)]
mod tests;

/// Most bytes of text in one PDU of a login: the default, as nothing else was declared yet (RFC 7143 §13.12).
pub(super) const MAX_CHUNK: usize = 8192;
/// Most bytes of text that the target may send in a whole login.
pub const MAX_TEXT: usize = 65536;
/// Most requests of a login.
pub const MAX_EXCHANGES: u32 = 64;

/// Text of a login in progress.
#[derive(Debug, Default)]
pub(super) struct TextExchange {
    /// Our text.
    out: Vec<u8>,
    /// Bytes of `out` whose request was answered.
    answered: usize,
    /// The target's text so far, while its C bit is set.
    received: Vec<u8>,
    /// The last response had the C bit: our requests are empty until the text is complete.
    receiving: bool,
    /// Bytes received in the whole login.
    total: usize,
    exchanges: u32,
}

impl TextExchange {
    /// Sets the text of the next requests.
    pub(super) fn set_text(&mut self, text: Vec<u8>) {
        self.out = text;
        self.answered = 0;
    }

    /// The text of the next request, and whether its C bit is set.
    pub(super) fn chunk(&self) -> (&[u8], bool) {
        let rest = self.out.get(self.answered..).unwrap_or_default();
        match rest.split_at_checked(MAX_CHUNK) {
            Some((chunk, behind)) => (chunk, !behind.is_empty()),
            None => (rest, false),
        }
    }

    /// Whether the next request ends our text, so that it may request a stage transition.
    pub(super) fn is_last(&self) -> bool {
        !self.receiving && !self.chunk().1
    }

    /// Takes the text of a response. Returns the target's text once both sides' texts are complete.
    pub(super) fn receive(
        &mut self,
        more: bool,
        data: &[u8],
    ) -> Result<Option<Vec<u8>>, LoginError> {
        self.exchanges += 1;
        if self.exchanges > MAX_EXCHANGES {
            let limit = MAX_EXCHANGES;
            return Err(LoginError::TooLong { limit });
        }
        let (chunk, goes_on) = self.chunk();
        let said = chunk.len();
        if goes_on {
            // RFC 7143 §6.2: while our C bit is set, the target answers with an empty text.
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
        self.set_text(Vec::new());
        self.received.extend_from_slice(data);
        self.receiving = more;
        Ok((!more).then(|| core::mem::take(&mut self.received)))
    }
}
