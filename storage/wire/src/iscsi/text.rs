//! Text keys (RFC 7143 §6.1): `Key=Value` pairs, each ended by a zero byte, and the encodings of values. Keys and values
//! are within the limits of the RFC, and text that ends inside a pair is an error. The negotiation is not part of this
//! module.

use verbena_wire::Malformed;

mod binary;

pub use binary::{base64, binary, hex};

#[cfg(test)]
mod tests;

/// Most bytes of a key.
pub const MAX_KEY: usize = 63;
/// Most bytes of a value, unless the key allows more.
pub const MAX_VALUE: usize = 8192;

/// The pairs of a text, in order. The iterator ends after the first error.
#[derive(Debug, Clone)]
pub struct Pairs<'a> {
    rest: &'a [u8],
    at: usize,
}

impl<'a> Pairs<'a> {
    /// Reads whole text: the caller has joined the parts of PDUs with the C bit.
    pub const fn new(text: &'a [u8]) -> Pairs<'a> {
        Pairs { rest: text, at: 0 }
    }

    /// The bytes up to the next zero. Empty pairs are skipped, since some targets pad with zeros.
    fn pair(&mut self) -> Option<Result<&'a [u8], Malformed>> {
        let zeros = self.rest.iter().take_while(|b| **b == 0).count();
        let rest = self.rest.get(zeros..).unwrap_or_default();
        self.at += zeros;
        self.rest = &[];
        if rest.is_empty() {
            return None;
        }
        let Some(len) = rest.iter().position(|b| *b == 0) else {
            return Some(Err(self.wrong("a pair without its final zero")));
        };
        let (pair, behind) = rest.split_at_checked(len)?;
        self.rest = behind;
        Some(Ok(pair))
    }

    fn split(&self, pair: &'a [u8]) -> Result<(&'a str, &'a str), Malformed> {
        let text = core::str::from_utf8(pair).map_err(|_| self.wrong("a pair not in UTF-8"))?;
        let (key, value) = text
            .split_once('=')
            .ok_or(self.wrong("a pair without \'=\'"))?;
        if key.is_empty() {
            return Err(self.wrong("a pair without a key"));
        }
        limit("text key", MAX_KEY, key)?;
        limit("text value", MAX_VALUE, value)?;
        Ok((key, value))
    }

    fn wrong(&self, what: &'static str) -> Malformed {
        Malformed::Text { what, at: self.at }
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = Result<(&'a str, &'a str), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let pair = match self.pair()? {
            Ok(pair) => pair,
            Err(error) => return Some(Err(error)),
        };
        let split = self.split(pair);
        self.at += pair.len();
        if split.is_err() {
            self.rest = &[];
        }
        Some(split)
    }
}

impl core::iter::FusedIterator for Pairs<'_> {}

fn limit(what: &'static str, limit: usize, text: &str) -> Result<(), Malformed> {
    let got = text.len();
    if got > limit {
        return Err(Malformed::TooLong { what, limit, got });
    }
    Ok(())
}

/// Appends a pair. The value is cut at a zero byte, behind which the peer would read another pair.
pub fn push(text: &mut Vec<u8>, key: &str, value: &str) {
    let value = value.split('\0').next().unwrap_or_default();
    text.extend_from_slice(key.as_bytes());
    text.push(b'=');
    text.extend_from_slice(value.as_bytes());
    text.push(0);
}

/// A number: decimal, or hexadecimal behind `0x`.
pub fn number(value: &str) -> Result<u64, Malformed> {
    let wrong = Malformed::Text {
        what: "no number",
        at: 0,
    };
    let (digits, radix) = match strip(value, ["0x", "0X"]) {
        Some(digits) => (digits, 16),
        None => (value, 10),
    };
    // `from_str_radix` would accept a sign.
    if !digits.chars().all(|c| c.is_digit(radix)) {
        return Err(wrong);
    }
    u64::from_str_radix(digits, radix).map_err(|_| wrong)
}

/// A boolean.
pub fn yes_no(value: &str) -> Result<bool, Malformed> {
    match value {
        "Yes" => Ok(true),
        "No" => Ok(false),
        _ => Err(Malformed::Text {
            what: "neither Yes nor No",
            at: 0,
        }),
    }
}

/// The text of a boolean.
pub const fn from_bool(value: bool) -> &'static str {
    if value { "Yes" } else { "No" }
}

fn strip<'a>(value: &'a str, prefixes: [&str; 2]) -> Option<&'a str> {
    let [lower, upper] = prefixes;
    value
        .strip_prefix(lower)
        .or_else(|| value.strip_prefix(upper))
}
