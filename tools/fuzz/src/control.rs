//! Control messages of docs/extensions.md, CAPS included: four bytes of header word, the rest payload.
//! A message that parses must be emitted so that it parses as the same message, byte for byte where no field is ignored.

use verbena_wire::ext::{Caps, Control, Features, MAX_CONTROL_PAYLOAD, RnrTimer};

use crate::source::Source;

/// Runs one input.
pub fn target(data: &[u8]) {
    let mut source = Source::new(data);
    let word = source.u32();
    let payload = source.rest();
    match Control::parse(word, payload) {
        Ok(control) => message(&control, word, payload),
        Err(error) => drop(error.to_string()),
    }
    if let Ok(caps) = Caps::parse(data) {
        list(&caps, data);
    }
}

fn message(control: &Control, word: u32, payload: &[u8]) {
    let mut out = Vec::new();
    control.emit_payload(&mut out);
    assert_eq!(Control::parse(control.ulp_word(), &out), Ok(*control));
    assert_eq!(u32::from(control.kind()), word >> 24);
    match control {
        Control::Caps(caps) => list(caps, payload),
        // The three bytes behind the first are ignored.
        Control::Rnr { .. } => {
            assert_eq!(control.ulp_word(), word);
            assert_eq!((out.len(), out[0]), (payload.len(), payload[0]));
        }
        _ => {
            assert_eq!(control.ulp_word(), word);
            assert_eq!(out, payload);
        }
    }
    if let Control::Rnr { timer, .. } = control {
        assert_eq!(RnrTimer::new(timer.code()), Some(*timer));
        assert!(!timer.duration().is_zero());
    }
    let _ = control.to_string();
}

/// Entries come in any order and unknown ones are skipped: the value is compared, not the bytes.
fn list(caps: &Caps, payload: &[u8]) {
    assert!(payload.len() <= MAX_CONTROL_PAYLOAD);
    let mut out = Vec::new();
    caps.emit(&mut out);
    assert!(out.len() <= Caps::MAX_LEN && out.len() <= payload.len());
    assert_eq!(Caps::parse(&out), Ok(*caps));
    for cut in 0..out.len() {
        // Without its last, optional entries the list is still complete.
        let path = if caps.path.is_some() { 10 } else { 0 };
        let token = if caps.same_host.is_some() { 18 } else { 0 };
        let whole = cut == out.len() - path || cut == out.len() - path - token;
        assert_eq!(Caps::parse(&out[..cut]).is_ok(), whole);
    }
    assert_eq!(Features::from_bits(caps.features.bits()), caps.features);
    let _ = caps.to_string();
}
