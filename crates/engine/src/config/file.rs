//! Reads the configuration file: TOML, one entry per setting.
//! Each entry becomes the text that an environment variable would hold, with its line number. Floating-point numbers, dates and nested
//! lists are refused.

use toml::de::{DeTable, DeValue};

use super::problem::{ConfigError, SettingOrigin, redact_key};
use super::{File, Source};

/// One entry.
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) value: String,
    pub(super) origin: SettingOrigin,
}

impl Entry {
    pub(super) fn source(&self) -> Source {
        match self.origin {
            SettingOrigin::File(_, line) => Source::File(line),
            _ => Source::File(0),
        }
    }
}

/// All entries of the file, or the problem that it is not TOML.
pub(super) fn entries(file: &File<'_>) -> Vec<Result<Entry, ConfigError>> {
    let origin = |at: usize| SettingOrigin::File(file.name.to_owned(), line(file.text, at));
    let table = match DeTable::parse(file.text) {
        Ok(table) => table,
        Err(error) => {
            let at = error.span().map_or(0, |span| span.start);
            let said = file.text.lines().nth(line(file.text, at) - 1);
            let problem = ConfigError {
                // Only the name of a setting is shown: the path may be that of another file, by mistake or in order to have it printed.
                key: said
                    .and_then(|said| said.split('=').next())
                    .map_or("…", |key| redact_key(key.trim()))
                    .to_owned(),
                value: "…".to_owned(),
                origin: origin(at),
                remedy: format!("expected TOML ({})", error.message()),
            };
            return vec![Err(problem)];
        }
    };
    let entry = |(key, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
        let name: &std::borrow::Cow<'_, str> = key.get_ref();
        let origin = origin(key.span().start);
        match text(value.get_ref()) {
            Some(value) => Ok(Entry {
                key: name.to_string(),
                value,
                origin,
            }),
            None => Err(ConfigError::invalid(
                redact_key(name),
                "…",
                origin,
                "a text, a whole number, true or false, or a list of such",
            )),
        }
    };
    table.get_ref().iter().map(entry).collect()
}

/// The value as an environment variable would hold it.
fn text(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(n) => {
            let digits = n.as_str().replace('_', "");
            let n = i64::from_str_radix(&digits, n.radix()).ok()?;
            Some(n.to_string())
        }
        DeValue::Boolean(on) => Some(if *on { "on" } else { "off" }.to_owned()),
        DeValue::Array(all) => {
            let all = all.iter().map(|one| simple(one.get_ref()));
            Some(all.collect::<Option<Vec<_>>>()?.join(","))
        }
        DeValue::Table(all) => {
            let entry = |(key, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
                let key: &std::borrow::Cow<'_, str> = key.get_ref();
                Some(format!("{key}={}", simple(value.get_ref())?))
            };
            Some(all.iter().map(entry).collect::<Option<Vec<_>>>()?.join(","))
        }
        DeValue::Float(_) | DeValue::Datetime(_) => None,
    }
}

fn simple(value: &DeValue<'_>) -> Option<String> {
    let nested = matches!(value, DeValue::Array(_) | DeValue::Table(_));
    if nested { None } else { text(value) }
}

/// The line that holds this byte, from one.
fn line(text: &str, at: usize) -> usize {
    let before = text.bytes().take(at);
    before.filter(|byte| *byte == b'\n').count() + 1
}
