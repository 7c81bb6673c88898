//! The table of keys: defaults are within their ranges, and the result functions are those of the RFC.

use super::*;
use crate::Terms;

fn rule(key: Key) -> Rule {
    RULES.into_iter().find(|r| r.key == key).unwrap()
}

#[test]
fn key_defaults_are_valid_and_match_default_terms() {
    for rule in RULES {
        assert!(rule.range.contains(&rule.default), "{}", rule.name);
        assert_eq!(rule.read(&rule.write(rule.default)), Ok(rule.default));
        assert_eq!(rule.combine(rule.default, rule.default), rule.default);
    }
    let terms = Terms::DEFAULT;
    assert_eq!(rule(Key::MaxBurst).default, terms.max_burst);
    assert_eq!(rule(Key::FirstBurst).default, terms.first_burst);
    assert_eq!(rule(Key::InitialR2t).default, terms.initial_r2t.into());
    assert_eq!(
        rule(Key::ImmediateData).default,
        terms.immediate_data.into()
    );
    assert_eq!(rule(Key::MaxR2t).default, terms.max_r2t.into());
}

/// RFC 7143 §13.10, §13.11, §13.13, §13.15: OR, AND, minimum, maximum.
#[test]
fn result_functions_combine_both_values() {
    for (a, b) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        assert_eq!(rule(Key::InitialR2t).combine(a, b), a | b);
        assert_eq!(rule(Key::ImmediateData).combine(a, b), a & b);
    }
    assert_eq!(rule(Key::MaxBurst).combine(512, 1024), 512);
    assert_eq!(rule(Key::Time2Wait).combine(2, 20), 20);
    assert_eq!(rule(Key::Time2Retain).combine(2, 20), 2);
}
