//! The words that change a link: `loss=1%`, `delay=5ms`, `jitter=1ms`, `repeat=1%`, `corrupt=0.1%`, `reorder=1%`, `bandwidth=100mbit`,
//! `cut`, `mend` and `clear`. A word either changes one property or is refused with what was expected.

use core::time::Duration;

use verbena_fabric::{Faults, Ratio};

use super::error::LabError;

/// The longest delay and jitter.
const LONGEST: Duration = Duration::from_secs(60);

/// What the words of one command or event say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    words: Vec<Word>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Loss(Ratio),
    Repeat(Ratio),
    Corrupt(Ratio),
    Reorder(Ratio),
    Delay(Duration),
    Jitter(Duration),
    Bandwidth(Option<u64>),
    Up(bool),
    Clear,
}

impl Change {
    /// Parses words with blanks between them.
    pub fn parse(text: &str) -> Result<Change, LabError> {
        let words: Result<Vec<Word>, LabError> = text.split_whitespace().map(word).collect();
        Ok(Change { words: words? })
    }

    /// The faults afterwards, and whether the link is to be up, if the words say so.
    pub fn apply(&self, mut faults: Faults) -> (Faults, Option<bool>) {
        let mut up = None;
        for word in &self.words {
            match *word {
                Word::Loss(ratio) => faults.loss = ratio,
                Word::Repeat(ratio) => faults.repeat = ratio,
                Word::Corrupt(ratio) => faults.corrupt = ratio,
                Word::Reorder(ratio) => faults.reorder = ratio,
                Word::Delay(time) => faults.delay = time,
                Word::Jitter(time) => faults.jitter = time,
                Word::Bandwidth(bits) => faults.bandwidth = bits,
                Word::Up(is_up) => up = Some(is_up),
                Word::Clear => faults = Faults::NONE,
            }
        }
        (faults, up)
    }
}

fn word(text: &str) -> Result<Word, LabError> {
    match text {
        "cut" => return Ok(Word::Up(false)),
        "mend" => return Ok(Word::Up(true)),
        "clear" => return Ok(Word::Clear),
        _ => {}
    }
    let wrong = |expected: &str| LabError(format!("`{text}`: expected {expected}"));
    let all = "loss=, repeat=, corrupt=, reorder= (as in loss=1%), delay=, jitter= (as in delay=5ms), \
               bandwidth= (as in bandwidth=100mbit), cut, mend or clear";
    let (name, value) = text.split_once('=').ok_or_else(|| wrong(all))?;
    let ratio = || ratio(value).ok_or_else(|| wrong("a share from 0% to 100%, as in 0.5%"));
    let time = || {
        let found = time(value).filter(|time| *time <= LONGEST);
        found.ok_or_else(|| wrong("a time up to 60s, as in 5ms or 250us"))
    };
    Ok(match name {
        "loss" => Word::Loss(ratio()?),
        "repeat" => Word::Repeat(ratio()?),
        "corrupt" => Word::Corrupt(ratio()?),
        "reorder" => Word::Reorder(ratio()?),
        "delay" => Word::Delay(time()?),
        "jitter" => Word::Jitter(time()?),
        "bandwidth" if value == "unlimited" => Word::Bandwidth(None),
        "bandwidth" => {
            let expected = "bits per second from 1kbit on, as in 100mbit, or unlimited";
            Word::Bandwidth(Some(bandwidth(value).ok_or_else(|| wrong(expected))?))
        }
        _ => return Err(wrong(all)),
    })
}

/// Splits a decimal number from its unit.
fn number(text: &str) -> Option<(f64, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    Some((digits.parse().ok()?, unit))
}

fn ratio(text: &str) -> Option<Ratio> {
    let (value, unit) = number(text)?;
    let millionths = value * 10_000.0;
    let fits = unit == "%" && (0.0..=1_000_000.0).contains(&millionths);
    fits.then(|| Ratio::millionths(millionths.round() as u32))
}

/// A time such as `5ms`, `10us` or `1.5s`.
pub(crate) fn time(text: &str) -> Option<Duration> {
    let (value, unit) = number(text)?;
    let seconds = match unit {
        "s" => value,
        "ms" => value / 1e3,
        "us" => value / 1e6,
        _ => return None,
    };
    Duration::try_from_secs_f64(seconds).ok()
}

fn bandwidth(text: &str) -> Option<u64> {
    let (value, unit) = number(text)?;
    let bits = match unit {
        "kbit" => value * 1e3,
        "mbit" => value * 1e6,
        "gbit" => value * 1e9,
        _ => return None,
    };
    (1e3..=1e12).contains(&bits).then_some(bits as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_change_only_what_they_name() {
        let change = Change::parse("loss=1.5% delay=5ms bandwidth=100mbit cut").unwrap();
        let before = Faults {
            repeat: Ratio::ALWAYS,
            ..Faults::NONE
        };
        let (after, up) = change.apply(before);
        let expected = Faults {
            loss: Ratio::millionths(15_000),
            delay: Duration::from_millis(5),
            bandwidth: Some(100_000_000),
            ..before
        };
        assert_eq!((after, up), (expected, Some(false)));
        assert_eq!(
            after.to_string(),
            "loss=1.5% repeat=100% delay=5ms bandwidth=100mbit"
        );
        let (after, up) = Change::parse("clear mend").unwrap().apply(after);
        assert_eq!((after, up), (Faults::NONE, Some(true)));
    }

    #[test]
    fn printed_faults_parse_again() {
        let text = "loss=0.01% corrupt=2% reorder=3% delay=1.5ms jitter=10us bandwidth=5kbit";
        let (faults, _) = Change::parse(text).unwrap().apply(Faults::NONE);
        let printed = faults.to_string().replace('µ', "u");
        let again = Change::parse(&printed).unwrap().apply(Faults::NONE);
        assert_eq!(again.0, faults, "{printed}");
    }

    #[test]
    fn wrong_words_are_refused_by_name() {
        for text in [
            "loss",
            "loss=1",
            "loss=101%",
            "loss=-1%",
            "loss=x%",
            "delay=5",
            "delay=61s",
            "delay=1h",
            "bandwidth=1bit",
            "bandwidth=9999gbit",
            "speed=1",
            "cut=1",
            "loss=1e5%",
            "delay=..s",
        ] {
            let error = Change::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{text}`: expected")), "{error}");
        }
    }
}
