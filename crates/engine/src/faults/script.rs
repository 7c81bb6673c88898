//! Fault scripts as text: rules with `;` or line ends between them, or a TOML file with one table `fault` for each rule.
//! A wrong script changes nothing; the error names the place, the key, and what is allowed there. Length and number of rules are bounded.

use core::fmt::{self, Display};
use core::ops::RangeInclusive;
use core::str::FromStr;
use core::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::rule::{
    ERRNOS, Effect, MAX_QPS, MAX_REFUSALS, MAX_TIME, Rate, Refusals, Rule, STATUSES, When,
};
use crate::config::units::read_time;

/// Bytes of a script.
pub const MAX_SCRIPT: usize = 16 << 10;
/// Rules of a script.
pub const MAX_RULES: usize = 64;

/// Rules, and the seed of their fractions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Script {
    /// The seed; a random one if none.
    pub seed: Option<u64>,
    /// The rules.
    pub rules: Vec<Rule>,
}

/// Why a script is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct ScriptError {
    place: Place,
    problem: String,
}

/// A place in a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Script,
    Rule(usize),
    Line(usize),
}

impl Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Script => f.write_str("fault script"),
            Place::Rule(number) => write!(f, "rule {number}"),
            Place::Line(number) => write!(f, "line {number}"),
        }
    }
}

impl Place {
    fn error(self, problem: impl Into<String>) -> ScriptError {
        let problem = problem.into();
        ScriptError {
            place: self,
            problem,
        }
    }
}

/// Keys that say when.
const TRIGGERS: [&str; 3] = ["nth", "every", "rate"];

/// The kinds, and the keys of each beside those that say when, in the order in which messages list them.
const KINDS: &[(&str, &[&str])] = &[
    ("post", &["errno", "times", "qp"]),
    ("post-receive", &["errno", "times", "qp"]),
    ("completion", &["status", "times", "qp"]),
    ("receive", &["status", "times", "qp"]),
    ("connect", &["errno", "times", "qp"]),
    ("register", &["errno", "times"]),
    ("kill", &["times", "qp"]),
    ("reset", &["times", "qp"]),
    ("delay", &["time", "times", "qp"]),
    ("rnr", &["count", "time", "times", "qp"]),
    ("port-down", &["time", "times"]),
    ("regions", &["most", "errno"]),
];

impl Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        if let Some(seed) = self.seed {
            write!(f, "seed={seed}")?;
            between = "; ";
        }
        for rule in &self.rules {
            write!(f, "{between}{rule}")?;
            between = "; ";
        }
        Ok(())
    }
}

impl FromStr for Script {
    type Err = ScriptError;

    /// Rules with `;` or line ends between them; what follows a `#` on a line is a comment.
    fn from_str(text: &str) -> Result<Script, ScriptError> {
        check_length(text)?;
        let mut script = Script::default();
        let by_line = text.contains('\n');
        let mut number = 0;
        for (line, said) in text.lines().enumerate() {
            let said = said.split('#').next().unwrap_or("");
            for rule in said.split(';').map(str::trim).filter(|r| !r.is_empty()) {
                number += 1;
                let place = match by_line {
                    true => Place::Line(line + 1),
                    false => Place::Rule(number),
                };
                script.add_line(rule, place)?;
            }
        }
        script.checked()
    }
}

fn check_length(text: &str) -> Result<(), ScriptError> {
    if text.len() <= MAX_SCRIPT {
        return Ok(());
    }
    let problem = format!("{} bytes, at most {MAX_SCRIPT} are allowed", text.len());
    Err(Place::Script.error(problem))
}

impl Script {
    /// No rules yet, and this seed.
    pub fn seeded(seed: u64) -> Script {
        Script {
            seed: Some(seed),
            rules: Vec::new(),
        }
    }

    /// With one more rule, for all queue pairs; the oldest [`MAX_RULES`] count.
    #[must_use]
    pub fn with(self, when: When, effect: Effect) -> Script {
        self.with_rule(Rule {
            effect,
            when,
            times: None,
            qps: Vec::new(),
        })
    }

    /// With one more rule; the oldest [`MAX_RULES`] count.
    #[must_use]
    pub fn with_rule(mut self, rule: Rule) -> Script {
        if self.rules.len() < MAX_RULES {
            self.rules.push(rule);
        }
        self
    }

