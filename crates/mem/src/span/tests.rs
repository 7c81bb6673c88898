//! Tests of span lists: order, joining, and the bound.

use super::*;

fn span(at: usize, len: usize) -> Span {
    Span::new(at as *mut u8, len)
}

#[test]
fn neighbours_are_joined_and_others_are_not() {
    let mut spans = Spans::new();
    assert!(spans.push(span(100, 10)) && spans.push(span(110, 5)));
    assert!(spans.push(span(0, 0)) && spans.push(span(200, 1)));
    assert_eq!(spans.as_slice(), [span(100, 15), span(200, 1)]);
    assert_eq!(spans.bytes(), 16);
    spans.clear();
    assert!(spans.as_slice().is_empty());
}

#[test]
fn a_full_list_takes_no_more_but_joins_still() {
    let mut spans = Spans::new();
    for i in 0..MAX_SPANS {
        assert!(spans.push(span(1000 * (i + 1), 1)));
    }
    assert!(!spans.push(span(1, 1)));
    assert!(spans.push(span(1000 * MAX_SPANS + 1, 1)));
    assert_eq!(spans.bytes(), MAX_SPANS + 1);
}
