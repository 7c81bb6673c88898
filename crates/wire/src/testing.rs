//! Helpers shared by unit tests: hex text to bytes, and checks that run one parser over many
//! changed inputs. Compiled for tests of this crate, and with the feature `testing` for those of others.

/// Bytes of a hex string; spaces, newlines and `|` only separate.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|b| !b.is_ascii_whitespace() && *b != b'|')
        .map(|b| (b as char).to_digit(16).expect("hex digit") as u8)
        .collect();
    assert_eq!(digits.len() % 2, 0, "odd number of hex digits");
    digits.chunks(2).map(|d| d[0] << 4 | d[1]).collect()
}

/// `parse` must reject every proper prefix of `bytes`.
pub fn refuses_every_prefix<T: core::fmt::Debug, E: core::fmt::Debug>(
    bytes: &[u8],
    parse: impl Fn(&[u8]) -> Result<T, E>,
) {
    for cut in 0..bytes.len() {
        let got = parse(&bytes[..cut]);
        assert!(
            got.is_err(),
            "{cut} of {} bytes parsed: {got:?}",
            bytes.len()
        );
    }
}

/// Flips each bit named by `(byte, mask)` on its own and expects the same value.
pub fn ignores_bits<T: core::fmt::Debug + PartialEq, E: core::fmt::Debug>(
    bytes: &[u8],
    reserved: &[(usize, u8)],
    parse: impl Fn(&[u8]) -> Result<T, E>,
) {
    let plain = parse(bytes).expect("plain bytes parse");
    for &(at, mask) in reserved {
        for bit in (0..8).map(|b| 1u8 << b).filter(|b| mask & b != 0) {
            let mut bent = bytes.to_vec();
            bent[at] ^= bit;
            assert_eq!(
                parse(&bent).expect("reserved bit refused"),
                plain,
                "byte {at} bit {bit:#04x}"
            );
        }
    }
}
