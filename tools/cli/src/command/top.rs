//! `verbena top`: arguments, and the table once or again and again until q.
//! Without a terminal only `--once` works.

mod screen;

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use verbena_cli::events::Error;
use verbena_cli::top::{Column, Process, Sampler, View, render};

use screen::{Key, Screen};

pub(crate) const EXAMPLE: &str = "\
Examples:
  verbena top
  verbena top --sort messages-out --filter shared-memory
  verbena top --once --json | jq '.[] | [.program, .rates.bytes_out]'

Keys: s sorts by the next column, r the other way round, p shows or hides queue pairs, / filters (Enter ends the text), q quits.
Rates are per second. STALL is the part of the time in which the peer's TCP window delayed sending; WAKE/s counts threads of the process that
slept and were woken.";

/// The shortest interval: reading itself takes processor time of the watched programs.
const SHORTEST: f64 = 0.1;
const LONGEST: f64 = 3600.0;

#[derive(Args)]
pub(crate) struct Top {
    /// Seconds between two readings
    #[arg(long, short = 'i', default_value_t = 1.0, value_parser = parse_interval)]
    interval: f64,
    /// Column to sort by
    #[arg(long, value_enum, default_value_t = Column::default())]
    sort: Column,
    /// Only rows that contain this text in program, process id, state, path or peer
    #[arg(long, default_value = "")]
    filter: String,
    /// Processes without their queue pairs
    #[arg(long)]
    processes: bool,
    /// Print the table once, after one interval
    #[arg(long)]
    once: bool,
    /// Print JSON, an array of processes
    #[arg(long, requires = "once")]
    json: bool,
}

fn parse_interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| format!("`{text}` is not a number of seconds"))?;
    if (SHORTEST..=LONGEST).contains(&seconds) {
        Ok(seconds)
    } else {
        Err(format!(
            "{seconds} is not between {SHORTEST} and {LONGEST} seconds"
        ))
    }
}

pub(crate) fn run(args: &Top) -> u8 {
    let done = if args.once { once(args) } else { live(args) };
    match done {
        Ok(()) => 0,
        // The reader closed the pipe.
        Err(Error::System(error)) if error.kind() == io::ErrorKind::BrokenPipe => 0,
        Err(error) => {
            eprintln!("verbena: {error}");
            1
        }
    }
}

fn view(args: &Top) -> View {
    View {
        sort: args.sort,
        reversed: false,
        filter: args.filter.clone(),
        processes_only: args.processes,
    }
}

fn once(args: &Top) -> Result<(), Error> {
    let mut sampler = Sampler::default();
    sampler.sample()?;
    std::thread::sleep(Duration::from_secs_f64(args.interval));
    let view = view(args);
    let processes = view.arrange(sampler.sample()?);
    let mut out = io::stdout().lock();
    if args.json {
        let all: Vec<_> = processes.iter().map(Process::json).collect();
        writeln!(out, "{}", serde_json::Value::Array(all))?;
        return Ok(());
    }
    for line in render(&processes, &view, usize::MAX, usize::MAX) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn live(args: &Top) -> Result<(), Error> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        let what = "standard input and output are not a terminal; use --once";
        return Err(io::Error::new(io::ErrorKind::Unsupported, what).into());
    }
    let (mut sampler, mut view) = (Sampler::default(), view(args));
    let mut screen = Screen::open()?;
    let mut typing = false;
    loop {
        let read = sampler.sample()?;
        let mut left = Duration::from_secs_f64(args.interval);
        loop {
            let status = if typing {
                format!("filter: {}_", view.filter)
            } else {
                format!(
                    "sort {:?}{}  filter `{}`  keys: s r p / q",
                    view.sort,
                    if view.reversed { " reversed" } else { "" },
                    view.filter
                )
            };
            let (width, height) = screen.size();
            let shown = view.arrange(read.clone());
            screen.draw(
                &status,
                &render(&shown, &view, width, height.saturating_sub(1)),
            )?;
            match screen.key(&mut left)? {
                None => break,
                Some(Key::Quit) => return Ok(()),
                Some(key) if typing => typing = type_filter(&mut view.filter, key),
                Some(Key::Char('q')) => return Ok(()),
                Some(Key::Char('s')) => view.sort = view.sort.next(),
                Some(Key::Char('r')) => view.reversed = !view.reversed,
                Some(Key::Char('p')) => view.processes_only = !view.processes_only,
                Some(Key::Char('/')) => {
                    view.filter.clear();
                    typing = true;
                }
                Some(_) => {}
            }
        }
    }
}

/// Most characters of a filter.
const MAX_FILTER: usize = 64;

/// A key while the filter is typed; false if that ends it.
fn type_filter(filter: &mut String, key: Key) -> bool {
    match key {
        Key::Enter => return false,
        Key::Backspace => drop(filter.pop()),
        Key::Char(c) if filter.chars().count() < MAX_FILTER => filter.push(c),
        Key::Char(_) | Key::Quit | Key::Other => {}
    }
    true
}
