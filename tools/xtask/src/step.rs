//! A run of named steps: a heading before each, its duration after it, a table at the end.
//! The first failure ends the run, and steps that did not run are listed as such.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How a step that did not fail ended.
pub(crate) enum Outcome {
    /// Everything it stands for was checked.
    Passed,
    /// Everything was checked, and the sentence should be read.
    Noted(String),
    /// Part of it was left out; the sentence says what and why.
    Lacking(String),
}

const MARK: &str = "!!! ";
const NOT_EVERYTHING: &str = "NOT EVERYTHING WAS TESTED: ";

impl Outcome {
    /// For a command that is run alone, without a table.
    pub(crate) fn print(&self) {
        match self {
            Outcome::Passed => {}
            Outcome::Noted(what) => println!("{MARK}{what}"),
            Outcome::Lacking(what) => println!("{MARK}{NOT_EVERYTHING}{what}"),
        }
    }

    /// What a command that succeeded has [printed](Outcome::print).
    pub(crate) fn printed_in(text: &str) -> Outcome {
        let mut marked = text.lines().filter_map(|line| line.strip_prefix(MARK));
        let Some(what) = marked.next() else {
            return Outcome::Passed;
        };
        match what.strip_prefix(NOT_EVERYTHING) {
            Some(what) => Outcome::Lacking(what.to_owned()),
            None => Outcome::Noted(what.to_owned()),
        }
    }
}

/// The entry of a step in the table.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Passed,
    Noted(String),
    Lacking(String),
    Failed(String),
    NotRun,
}

struct Step<'a> {
    title: &'static str,
    work: Box<dyn FnOnce() -> Result<Outcome> + 'a>,
}

struct Line {
    title: &'static str,
    verdict: Verdict,
    elapsed: Duration,
}

/// Steps in the order they will run.
#[derive(Default)]
pub(crate) struct Steps<'a> {
    steps: Vec<Step<'a>>,
}

impl<'a> Steps<'a> {
    /// A step that either passes or fails.
    pub(crate) fn add(&mut self, title: &'static str, work: impl FnOnce() -> Result<()> + 'a) {
        self.add_outcome(title, || work().map(|()| Outcome::Passed));
    }

    /// A step that may also find that something cannot be checked here.
    pub(crate) fn add_outcome(
        &mut self,
        title: &'static str,
        work: impl FnOnce() -> Result<Outcome> + 'a,
    ) {
        let work = Box::new(work);
        self.steps.push(Step { title, work });
    }

    /// Runs all of them, or up to the first that fails; then prints the table.
    pub(crate) fn run(self) -> Result<()> {
        let total = self.steps.len();
        let mut lines: Vec<Line> = Vec::new();
        let mut failed = false;
        for (index, step) in self.steps.into_iter().enumerate() {
            let title = step.title;
            if failed {
                lines.push(Line {
                    title,
                    verdict: Verdict::NotRun,
                    elapsed: Duration::ZERO,
                });
                continue;
            }
            println!("\n=== [{}/{total}] {title} ===", index + 1);
            let start = Instant::now();
            let verdict = match (step.work)() {
                Ok(Outcome::Passed) => Verdict::Passed,
                Ok(Outcome::Noted(what)) => Verdict::Noted(what),
                Ok(Outcome::Lacking(what)) => Verdict::Lacking(what),
                Err(error) => Verdict::Failed(format!("{error:#}")),
            };
            let took = start.elapsed();
            failed = matches!(verdict, Verdict::Failed(_));
            let word = if failed { "FAILED" } else { "done" };
            println!("--- {title}: {word} in {:.1} s", took.as_secs_f64());
            lines.push(Line {
                title,
                verdict,
                elapsed: took,
            });
        }
        print!("{}", summary(&lines));
        if failed {
            bail!("the test run failed");
        }
        Ok(())
    }
}

