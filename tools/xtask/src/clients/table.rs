//! The result of a run as a table: on the terminal during the run, and as the page `docs/clients.md`.
//! It has a row for every case of the run, including skipped and failed ones.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::case::Case;
use super::trial::{TrialResult, Verdict};

/// One line on the terminal.
pub(crate) fn line(account: &TrialResult) -> String {
    let (word, rest) = match &account.verdict {
        Verdict::Passed(figure) => ("passed", figure),
        Verdict::Skipped(why) => ("SKIPPED", why),
        Verdict::Failed(why) => ("FAILED", why),
    };
    format!(
        "{:<44} {:<7} {word:<8} {:>6.1} s  {rest}",
        account.name,
        account.user.to_string(),
        account.elapsed.as_secs_f64()
    )
}

/// How many passed, were skipped, failed.
pub(crate) fn counts(accounts: &[TrialResult]) -> [usize; 3] {
    let mut counts = [0; 3];
    for account in accounts {
        let index = match account.verdict {
            Verdict::Passed(_) => 0,
            Verdict::Skipped(_) => 1,
            Verdict::Failed(_) => 2,
        };
        counts[index] += 1;
    }
    counts
}

/// The whole page.
pub(crate) fn page(accounts: &[TrialResult], cases: &[&Case], head: &str) -> String {
    let [passed, skipped, failed] = counts(accounts);
    let mut text = String::from(head);
    let _ = writeln!(
        text,
        "\nLast result: {passed} passed, {failed} failed, {skipped} skipped.\n"
    );
    // One row per case, one column per user.
    let mut rows: BTreeMap<&str, BTreeMap<String, &TrialResult>> = BTreeMap::new();
    let mut users: Vec<String> = Vec::new();
    for account in accounts {
        let user = account.user.to_string();
        if !users.contains(&user) {
            users.push(user.clone());
        }
        rows.entry(&account.name).or_default().insert(user, account);
    }
    let _ = writeln!(text, "| case | set | {} | measured |", users.join(" | "));
    let _ = writeln!(text, "| --- | --- |{} --- |", " --- |".repeat(users.len()));
    for (name, by_user) in &rows {
        let quick = by_user.values().any(|account| account.quick);
        let set = if quick { "quick" } else { "long" };
        let cells: Vec<&str> = users
            .iter()
            .map(|user| {
                by_user
                    .get(user)
                    .map_or("", |account| cell(&account.verdict))
            })
            .collect();
        let figure = by_user
            .values()
            .next()
            .map_or("", |account| figure(account));
        let _ = writeln!(
            text,
            "| {name} | {set} | {} | {figure} |",
            cells.join(" | ")
        );
    }
    text + &accepted_noise(cases)
}

/// Lines accepted on standard error, and why.
fn accepted_noise(cases: &[&Case]) -> String {
    let mut reasons: BTreeMap<&str, &str> = BTreeMap::new();
    for noise in cases
        .iter()
        .flat_map(|case| &case.sides)
        .flat_map(|side| &side.noise)
    {
        reasons.insert(noise.part, noise.reason);
    }
    if reasons.is_empty() {
        return String::new();
    }
    let mut text = String::from("\nMessages on standard error that are no failure:\n\n");
    for (part, reason) in reasons {
        let _ = writeln!(text, "- `{part}`: {reason}.");
    }
    text
}

fn cell(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Passed(_) => "passed",
        Verdict::Skipped(_) => "skipped",
        Verdict::Failed(_) => "**failed**",
    }
}

fn figure(account: &TrialResult) -> &str {
    match &account.verdict {
        Verdict::Passed(text) | Verdict::Skipped(text) => text,
        Verdict::Failed(_) => "",
    }
}

#[cfg(test)]
mod tests {
    use super::super::case::{Noise, Side};
    use super::super::user::User;
    use super::*;
    use std::time::Duration;

    fn account(name: &str, verdict: Verdict) -> TrialResult {
        TrialResult {
            name: name.into(),
            user: User::Other(1),
            quick: true,
            verdict,
            elapsed: Duration::from_secs(1),
        }
    }

    #[test]
    fn excuses_are_listed_on_the_page() {
        let mut side = Side::new(["p"]);
        assert_eq!(accepted_noise(&[&Case::single("quiet", side.clone())]), "");
        side.noise.push(Noise {
            part: "oh",
            reason: "it is old",
        });
        let text = accepted_noise(&[&Case::single("noisy", side)]);
        assert!(text.ends_with("- `oh`: it is old.\n"));
    }

    #[test]
    fn every_result_has_a_row() {
        let accounts = [
            account("b", Verdict::Passed("3 µs".into())),
            account("a", Verdict::Failed("broken".into())),
            account("c", Verdict::Skipped("no ip".into())),
        ];
        let text = page(&accounts, &[], "Head\n");
        assert!(text.contains("1 passed, 1 failed, 1 skipped"));
        assert!(text.contains("| a | quick | **failed** |  |\n| b | quick | passed | 3 µs |\n"));
        assert!(text.ends_with("| c | quick | skipped | no ip |\n"));
        assert!(line(&accounts[1]).contains("FAILED") && line(&accounts[1]).ends_with("broken"));
    }
}
