//! Numbers with a unit as text: times and sizes. Only whole numbers of a unit are read, and what is printed can be read again.
//! Other files of settings and scripts use them, so this one imports none of those.

use core::ops::RangeInclusive;
use core::time::Duration;

use verbena_stream::saturating_nanos;

/// Units of time, in nanoseconds.
pub(super) const UNITS: &[(&str, u64)] = &[
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
    ("s", 1_000_000_000),
];

/// A time with its unit, between bounds; what is expected if it is not.
pub(crate) fn read_time(text: &str, range: RangeInclusive<Duration>) -> Result<Duration, String> {
    let nanos = if text == "0" {
        Some(0)
    } else {
        scaled(text, UNITS)
    };
    let read = nanos.map(Duration::from_nanos);
    read.filter(|time| range.contains(time))
        .ok_or_else(|| times(&range))
}

/// What is expected of a time between these bounds.
pub(super) fn times(range: &RangeInclusive<Duration>) -> String {
    let (least, most) = (time(*range.start()), time(*range.end()));
    format!("a time from {least} to {most} with its unit (us, ms, s)")
}

/// A time with its unit.
pub(crate) fn time(value: Duration) -> String {
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
    unscaled(saturating_nanos(value), &units, "ns")
}

/// Digits and one of the units; the first unit that the text ends with counts.
pub(super) fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let found = units.iter().find_map(|(unit, n)| {
        let digits = text.strip_suffix(unit)?;
        Some((digits.trim_end(), n))
    });
    let (digits, n) = found?;
    digits.parse::<u64>().ok()?.checked_mul(*n)
}

/// The number in the largest unit that holds it exactly.
pub(super) fn unscaled(n: u64, units: &[(&str, u64)], least: &str) -> String {
    let fits = units.iter().find(|(_, size)| n.is_multiple_of(*size));
    match fits {
        Some((unit, size)) if n > 0 => format!("{}{unit}", n / size),
        Some((unit, _)) if !least.is_empty() => format!("0{unit}"),
        _ => format!("{n}{least}"),
    }
}
