//! Numbers of bytes in text: `512`, `64k`, `10M`, `2G`, by powers of 1024. Fractions and overflow are errors.

/// Parses a number of bytes.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 10),
        Some((at, 'm' | 'M')) => (&text[..at], 20),
        Some((at, 'g' | 'G')) => (&text[..at], 30),
        Some((at, 't' | 'T')) => (&text[..at], 40),
        _ => (text, 0),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| "not a number of bytes, with k, m, g or t".to_owned())?;
    let fits = number.checked_mul(1 << shift);
    fits.ok_or_else(|| "the number of bytes does not fit in 64 bits".to_owned())
}

/// A size in a binary unit, rounded down to one decimal.
pub(crate) fn format_bytes(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.iter().find(|(shift, _)| bytes >> shift > 0) {
        Some((shift, unit)) => {
            let tenths = (u128::from(bytes) * 10) >> shift;
            match tenths % 10 {
                0 => format!("{} {unit}", tenths / 10),
                tenth => format!("{}.{tenth} {unit}", tenths / 10),
            }
        }
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests;