    /// Parses a TOML file: `seed = 7`, and a table `[[fault]]` with `kind` and the other keys for each rule.
    pub fn from_toml(text: &str) -> Result<Script, ScriptError> {
        check_length(text)?;
        let line = |at: usize| {
            let before = text.bytes().take(at);
            Place::Line(before.filter(|byte| *byte == b'\n').count() + 1)
        };
        let table = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            line(at).error(format!("expected TOML ({})", error.message()))
        })?;
        let mut script = Script::default();
        for (key, value) in table.get_ref() {
            let place = line(key.span().start);
            match (key.get_ref().as_ref(), value.get_ref()) {
                ("seed", value) => script.set_seed(&text_of(value, "seed", place)?, place)?,
                ("fault", DeValue::Array(all)) => {
                    for one in all {
                        script.add_table(one, &line)?;
                    }
                }
                (other, _) => {
                    let problem = format!("`{other}`: expected seed or tables [[fault]]");
                    return Err(place.error(problem));
                }
            }
        }
        script.checked()
    }

    fn add_table(
        &mut self,
        one: &Spanned<DeValue<'_>>,
        line: &impl Fn(usize) -> Place,
    ) -> Result<(), ScriptError> {
        let place = line(one.span().start);
        let DeValue::Table(table) = one.get_ref() else {
            return Err(place.error("expected a table [[fault]]"));
        };
        let (mut kind, mut pairs) = (None, Vec::new());
        for (key, value) in table {
            let (name, place) = (key.get_ref().as_ref(), line(key.span().start));
            let value = text_of(value.get_ref(), name, place)?;
            if name == "kind" {
                kind = Some((value, place));
            } else {
                pairs.push((name.to_owned(), value, place));
            }
        }
        let Some((kind, at)) = kind else {
            return Err(place.error(format!("`kind` is missing: {}", kinds())));
        };
        self.add_rule(&kind, at, pairs)
    }

    fn add_line(&mut self, text: &str, place: Place) -> Result<(), ScriptError> {
        let mut words = text.split_whitespace();
        let first = words.next().unwrap_or("");
        if let Some(seed) = first.strip_prefix("seed=") {
            if let Some(more) = words.next() {
                return Err(place.error(format!("`{more}` behind the seed: expected `;`")));
            }
            return self.set_seed(seed, place);
        }
        let mut pairs = Vec::new();
        for word in words {
            let Some((key, value)) = word.split_once('=') else {
                return Err(place.error(format!("`{word}`: expected KEY=VALUE")));
            };
            pairs.push((key.to_owned(), value.to_owned(), place));
        }
        self.add_rule(first, place, pairs)
    }

    fn set_seed(&mut self, text: &str, place: Place) -> Result<(), ScriptError> {
        let seed = text
            .parse()
            .map_err(|_| place.error(format!("`seed`: {text:?} is no number of 64 bits")))?;
        self.seed = Some(seed);
        Ok(())
    }

    fn add_rule(
        &mut self,
        kind: &str,
        place: Place,
        pairs: Vec<(String, String, Place)>,
    ) -> Result<(), ScriptError> {
        if self.rules.len() == MAX_RULES {
            return Err(place.error(format!("more than {MAX_RULES} rules")));
        }
        let rule = Fields::new(kind, place, pairs)?.rule()?;
        self.rules.push(rule);
        Ok(())
    }

    fn checked(self) -> Result<Script, ScriptError> {
        if self.rules.is_empty() {
            let problem = format!("it has no rule; a rule is KIND KEY=VALUE…: {}", kinds());
            return Err(Place::Script.error(problem));
        }
        Ok(self)
    }
}

fn kinds() -> String {
    let names: Vec<&str> = KINDS.iter().map(|(name, _)| *name).collect();
    format!("expected one of {}", names.join(", "))
}

fn text_of(value: &DeValue<'_>, key: &str, place: Place) -> Result<String, ScriptError> {
    let simple = |value: &DeValue<'_>| match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().replace('_', "")),
        DeValue::Float(number) => Some(number.as_str().replace('_', "")),
        _ => None,
    };
    let text = match value {
        DeValue::Array(all) => {
            let all = all.iter().map(|one| simple(one.get_ref()));
            all.collect::<Option<Vec<_>>>().map(|all| all.join(","))
        }
        one => simple(one),
    };
    text.ok_or_else(|| {
        let problem = format!("`{key}`: expected a text, a decimal number, or a list of such");
        place.error(problem)
    })
}

/// The keys of one rule; each is taken once.
struct Fields<'a> {
    kind: &'a str,
    place: Place,
    pairs: Vec<(String, String, Place)>,
}

