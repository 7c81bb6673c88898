//! The secret in the address of the page: 128 random bits as text. Comparing takes the same time wherever two differ.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};
use subtle::ConstantTimeEq;

const BYTES: usize = 16;

/// A secret; not printed by `Debug`.
#[derive(Clone)]
pub(super) struct Token(String);

impl Token {
    /// A new one.
    pub(super) fn new() -> io::Result<Token> {
        let mut bytes = [0; BYTES];
        // The kernel gives so few bytes at once.
        let count = getrandom(&mut bytes, GetRandomFlags::empty())?;
        if count != BYTES {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
        Ok(Token(digits.collect()))
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// Whether this is the token.
    pub(super) fn is(&self, text: &str) -> bool {
        self.0.as_bytes().ct_eq(text.as_bytes()).into()
    }
}

impl core::fmt::Debug for Token {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_long_and_differ() {
        let (a, b) = (Token::new().unwrap(), Token::new().unwrap());
        assert_eq!(a.text().len(), 2 * BYTES);
        assert!(a.is(a.text()) && !a.is(b.text()) && !a.is("") && !a.is(&a.text()[1..]));
        assert_eq!(format!("{a:?}"), "Token");
    }
}
