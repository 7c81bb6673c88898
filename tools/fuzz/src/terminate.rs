//! Terminate payloads (RFC 5040 §4.8) in both dialects and both phases of a stream.
//! A message that parses must be emitted in its dialect so that it parses as the same message again.

use verbena_wire::rdmap::{Cause, Dialect, Phase, Terminate};

/// Runs one input.
pub fn target(data: &[u8]) {
    for phase in [Phase::Startup, Phase::Running] {
        message(data, phase);
    }
    if let [layer, etype, code, ..] = *data {
        let cause = Cause::from_codes(layer & 0x0f, etype & 0x0f, code);
        let (layer, etype, code) = cause.codes();
        assert_eq!(Cause::from_codes(layer, etype, code), cause);
        let _ = cause.to_string();
    }
}

fn message(data: &[u8], phase: Phase) {
    let (terminate, dialect) = match Terminate::parse(data, phase) {
        Ok(parsed) => parsed,
        Err(error) => return drop(error.to_string()),
    };
    let _ = terminate.to_string();
    let mut out = Vec::new();
    terminate.emit(dialect, &mut out);
    assert!(out.len() <= Terminate::MAX_LEN && out.len() <= data.len());
    // Header bits distinguish the dialects. Without them, codes that are emitted differently than they came (MPA errors
    // of type 3, a read request announced without its header) may parse as the other dialect's.
    let again = Terminate::parse(&out, phase);
    if terminate.segment.is_some() || out[..3] == data[..3] {
        assert_eq!(again, Ok((terminate, dialect)), "{dialect} in {phase}");
    } else {
        assert!(again.is_ok());
    }
    for cut in 0..out.len() {
        assert!(Terminate::parse(&out[..cut], phase).is_err());
    }
    // The echo of the offending segment follows the control word, byte for byte.
    assert_eq!(out[4..], data[4..out.len()]);
    if dialect == Dialect::Rfc && terminate.segment.is_some() {
        let other = if phase == Phase::Startup {
            Phase::Running
        } else {
            Phase::Startup
        };
        assert_eq!(Terminate::parse(&out, other), Ok((terminate, dialect)));
    }
}