impl<'a> Fields<'a> {
    fn new(
        kind: &'a str,
        place: Place,
        pairs: Vec<(String, String, Place)>,
    ) -> Result<Fields<'a>, ScriptError> {
        let Some((_, keys)) = KINDS.iter().find(|(name, _)| *name == kind) else {
            return Err(place.error(format!("`{kind}` is no kind of fault: {}", kinds())));
        };
        let has_triggers = kind != "regions";
        for (at, (key, _, place)) in pairs.iter().enumerate() {
            let triggers = has_triggers && TRIGGERS.contains(&key.as_str());
            if !triggers && !keys.contains(&key.as_str()) {
                let mut all = keys.to_vec();
                if has_triggers {
                    all.extend(TRIGGERS);
                }
                let problem = format!("`{key}` is no key of {kind}: it has {}", all.join(", "));
                return Err(place.error(problem));
            }
            if pairs.iter().take(at).any(|(other, ..)| other == key) {
                return Err(place.error(format!("`{key}` is given twice")));
            }
        }
        Ok(Fields { kind, place, pairs })
    }

    /// The value of a key, read by `read`, which returns what is expected if it cannot.
    fn take<T>(
        &self,
        key: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ScriptError> {
        let Some((_, value, place)) = self.pairs.iter().find(|(name, ..)| name == key) else {
            return Ok(None);
        };
        read(value)
            .map(Some)
            .map_err(|wants| place.error(format!("`{key}`: {value:?} is not {wants}")))
    }

    fn need<T>(
        &self,
        key: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, ScriptError> {
        let missing = || self.place.error(format!("{} needs `{key}=`", self.kind));
        self.take(key, read)?.ok_or_else(missing)
    }

    fn rule(&self) -> Result<Rule, ScriptError> {
        let effect = match self.kind {
            "post" => Effect::Post(self.need("errno", errno)?),
            "post-receive" => Effect::PostReceive(self.need("errno", errno)?),
            "completion" => Effect::Completion(self.need("status", status)?),
            "receive" => Effect::Receive(self.need("status", status)?),
            "connect" => Effect::Connect(self.need("errno", errno)?),
            "register" => Effect::Register(self.need("errno", errno)?),
            "kill" => Effect::Kill,
            "reset" => Effect::Reset,
            "delay" => Effect::Delay(self.need("time", time)?),
            "port-down" => Effect::PortDown(self.need("time", time)?),
            "rnr" => Effect::Rnr(self.refusals()?),
            _ => Effect::Regions {
                most: self.need("most", |text| number(text, 0..=u32::MAX.into()))? as u32,
                errno: self.take("errno", errno)?.unwrap_or(libc::ENOMEM),
            },
        };
        let qps = self.take("qp", queue_pairs)?.unwrap_or_default();
        Ok(Rule {
            when: self.when(effect)?,
            times: self.take("times", |text| number(text, 1..=u64::MAX))?,
            effect,
            qps,
        })
    }

    fn refusals(&self) -> Result<Refusals, ScriptError> {
        let count = self.take("count", |text| number(text, 1..=MAX_REFUSALS.into()))?;
        match (count, self.take("time", time)?) {
            (Some(count), None) => Ok(Refusals::Count(count as u32)),
            (None, Some(time)) => Ok(Refusals::Time(time)),
            _ => Err(self.place.error("rnr needs either `count=` or `time=`")),
        }
    }

    fn when(&self, effect: Effect) -> Result<When, ScriptError> {
        let found = [
            self.take("nth", |text| number(text, 1..=u64::MAX))?
                .map(When::Nth),
            self.take("every", |text| number(text, 1..=u64::MAX))?
                .map(When::Every),
            self.take("rate", rate)?.map(When::Rate),
        ];
        let mut found = found.into_iter().flatten();
        let when = match (found.next(), effect) {
            (Some(when), _) => when,
            (None, Effect::Delay(_)) => When::Every(1),
            (
                None,
                Effect::Kill
                | Effect::Reset
                | Effect::Rnr(_)
                | Effect::PortDown(_)
                | Effect::Regions { .. },
            ) => When::Now,
            (None, _) => {
                let problem = format!("{} needs `nth=`, `every=` or `rate=`", self.kind);
                return Err(self.place.error(problem));
            }
        };
        if found.next().is_some() {
            let problem = "only one of `nth`, `every` and `rate` can be given";
            return Err(self.place.error(problem));
        }
        Ok(when)
    }
}

fn number(text: &str, range: RangeInclusive<u64>) -> Result<u64, String> {
    let read = text.parse().ok().filter(|n| range.contains(n));
    read.ok_or_else(|| {
        let (first, last) = (range.start(), range.end());
        format!("a number from {first} to {last}")
    })
}

fn time(text: &str) -> Result<Duration, String> {
    read_time(text, Duration::from_micros(1)..=MAX_TIME)
}

fn rate(text: &str) -> Result<Rate, String> {
    let value = match text.strip_suffix('%') {
        Some(percent) => percent.parse().map(|percent: f64| percent / 100.0),
        None => text.parse(),
    };
    let rate = value.ok().and_then(Rate::new);
    rate.ok_or_else(|| "a fraction from 0.000001 to 1, or from 0.0001% to 100%".to_owned())
}

/// One of a list of names.
fn one_of<T: Copy>(text: &str, all: &[(&str, T)]) -> Result<T, String> {
    let found = all.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        format!("one of {}", names.join(", "))
    })
}

fn errno(text: &str) -> Result<i32, String> {
    one_of(text, ERRNOS)
}

fn status(text: &str) -> Result<verbena_nic::Status, String> {
    one_of(text.strip_prefix("IBV_WC_").unwrap_or(text), STATUSES)
}

fn queue_pairs(text: &str) -> Result<Vec<u32>, String> {
    let wants = || format!("numbers of queue pairs with commas between them, at most {MAX_QPS}");
    let all: Option<Vec<u32>> = text.split(',').map(|one| one.trim().parse().ok()).collect();
    all.filter(|all| all.len() <= MAX_QPS).ok_or_else(wants)
}

#[cfg(test)]
mod tests;
