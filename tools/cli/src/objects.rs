//! The objects of another process's adapters (N1), read from a local socket of that process.
//! The process id of the socket's peer is checked, lines are bounded, and the other process is not delayed. Every field is shown, known or
//! not.

use std::io::{self, BufRead, Read};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use verbena::unstable::monitor::objects::{GREETING, NAME};

use crate::events::{Error, LONGEST, adapters_of, connect, program};

/// Bytes that are read from one adapter at most.
const MAX_TEXT: u64 = 32 << 20;
/// Objects of one process at most.
const MAX_OBJECTS: usize = 300_000;
/// Attributes of one object at most.
const MAX_FIELDS: usize = 128;
/// How long the objects of a process may take to arrive.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// One object of an adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// The adapter's number in the process.
    pub adapter: u32,
    /// What it is: `adapter`, `cq`, `srq` or `qp`; or `failure` or `wait`, which belong to the queue pair with the same number.
    pub kind: String,
    /// Its attributes, in the order in which they are shown.
    pub fields: Vec<(String, String)>,
}

impl Object {
    /// Parses `KIND KEY=VALUE…`; the last value may contain spaces. `None` if a character would control the terminal.
    pub(crate) fn parse(adapter: u32, line: &str) -> Option<Object> {
        let printable = !line.chars().any(char::is_control);
        let (kind, mut rest) = line.split_once(' ').filter(|_| printable)?;
        let mut fields = Vec::new();
        while let Some((key, value)) = rest.split_once('=').filter(|_| fields.len() < MAX_FIELDS) {
            let (value, next) = if key == "cause" {
                (value, "")
            } else {
                value.split_once(' ').unwrap_or((value, ""))
            };
            fields.push((key.to_owned(), value.to_owned()));
            rest = next;
        }
        Some(Object {
            adapter,
            kind: kind.to_owned(),
            fields,
        })
    }

    /// The value of an attribute; `None` if it has none.
    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(name, _)| name == key)?;
        Some(found.1.as_str()).filter(|value| *value != "none")
    }

    /// The same as a number.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.get(key)?.parse().ok()
    }

    /// The object in JSON; numeric values are numbers, `none` is null.
    pub fn json(&self) -> Value {
        let mut object = Map::new();
        object.insert("adapter".into(), json!(self.adapter));
        object.insert("kind".into(), json!(self.kind));
        for (key, value) in &self.fields {
            let value = match value.parse::<u64>() {
                Ok(number) => json!(number),
                Err(_) if value == "none" => Value::Null,
                Err(_) => json!(value),
            };
            object.entry(key.clone()).or_insert(value);
        }
        Value::Object(object)
    }
}

/// The objects of all adapters of a process.
pub fn objects(pid: u32) -> Result<Vec<Object>, Error> {
    program(pid).ok_or(Error::NoProcess { pid })?;
    let deadline = Instant::now() + TIME_LIMIT;
    let mut found = Vec::new();
    for adapter in adapters_of(pid, NAME)? {
        let reader = connect((NAME, GREETING), pid, adapter)?;
        let mut reader = reader.take(MAX_TEXT);
        while let Some(line) = next_line(&mut reader, deadline, pid)? {
            found.extend(Object::parse(adapter, &line));
            if found.len() > MAX_OBJECTS {
                return Err(Error::TooMuch { pid });
            }
        }
        if reader.limit() == 0 {
            return Err(Error::TooMuch { pid });
        }
    }
    Ok(found)
}

/// The next line without its newline; `None` at the end.
fn next_line(
    reader: &mut impl BufRead,
    deadline: Instant,
    pid: u32,
) -> Result<Option<String>, Error> {
    let mut line = Vec::new();
    // A process that sends slowly must not hold this one for ever.
    if Instant::now() > deadline {
        return Err(Error::Silent { pid });
    }
    match reader.by_ref().take(LONGEST).read_until(b'\n', &mut line) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(Error::Silent { pid }),
        Err(error) => Err(error.into()),
        Ok(0) => Ok(None),
        Ok(_) if line.pop_if(|last| *last == b'\n').is_none() => Err(Error::TooMuch { pid }),
        Ok(_) => Ok(Some(String::from_utf8_lossy(&line).into_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_value_may_contain_spaces() {
        let line = "qp number=7 srq=none state=Err cause=the peer = gone";
        let object = Object::parse(1, line).unwrap();
        assert_eq!(object.fields.len(), 4);
        let json = object.json();
        assert_eq!((&json["number"], &json["srq"]), (&json!(7), &Value::Null));
        assert_eq!(json["cause"], "the peer = gone");
    }

    #[test]
    fn control_characters_are_refused() {
        assert_eq!(Object::parse(0, "qp cause=\u{1b}[2J"), None);
        assert_eq!(Object::parse(0, "qp"), None);
    }
}
