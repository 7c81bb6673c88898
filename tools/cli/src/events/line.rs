//! One event of another process: parsed, and shown as text or JSON. Every field of the line is shown, known or not; lines of another form
//! are rejected.

use core::fmt;

use serde_json::{Map, Value, json};
use verbena::unstable::monitor::{COUNTERS_CLASS, COUNTERS_TOTAL};

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    adapter: u32,
    /// Seconds since 1970, and microseconds.
    seconds: u64,
    micros: u32,
    class: String,
    event: String,
    fields: Vec<(String, String)>,
}

impl Line {
    /// Parses `SECONDS CLASS EVENT KEY=VALUE…`.
    pub(super) fn parse(adapter: u32, text: &str) -> Option<Line> {
        let mut words = text.split(' ');
        let (seconds, micros) = words.next()?.split_once('.')?;
        let (class, event) = (words.next()?, words.next()?);
        let pair = |word: &str| {
            let (key, value) = word.split_once('=')?;
            Some((key.to_owned(), value.to_owned()))
        };
        let printable = text.chars().all(|c| c.is_ascii_graphic() || c == ' ');
        if !printable || micros.len() != 6 {
            return None;
        }
        Some(Line {
            adapter,
            seconds: seconds.parse().ok()?,
            micros: micros.parse().ok()?,
            class: class.to_owned(),
            event: event.to_owned(),
            fields: words.map(pair).collect::<Option<_>>()?,
        })
    }

    /// Whether it is a line of the interrupt counters, and the last one of them.
    pub(super) fn counters(&self) -> Option<bool> {
        (self.class == COUNTERS_CLASS).then(|| self.event == COUNTERS_TOTAL)
    }

    /// The number of the adapter in its process.
    pub fn adapter(&self) -> u32 {
        self.adapter
    }

    /// The value of a field of the event.
    pub fn field(&self, key: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str())
    }

    /// The event as one object; numeric values are numbers.
    pub fn json(&self) -> Value {
        let mut object = Map::new();
        let time = self.seconds as f64 + f64::from(self.micros) / 1e6;
        object.insert("time".into(), json!(time));
        object.insert("adapter".into(), json!(self.adapter));
        object.insert("class".into(), json!(self.class));
        object.insert("event".into(), json!(self.event));
        for (key, value) in &self.fields {
            let number = value.parse::<u64>().map(Value::from);
            let value = number.unwrap_or_else(|_| json!(value));
            object.entry(key.clone()).or_insert(value);
        }
        Value::Object(object)
    }
}

impl fmt::Display for Line {
    /// The time of day is that of UTC.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let day = self.seconds % 86_400;
        let (hour, minute, second) = (day / 3600, day / 60 % 60, day % 60);
        write!(
            f,
            "{hour:02}:{minute:02}:{second:02}.{:06} {:<3} {:<10} {:<16}",
            self.micros, self.adapter, self.class, self.event
        )?;
        for (key, value) in &self.fields {
            write!(f, " {key}={value}")?;
        }
        Ok(())
    }
}
