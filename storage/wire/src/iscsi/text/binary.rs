//! Binary values in text (RFC 7143 §6.1): hexadecimal behind `0x` and base64 behind `0b`, as in the challenges and
//! responses of CHAP. The length of a value is limited by the caller.

use verbena_wire::Malformed;

use super::strip;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Characters of `0x` and `0b`.
const PREFIX: usize = 2;

/// The bytes of a binary value. An odd number of hexadecimal digits is read with a zero in front.
pub fn binary(value: &str) -> Result<Vec<u8>, Malformed> {
    if let Some(digits) = strip(value, ["0x", "0X"]) {
        return from_hex(digits.as_bytes());
    }
    if let Some(digits) = strip(value, ["0b", "0B"]) {
        return from_base64(digits.as_bytes());
    }
    Err(Malformed::Text {
        what: "a binary value without 0x or 0b",
        at: 0,
    })
}

/// `0x` and two digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|b| [b >> 4, b & 15]);
    let digits = digits.filter_map(|d| char::from_digit(u32::from(d), 16));
    "0x".chars().chain(digits).collect()
}

/// `0b` and base64 with padding.
pub fn base64(bytes: &[u8]) -> String {
    let mut text = String::from("0b");
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let digit = (bits >> (18 - 6 * at) & 63) as usize;
            // A group of n bytes has n + 1 digits; the others are padding.
            let sent = ALPHABET.get(digit).filter(|_| at <= group.len());
            text.push(sent.map_or('=', |c| char::from(*c)));
        }
    }
    text
}

fn wrong(what: &'static str, digit: usize) -> Malformed {
    Malformed::Text {
        what,
        at: digit + PREFIX,
    }
}

fn from_hex(digits: &[u8]) -> Result<Vec<u8>, Malformed> {
    if digits.is_empty() {
        return Err(wrong("no digits", 0));
    }
    let odd = digits.len() % 2;
    let mut bytes = Vec::with_capacity(digits.len().div_ceil(2));
    let mut high = 0;
    for (at, &c) in digits.iter().enumerate() {
        let digit = char::from(c).to_digit(16);
        let digit = digit.ok_or(wrong("no hexadecimal digit", at))? as u8;
        if at % 2 == odd {
            high = digit << 4;
        } else {
            bytes.push(high | digit);
        }
    }
    Ok(bytes)
}

fn from_base64(digits: &[u8]) -> Result<Vec<u8>, Malformed> {
    if digits.is_empty() {
        return Err(wrong("no digits", 0));
    }
    if !digits.len().is_multiple_of(4) {
        return Err(wrong("base64 cut short", digits.len()));
    }
    let pad = digits.iter().rev().take_while(|c| **c == b'=').count();
    if pad > 2 {
        return Err(wrong("too much base64 pad", digits.len() - pad));
    }
    let digits = digits.get(..digits.len() - pad).unwrap_or_default();
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for (group, four) in digits.chunks(4).enumerate() {
        let mut bits = 0;
        for (at, &c) in four.iter().enumerate() {
            let digit = value_of(c).ok_or(wrong("no base64 digit", group * 4 + at))?;
            bits |= digit << (18 - 6 * at);
        }
        // n digits hold n − 1 bytes; the remaining bits must be zero, so that each value has one encoding.
        let [_, three @ ..] = u32::to_be_bytes(bits);
        let (whole, left) = three.split_at_checked(four.len() - 1).unwrap_or_default();
        if left.iter().any(|b| *b != 0) {
            let last = group * 4 + four.len() - 1;
            return Err(wrong("base64 with bits left over", last));
        }
        bytes.extend_from_slice(whole);
    }
    Ok(bytes)
}

fn value_of(c: u8) -> Option<u32> {
    let at = match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(u32::from(at))
}
