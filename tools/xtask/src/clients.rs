//! `cargo xtask clients`: runs real, unmodified RDMA programs on the drop-in libraries, with time limits, and reports in a table.
//! Every program of the table passes, fails or is reported as skipped, as root and as an ordinary user.
//! It installs nothing (`packages` does) and leaves no process, namespace or folder behind.

mod address;
mod case;
mod cm;
mod datagrams;
mod devices;
mod fabric;
mod faults;
mod judge;
pub(crate) mod namespace;
mod perftest;
mod pingpong;
mod probes;
pub(crate) mod process;
mod pyverbs;
mod releases;
mod roce;
mod rping;
mod rsockets;
mod same_host;
mod source;
mod stage;
mod storage;
mod table;
mod trace;
mod trial;
mod ucx;
pub(crate) mod user;
mod wheels;

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::step::Outcome;
use crate::workspace::Workspace;
use crate::{dropin, packages};
use case::Case;
use stage::Stage;
use trial::{Trial, TrialResult, Verdict};
use user::User;

/// The page with the last result.
const PAGE: &str = "docs/clients.md";
/// The text above the table of that page.
const HEAD: &str = include_str!("clients/head.md");
/// The ports of a run, below the kernel's ephemeral range.
const PORTS: std::ops::Range<u16> = 21000..32000;

#[derive(Args, Default)]
pub(crate) struct Options {
    /// Run everything, not the quick set only
    #[arg(long)]
    long: bool,
    /// Run only cases whose name contains this; may be repeated, and includes the long set
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// List the cases and run nothing
    #[arg(long)]
    list: bool,
    /// Write the result into docs/clients.md
    #[arg(long)]
    write: bool,
    /// Use the libraries of the last build
    #[arg(long)]
    no_build: bool,
}

impl Options {
    fn wants(&self, case: &Case) -> bool {
        if self.only.is_empty() {
            return self.long || case.quick;
        }
        self.only
            .iter()
            .any(|part| case.name.contains(part.as_str()))
    }
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    packages::ensure(true, options.long)?;
    perform(workspace, options)?.print();
    Ok(())
}

/// For the test run, which has built the libraries before.
pub(crate) fn test(workspace: &Workspace, long: bool) -> Result<Outcome> {
    let options = Options {
        long,
        no_build: true,
        ..Options::default()
    };
    perform(workspace, &options)
}

fn perform(workspace: &Workspace, options: &Options) -> Result<Outcome> {
    let cases = all();
    let wanted: Vec<&Case> = cases.iter().filter(|case| options.wants(case)).collect();
    if wanted.is_empty() {
        bail!("no case has a matching name; `--list` shows all names");
    }
    if options.list {
        for case in &wanted {
            let set = if case.quick { "quick" } else { "long" };
            println!("{:<44} {set}", case.name);
        }
        return Ok(Outcome::Passed);
    }
    if !options.no_build {
        dropin::build_complete(workspace, dropin::Build::Release)?;
    }
    let stage = Stage::fill(workspace)?;
    let start = Instant::now();
    let all_users = options.long || options.write || !options.only.is_empty();
    let accounts = run_trials(&trials(&wanted, &User::all(), all_users), &stage);
    if options.write {
        let path = workspace.root.join(PAGE);
        std::fs::write(&path, table::page(&accounts, &wanted, HEAD))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    println!(
        "{} runs in {:.0} s",
        accounts.len(),
        start.elapsed().as_secs_f64()
    );
    conclude(&accounts)
}

/// Offset of the ports of second attempts from those of the first.
const RETRY_PORT_OFFSET: u16 = 5000;
/// How many trials run at once, unless they run alone: half of their time they wait for timeouts.
const WORKERS: usize = 2;

/// Runs all trials, each with a port of its own; the results are in the order of the trials.
fn run_trials(trials: &[Trial<'_>], stage: &Stage) -> Vec<TrialResult> {
    let numbered: Vec<(usize, u16)> = PORTS.enumerate().take(trials.len()).collect();
    let (alone, beside): (Vec<_>, Vec<_>) = numbered
        .into_iter()
        .partition(|(index, _)| trials[*index].case.runs_alone());
    let run = |index: usize, port| {
        let result = trials[index].run(stage, port);
        println!("{}", table::line(&result));
        result
    };
    let next = Mutex::new(beside.into_iter());
    let work = || {
        let take = || next.lock().unwrap_or_else(PoisonError::into_inner).next();
        let done = std::iter::from_fn(take);
        done.map(|(index, port)| (index, port, run(index, port)))
            .collect::<Vec<_>>()
    };
    let mut results = std::thread::scope(|scope| {
        let workers = [(); WORKERS].map(|()| scope.spawn(work));
        let results = workers.into_iter().map(ScopedJoinHandle::join);
        results.flat_map(Result::unwrap).collect::<Vec<_>>()
    });
    results.extend(
        alone
            .into_iter()
            .map(|(index, port)| (index, port, run(index, port))),
    );
    results.sort_by_key(|(index, ..)| *index);
    let retried =
        |(index, port, first)| retry_if_failed(first, || run(index, port + RETRY_PORT_OFFSET));
    results.into_iter().map(retried).collect()
}

/// Runs a trial that failed once more, when no other one runs: the programs have timeouts of their own, which they may miss on a busy
/// machine. A second attempt is reported on the terminal and on the page.
fn retry_if_failed(first: TrialResult, again: impl FnOnce() -> TrialResult) -> TrialResult {
    if !matches!(first.verdict, Verdict::Failed(_)) {
        return first;
    }
    println!(
        "!!! {} as {}: second attempt, because a busy machine may have caused the failure",
        first.name, first.user
    );
    let second = again();
    match second.verdict {
        Verdict::Passed(figure) => TrialResult {
            verdict: Verdict::Passed(format!("at the second attempt only; {figure}")),
            ..second
        },
        _ => second,
    }
}

/// In CI a skip is a failure: its message would not be read there.
fn conclude(accounts: &[TrialResult]) -> Result<Outcome> {
    let [passed, skipped, failed] = table::counts(accounts);
    let sentence = format!("{passed} passed, {skipped} skipped, {failed} failed");
    println!("{sentence}");
    if failed > 0 || (skipped > 0 && packages::in_ci()) {
        bail!(sentence);
    }
    if skipped == 0 && user::is_root() {
        return Ok(Outcome::Passed);
    }
    let first = accounts.iter().find_map(|account| match &account.verdict {
        Verdict::Skipped(why) => Some(why.as_str()),
        _ => None,
    });
    Ok(Outcome::Lacking(match first {
        Some(why) => {
            format!("{skipped} runs of real programs were skipped, the first because {why}")
        }
        None => "real programs ran as this user only, not as root".to_owned(),
    }))
}

/// Every case as every one of these users; cases with namespaces run as root only. Without `all_users`, where there are several, this
/// process's own user runs only the first case of each program: what the users' rights affect, all cases of a program need.
fn trials<'a>(cases: &[&'a Case], users: &[User], all_users: bool) -> Vec<Trial<'a>> {
    let mut trials = Vec::new();
    let mut programs = BTreeSet::new();
    for case in cases {
        let is_first = programs.insert(program(&case.name));
        for user in users.iter().copied() {
            let is_separate = case.needs_namespaces();
            let runs = match user {
                User::Own => all_users || users.len() == 1 || is_separate || is_first,
                User::Other(_) => !is_separate,
            };
            if runs {
                trials.push(Trial { case, user });
            }
        }
    }
    trials
}