/// The table, what is lacking, and one last line with the count.
fn summary(lines: &[Line]) -> String {
    let mut text = String::from("\n=== summary ===\n");
    let width = lines.iter().map(|l| l.title.len()).max().unwrap_or(0);
    for line in lines {
        let word = match &line.verdict {
            Verdict::Passed | Verdict::Noted(_) => "passed",
            Verdict::Lacking(_) => "LACKING",
            Verdict::Failed(_) => "FAILED",
            Verdict::NotRun => "not run",
        };
        let seconds = line.elapsed.as_secs_f64();
        let _ = writeln!(text, "  {:width$}  {word:8} {seconds:8.1} s", line.title);
    }
    for line in lines {
        match &line.verdict {
            Verdict::Noted(what) => {
                let _ = writeln!(text, "\n{MARK}{}, passed: {what}", line.title);
            }
            Verdict::Lacking(what) => {
                let _ = writeln!(text, "\n{MARK}{NOT_EVERYTHING}{what}");
            }
            Verdict::Failed(why) => {
                let _ = writeln!(text, "\n{MARK}{}: {why}", line.title);
            }
            Verdict::Passed | Verdict::NotRun => {}
        }
    }
    let passed = count(lines, |v| matches!(v, Verdict::Passed | Verdict::Noted(_)));
    let lacking = count(lines, |v| matches!(v, Verdict::Lacking(_)));
    let _ = write!(text, "\n{passed} of {} steps passed", lines.len());
    if lacking > 0 {
        let _ = write!(text, ", {lacking} left something out");
    }
    text.push('\n');
    text
}

fn count(lines: &[Line], which: impl Fn(&Verdict) -> bool) -> usize {
    lines.iter().filter(|line| which(&line.verdict)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn line(title: &'static str, verdict: Verdict) -> Line {
        Line {
            title,
            verdict,
            elapsed: Duration::from_millis(1500),
        }
    }

    #[test]
    fn the_first_failure_ends_the_run() {
        let ran = RefCell::new(Vec::new());
        let mut steps = Steps::default();
        steps.add("one", || {
            ran.borrow_mut().push(1);
            Ok(())
        });
        steps.add("two", || bail!("broken"));
        steps.add("three", || {
            ran.borrow_mut().push(3);
            Ok(())
        });
        assert!(steps.run().is_err());
        assert_eq!(*ran.borrow(), [1]);
    }

    #[test]
    fn summary_of_a_passing_run_counts_steps() {
        let text = summary(&[line("one", Verdict::Passed), line("two", Verdict::Passed)]);
        assert_eq!(text.lines().last(), Some("2 of 2 steps passed"));
        assert!(text.contains("1.5 s"));
    }

    #[test]
    fn outcome_is_read_from_what_a_command_has_printed() {
        let of = Outcome::printed_in;
        assert!(matches!(of("5 instructions\n"), Outcome::Passed));
        let noted = of("5 instructions\n!!! fewer than recorded\n");
        assert!(matches!(noted, Outcome::Noted(what) if what == "fewer than recorded"));
        let lacking = of("!!! NOT EVERYTHING WAS TESTED: other processor\n");
        assert!(matches!(lacking, Outcome::Lacking(what) if what == "other processor"));
    }

    #[test]
    fn lacking_step_is_reported_and_not_passed() {
        let lacking = Verdict::Lacking("tshark is missing".into());
        let text = summary(&[line("one", lacking), line("two", Verdict::Passed)]);
        assert!(text.contains("!!! NOT EVERYTHING WAS TESTED: tshark is missing"));
        assert!(text.ends_with("1 of 2 steps passed, 1 left something out\n"));
    }

    #[test]
    fn noted_step_is_reported_and_passed() {
        let noted = Verdict::Noted("renew the file".into());
        let text = summary(&[line("one", noted), line("two", Verdict::Passed)]);
        assert!(text.contains("!!! one, passed: renew the file"));
        assert!(text.ends_with("2 of 2 steps passed\n"));
    }

    #[test]
    fn failed_and_skipped_steps_are_named() {
        let failed = Verdict::Failed("exit 1".into());
        let text = summary(&[line("one", failed), line("two", Verdict::NotRun)]);
        assert!(text.contains("!!! one: exit 1"));
        assert!(text.contains("not run"));
        assert!(text.ends_with("0 of 2 steps passed\n"));
    }
}
