//! Text keys: pairs and their limits, numbers, and binary values in both forms.

use proptest::prelude::*;

use super::*;

fn pairs(text: &[u8]) -> Result<Vec<(&str, &str)>, Malformed> {
    Pairs::new(text).collect()
}

fn wrong(what: &'static str, at: usize) -> Malformed {
    Malformed::Text { what, at }
}

#[test]
fn pairs_are_parsed_in_order() {
    assert_eq!(pairs(b""), Ok(vec![]));
    let text = b"TargetName=iqn.a:b\0TargetAddress=127.0.0.1:13260,1\0Empty=\0";
    let expected = vec![
        ("TargetName", "iqn.a:b"),
        ("TargetAddress", "127.0.0.1:13260,1"),
        ("Empty", ""),
    ];
    assert_eq!(pairs(text), Ok(expected));
    // Only the first '=' separates, and padding zeros are skipped.
    assert_eq!(pairs(b"\0\0A=b=c\0\0\0"), Ok(vec![("A", "b=c")]));
}

#[test]
fn malformed_pairs_are_refused() {
    let cases: [(&[u8], Malformed); 5] = [
        (b"A=b\0C=d", wrong("a pair without its final zero", 4)),
        (b"A=b\0C\0", wrong("a pair without '='", 4)),
        (b"\0=b\0", wrong("a pair without a key", 1)),
        (b"A=\xff\0", wrong("a pair not in UTF-8", 0)),
        (b"A", wrong("a pair without its final zero", 0)),
    ];
    for (text, error) in cases {
        let last = Pairs::new(text).last();
        assert_eq!(last, Some(Err(error)), "{}", text.escape_ascii());
        // Nothing behind an error is read.
        let behind = [text, b"\0X=y\0"].concat();
        let errors = Pairs::new(&behind).filter(Result::is_err).count();
        assert!(errors <= 1);
    }
    let mut stopped = Pairs::new(b"C\0A=b\0");
    assert!(stopped.next().is_some_and(|pair| pair.is_err()));
    assert_eq!(stopped.next(), None);
    assert_eq!(
        wrong("a pair without '='", 4).to_string(),
        "a pair without '=' at byte 4 of the text"
    );
}

#[test]
fn key_and_value_lengths_are_limited() {
    let pair = |key: usize, value: usize| {
        let mut text = Vec::new();
        push(&mut text, &"k".repeat(key), &"v".repeat(value));
        text
    };
    assert!(pairs(&pair(MAX_KEY, MAX_VALUE)).is_ok());
    let key = pairs(&pair(MAX_KEY + 1, 1)).map(|_| ()).unwrap_err();
    assert_eq!(key.to_string(), "text key is limited to 63 bytes, got 64");
    let long = pair(1, MAX_VALUE + 1);
    let value = pairs(&long).map(|_| ()).unwrap_err();
    assert_eq!(
        value.to_string(),
        "text value is limited to 8192 bytes, got 8193"
    );
}

/// A value cannot introduce another pair.
#[test]
fn zero_byte_ends_a_pushed_value() {
    let mut text = Vec::new();
    push(&mut text, "A", "b\0C=d");
    push(&mut text, "E", from_bool(true));
    assert_eq!(text, b"A=b\0E=Yes\0");
}

#[test]
fn numbers_are_decimal_or_hexadecimal() {
    let good = [
        ("0", 0),
        ("262144", 262_144),
        ("0x40000", 0x40000),
        ("0Xff", 255),
        ("18446744073709551615", u64::MAX),
        ("0xffffffffffffffff", u64::MAX),
    ];
    for (text, value) in good {
        assert_eq!(number(text), Ok(value), "{text}");
    }
    let bad = [
        "",
        "0x",
        "+5",
        "-1",
        "0x+5",
        "12a",
        "0xg",
        " 1",
        "1 ",
        "0b10",
        "１",
        "18446744073709551616",
        "0x10000000000000000",
    ];
    for text in bad {
        assert_eq!(number(text), Err(wrong("no number", 0)), "{text}");
    }
    assert_eq!(yes_no("Yes"), Ok(true));
    assert_eq!(yes_no("No"), Ok(false));
    for text in ["", "yes", "NO", "Yes,No"] {
        assert_eq!(yes_no(text), Err(wrong("neither Yes nor No", 0)));
    }
}

/// The examples of RFC 4648 §10, and their hexadecimal forms.
#[test]
fn binary_values_match_rfc_4648_examples() {
    let cases = [
        ("f", "0bZg==", "0x66"),
        ("fo", "0bZm8=", "0x666f"),
        ("foo", "0bZm9v", "0x666f6f"),
        ("foob", "0bZm9vYg==", "0x666f6f62"),
        ("fooba", "0bZm9vYmE=", "0x666f6f6261"),
        ("foobar", "0bZm9vYmFy", "0x666f6f626172"),
    ];
    for (bytes, in_64, in_16) in cases {
        let bytes = bytes.as_bytes();
        assert_eq!(base64(bytes), in_64);
        assert_eq!(hex(bytes), in_16);
        assert_eq!(binary(in_64).as_deref(), Ok(bytes));
        assert_eq!(binary(&in_16.to_uppercase()).as_deref(), Ok(bytes));
    }
    assert_eq!(binary("0xfff"), Ok(vec![0x0f, 0xff]));
    assert_eq!(base64(&[0xfb, 0xff]), "0b+/8=");
    let bad = [
        ("", "a binary value without 0x or 0b", 0),
        ("1234", "a binary value without 0x or 0b", 0),
        ("0x", "no digits", 2),
        ("0b", "no digits", 2),
        ("0x12g4", "no hexadecimal digit", 4),
        ("0bZg=", "base64 cut short", 5),
        ("0bZ===", "too much base64 pad", 3),
        ("0b====", "too much base64 pad", 2),
        ("0bZg==Zg==", "no base64 digit", 4),
        ("0bZm-v", "no base64 digit", 4),
        ("0bZh==", "base64 with bits left over", 3),
        ("0bZm9=", "base64 with bits left over", 4),
    ];
    for (text, what, at) in bad {
        assert_eq!(binary(text), Err(wrong(what, at)), "{text}");
    }
}

proptest! {
    #[test]
    fn binary_round_trip(bytes in proptest::collection::vec(any::<u8>(), 1..100)) {
        let (in_64, in_16) = (base64(&bytes), hex(&bytes));
        prop_assert_eq!(binary(&in_64), Ok(bytes.clone()));
        prop_assert_eq!(binary(&in_16), Ok(bytes));
    }

    #[test]
    fn pairs_round_trip(list in proptest::collection::vec(("[A-Z][a-z]{0,20}", "[ -~]{0,40}"), 0..10)) {
        let mut text = Vec::new();
        list.iter().for_each(|(key, value)| push(&mut text, key, value));
        let expected: Vec<_> = list.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        prop_assert_eq!(pairs(&text), Ok(expected));
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), text: String) {
        prop_assert!(Pairs::new(&bytes).count() <= bytes.len());
        let _ = (number(&text), binary(&text), yes_no(&text));
        let _ = (binary(&format!("0x{text}")), binary(&format!("0b{text}")));
    }
}