/// The program of a case: the first two parts of its name.
fn program(name: &str) -> &str {
    let second = name.match_indices('/').nth(1);
    second.map_or(name, |(end, _)| &name[..end])
}

fn all() -> Vec<Case> {
    let families = [
        devices::cases(),
        probes::cases(),
        pingpong::cases(),
        perftest::cases(),
        ucx::cases(),
        pyverbs::cases(),
        rsockets::cases(),
        rping::cases(),
        cm::cases(),
        fabric::cases(),
        releases::cases(),
        datagrams::cases(),
        faults::cases(),
        trace::cases(),
        wheels::cases(),
        storage::cases(),
    ];
    let mut cases: Vec<Case> = families.into_iter().flatten().collect();
    let further = [roce::cases(&cases), same_host::cases(&cases)];
    cases.extend(further.into_iter().flatten());
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_names_are_unique_and_short() {
        let cases = all();
        let names: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names.len(), cases.len());
        assert!(names.iter().all(|name| name.len() <= 44), "{names:?}");
        assert!(cases.len() * 2 < usize::from(RETRY_PORT_OFFSET));
    }

    #[test]
    fn quick_run_has_each_program_as_each_user() {
        let cases = all();
        let cases: Vec<&Case> = cases.iter().filter(|case| case.quick).collect();
        let users = [User::Own, User::Other(1)];
        let quick = trials(&cases, &users, false);
        let long = trials(&cases, &users, true);
        assert!(quick.len() < long.len());
        for user in users {
            let programs = |trials: &[Trial<'_>]| -> BTreeSet<String> {
                let own = trials.iter().filter(|trial| trial.user == user);
                own.map(|trial| program(&trial.case.name).to_owned())
                    .collect()
            };
            assert_eq!(programs(&quick), programs(&long));
        }
        let runs = |case: &&Case| quick.iter().any(|trial| trial.case.name == case.name);
        assert!(cases.iter().all(runs), "every case runs");
        // A user that cannot start processes of another one runs every case.
        let own = trials(&cases, &[User::Own], false);
        assert_eq!(own.len(), cases.len());
    }

    #[test]
    fn paired_commands_name_port_and_peer() {
        for case in all()
            .iter()
            .filter(|case| case.sides.len() == 2 && case.udp.is_none())
        {
            for side in &case.sides {
                assert!(
                    side.command.iter().any(|word| word.contains(case::PORT)),
                    "{}",
                    case.name
                );
            }
            let client = &case.sides[1].command;
            let called = |word: &String| word.contains(case::PEER) || word.contains(case::PEER6);
            assert!(client.iter().any(called), "{}", case.name);
        }
    }

    #[test]
    fn excused_output_has_a_reason() {
        for case in all() {
            for noise in case.sides.iter().flat_map(|side| &side.noise) {
                assert!(!noise.part.is_empty() && !noise.reason.is_empty());
            }
        }
    }
}
