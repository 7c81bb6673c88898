//! Rules about reports that are not to be shown and do not count: TOML with a table `suppress` for each. A rule has at least one of `kind`, `program`,
//! `frames` and `any`; frames are compared with the first stack of a report, or with any of its stacks, from the innermost on.

use serde::Deserialize;

use super::finding::Finding;
use super::symbols::Place;

/// Bytes of a file, and rules, at most.
pub const MAX_FILE: u64 = 1 << 20;
const MAX_RULES: usize = 10_000;

/// Rules for programs that are known to do something on purpose.
const DEFAULT: &str = include_str!("default.toml");

/// One rule.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
struct Rule {
    kind: Option<String>,
    program: Option<String>,
    #[serde(default)]
    frames: Vec<String>,
    /// Frames of any stack.
    #[serde(default)]
    any: Vec<String>,
    /// Why, for the reader.
    #[serde(default, rename = "reason")]
    _reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    suppress: Vec<Rule>,
}

/// All rules.
#[derive(Debug, Default)]
pub struct Suppressions(Vec<Rule>);

impl Suppressions {
    /// Those that come with the command.
    pub fn default_rules() -> Suppressions {
        let mut rules = Suppressions::default();
        // It is correct, which a test checks.
        let _ = rules.add(DEFAULT);
        rules
    }

    /// Adds the rules of a text.
    pub fn add(&mut self, text: &str) -> Result<(), String> {
        let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
        for (at, rule) in file.suppress.iter().enumerate() {
            let number = at + 1;
            if rule.kind.is_none()
                && rule.program.is_none()
                && rule.frames.is_empty()
                && rule.any.is_empty()
            {
                return Err(format!(
                    "rule {number} has neither kind nor program nor frames, and would suppress everything"
                ));
            }
            let known = |frame: &&String| {
                *frame == "..."
                    || ["fun:", "obj:", "src:"]
                        .iter()
                        .any(|kind| frame.starts_with(kind))
            };
            if let Some(wrong) = rule
                .frames
                .iter()
                .chain(&rule.any)
                .find(|frame| !known(frame))
            {
                return Err(format!(
                    "rule {number}: `{wrong}` is no frame: expected fun:FUNCTION, obj:LIBRARY, src:FILE or ..."
                ));
            }
        }
        self.0.extend(file.suppress);
        if self.0.len() > MAX_RULES {
            return Err(format!("more than {MAX_RULES} rules"));
        }
        Ok(())
    }

    /// The number of the first rule that suppresses this.
    pub fn find(&self, finding: &Finding) -> Option<usize> {
        self.0.iter().position(|rule| rule.suppresses(finding))
    }
}

impl Rule {
    fn suppresses(&self, finding: &Finding) -> bool {
        let is = |pattern: &Option<String>, text: &str| {
            pattern
                .as_ref()
                .is_none_or(|pattern| matches(pattern.as_bytes(), text.as_bytes()))
        };
        let places = finding
            .stacks
            .first()
            .map_or(&[][..], |stack| &stack.places);
        is(&self.kind, &finding.kind)
            && is(&self.program, &finding.program)
            && matches_frames(&self.frames, places)
            && (self.any.is_empty()
                || finding
                    .stacks
                    .iter()
                    .any(|stack| matches_frames(&self.any, &stack.places)))
    }
}

/// Whether the frames begin with these; `...` is any number of frames.
fn matches_frames(rules: &[String], places: &[Place]) -> bool {
    let Some((first, rest)) = rules.split_first() else {
        return true;
    };
    if first == "..." {
        return (0..=places.len()).any(|from| matches_frames(rest, &places[from..]));
    }
    let Some((place, further)) = places.split_first() else {
        return false;
    };
    is_place(first, place) && matches_frames(rest, further)
}

fn is_place(rule: &str, place: &Place) -> bool {
    let (kind, pattern) = rule.split_at(4);
    let text = match kind {
        "fun:" => place.function.as_deref().unwrap_or(""),
        "src:" => place.line.as_ref().map_or("", |(file, _)| file.as_str()),
        _ => &place.object,
    };
    matches(pattern.as_bytes(), text.as_bytes())
}

/// Whether a text is that of a pattern, where `*` is any text and `?` any byte.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to go on if the rest does not match: behind the last star, one byte further.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, t));
                p += 1;
            }
            Some(b'?') => (p, t) = (p + 1, t + 1),
            Some(c) if *c == text[t] => (p, t) = (p + 1, t + 1),
            _ => match star {
                Some((after, from)) => {
                    star = Some((after, from + 1));
                    (p, t) = (after, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

/// A rule that suppresses this, to be put into a file.
pub fn rule_for(finding: &Finding) -> String {
    const FRAMES: usize = 4;
    let quoted = |text: &str| toml_string(text);
    let places = finding
        .stacks
        .first()
        .map_or(&[][..], |stack| &stack.places);
    let frames = places
        .iter()
        .take(FRAMES)
        .map(|place| match &place.function {
            Some(function) => quoted(&format!("fun:{function}")),
            None => quoted(&format!("obj:{}", place.object)),
        });
    let frames = frames.collect::<Vec<_>>().join(", ");
    format!(
        "[[suppress]]\nkind = {}\nprogram = {}\nframes = [{frames}]\n",
        quoted(&finding.kind),
        quoted(&finding.program)
    )
}

/// A basic string of TOML; the text has no control characters.
fn toml_string(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, text, expected) in [
            ("pp_post_*", "pp_post_recv", true),
            ("*recv", "pp_post_recv", true),
            ("pp_*_re?v", "pp_post_recv", true),
            ("pp_post", "pp_post_recv", false),
            ("*", "", true),
            ("", "", true),
            ("a*b*c", "aXbXbXc", true),
            ("a*b*c", "aXbX", false),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                expected,
                "{pattern} {text}"
            );
        }
    }

    #[test]
    fn default_rules_are_correct() {
        Suppressions::default().add(DEFAULT).unwrap();
    }

    #[test]
    fn wrong_rules_are_explained() {
        for (text, complaint) in [
            (
                "[[suppress]]\n",
                "rule 1 has neither kind nor program nor frames",
            ),
            ("[[suppress]]\nframes = [\"main\"]\n", "`main` is no frame"),
            ("[[suppress]]\nkinds = \"x\"\n", "unknown field `kinds`"),
        ] {
            let error = Suppressions::default().add(text).unwrap_err();
            assert!(error.contains(complaint), "{error}");
        }
    }
}
