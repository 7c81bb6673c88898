//! OpenMetrics text: families with their metadata first, samples with escaped labels, and the end mark.
//! A series appears once: a second sample with the same labels is added to the first.

use std::collections::BTreeMap;
use std::fmt::Write;

/// Types of metric families.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Info,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Info => "info",
        }
    }

    fn suffix(self) -> &'static str {
        match self {
            Kind::Counter => "_total",
            Kind::Gauge => "",
            Kind::Info => "_info",
        }
    }
}

/// The text so far.
#[derive(Debug, Default)]
pub(super) struct Text(String);

/// The samples of a family.
#[derive(Debug, Default)]
pub(super) struct Samples(BTreeMap<String, f64>);

impl Samples {
    pub(super) fn add(&mut self, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<String> = labels
            .iter()
            .map(|(name, value)| format!("{name}=\"{}\"", escape(value)))
            .collect();
        *self.0.entry(labels.join(",")).or_default() += value;
    }
}

impl Text {
    /// A family; one without samples is left out.
    pub(super) fn family(
        &mut self,
        name: &str,
        kind: Kind,
        help: &str,
        add: impl FnOnce(&mut Samples),
    ) {
        let mut samples = Samples::default();
        add(&mut samples);
        if samples.0.is_empty() {
            return;
        }
        // A String takes everything.
        let _ = writeln!(
            self.0,
            "# TYPE {name} {}\n# HELP {name} {help}.",
            kind.name()
        );
        for (labels, value) in samples.0 {
            let _ = writeln!(self.0, "{name}{}{{{labels}}} {value}", kind.suffix());
        }
    }

    pub(super) fn finish(mut self) -> String {
        self.0 += "# EOF\n";
        self.0
    }
}

/// A label value with what the grammar wants escaped.
fn escape(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '\\' => text += "\\\\",
            '"' => text += "\\\"",
            '\n' => text += "\\n",
            c => text.push(c),
        }
    }
    text
}
