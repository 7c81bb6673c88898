//! The table of `verbena top`: which rows are shown in which order, and each as one line of the width of the screen.
//! Text of other processes has no control characters here any more; a line is cut at the width, never wrapped.

use std::cmp::Ordering;

use super::rows::{Pair, Process, Rates};

/// What rows are sorted by, largest first; names and numbers smallest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Column {
    /// Bytes sent.
    #[default]
    BytesOut,
    /// Bytes received.
    BytesIn,
    /// Messages sent.
    MessagesOut,
    /// Messages received.
    MessagesIn,
    /// Send requests outstanding.
    Outstanding,
    /// Receiver not ready.
    Rnr,
    /// Segments or packets sent again.
    Retries,
    /// Time in which the peer's window delayed sending.
    Stalled,
    /// Threads woken.
    Wakeups,
    /// The process id.
    Pid,
    /// The name of the program.
    Program,
}

impl Column {
    /// The next one, and after the last the first.
    #[must_use]
    pub fn next(self) -> Column {
        let all = <Column as clap::ValueEnum>::value_variants();
        let at = all.iter().position(|column| *column == self).unwrap_or(0);
        all[(at + 1) % all.len()]
    }

    fn value(self, rates: &Rates, outstanding: u64, wakeups: f64) -> f64 {
        match self {
            Column::BytesOut => rates.bytes_out,
            Column::BytesIn => rates.bytes_in,
            Column::MessagesOut => rates.messages_out,
            Column::MessagesIn => rates.messages_in,
            Column::Outstanding => outstanding as f64,
            Column::Rnr => rates.rnr,
            Column::Retries => rates.retries,
            Column::Stalled => rates.stalled,
            Column::Wakeups => wakeups,
            Column::Pid | Column::Program => 0.0,
        }
    }

    fn of_processes(self, a: &Process, b: &Process) -> Ordering {
        let value = |p: &Process| self.value(&p.rates(), p.outstanding(), p.wakeups);
        let first = match self {
            Column::Program => a.program.cmp(&b.program),
            _ => value(b).total_cmp(&value(a)),
        };
        first.then(a.pid.cmp(&b.pid))
    }

    fn of_pairs(self, a: &Pair, b: &Pair) -> Ordering {
        let value = |p: &Pair| self.value(&p.rates, p.outstanding, 0.0);
        let first = value(b).total_cmp(&value(a));
        first.then((a.adapter, a.number).cmp(&(b.adapter, b.number)))
    }
}

/// How the table is shown.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// What it is sorted by.
    pub sort: Column,
    /// The other way round.
    pub reversed: bool,
    /// Only rows that contain this text in program, process id, state, path or peer.
    pub filter: String,
    /// Without queue pairs.
    pub processes_only: bool,
}

impl View {
    /// The rows to show, in order.
    pub fn arrange(&self, mut processes: Vec<Process>) -> Vec<Process> {
        let matches = |text: &str| text.contains(&self.filter);
        for process in &mut processes {
            let whole = matches(&process.program) || matches(&process.pid.to_string());
            process.pairs.retain(|pair| {
                whole
                    || [&pair.state, &pair.path, &pair.peer]
                        .iter()
                        .any(|text| matches(text))
            });
            process
                .pairs
                .sort_by(|a, b| self.turn(self.sort.of_pairs(a, b)));
        }
        processes.retain(|process| {
            !process.pairs.is_empty()
                || matches(&process.program)
                || matches(&process.pid.to_string())
        });
        processes.sort_by(|a, b| self.turn(self.sort.of_processes(a, b)));
        processes
    }

    fn turn(&self, order: Ordering) -> Ordering {
        if self.reversed {
            order.reverse()
        } else {
            order
        }
    }
}

/// The table as lines of at most `width` characters, at most `height` of them.
pub fn render(processes: &[Process], view: &View, width: usize, height: usize) -> Vec<String> {
    let mut lines = vec![heading()];
    for process in processes {
        let name = format!("{} {}", process.program, process.pid);
        let state = if process.is_silent { "silent" } else { "" };
        let wakeups = short(process.wakeups);
        let pending = process.outstanding();
        lines.push(line(
            (&name, state, ""),
            &process.rates(),
            pending,
            &wakeups,
            "",
        ));
        for pair in process.pairs.iter().filter(|_| !view.processes_only) {
            let name = match pair.adapter {
                0 => format!("  {}", pair.number),
                adapter => format!("  {adapter}/{}", pair.number),
            };
            let what = (name.as_str(), pair.state.as_str(), pair.path.as_str());
            lines.push(line(what, &pair.rates, pair.outstanding, "", &pair.peer));
        }
    }
    lines.truncate(height);
    for line in &mut lines {
        *line = line.chars().take(width).collect();
    }
    lines
}

fn heading() -> String {
    format!(
        "{:<25} {:<6} {:<13} {:>10} {:>10} {:>10} {:>10} {:>5} {:>6} {:>8} {:>6} {:>7}  PEER",
        "PROCESS / QUEUE PAIR",
        "STATE",
        "PATH",
        "OUT msg/s",
        "OUT B/s",
        "IN msg/s",
        "IN B/s",
        "PEND",
        "RNR/s",
        "RETRY/s",
        "STALL",
        "WAKE/s",
    )
}

fn line(
    (name, state, path): (&str, &str, &str),
    rates: &Rates,
    pending: u64,
    wakeups: &str,
    peer: &str,
) -> String {
    let text = format!(
        "{:<25} {:<6} {:<13} {:>10} {:>10} {:>10} {:>10} {:>5} {:>6} {:>8} {:>5}% {:>7}  {}",
        cut(name, 25),
        cut(state, 6),
        cut(path, 13),
        short(rates.messages_out),
        short(rates.bytes_out),
        short(rates.messages_in),
        short(rates.bytes_in),
        pending,
        short(rates.rnr),
        short(rates.retries),
        (rates.stalled * 100.0).round(),
        wakeups,
        peer,
    );
    text.trim_end().to_owned()
}

/// At most so many characters.
fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

/// A rate with three digits and a unit.
fn short(rate: f64) -> String {
    let units = ["", "k", "M", "G", "T", "P", "E"];
    let (mut rate, mut unit) = (rate, 0);
    while rate >= 1000.0 && unit + 1 < units.len() {
        rate /= 1000.0;
        unit += 1;
    }
    match (rate, unit) {
        (0.0, _) => "0".to_owned(),
        (..10.0, _) => format!("{rate:.2}{}", units[unit]),
        (..100.0, _) => format!("{rate:.1}{}", units[unit]),
        _ => format!("{rate:.0}{}", units[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(number: u64, peer: &str, bytes_out: f64) -> Pair {
        Pair {
            number,
            state: "Rts".to_owned(),
            path: "tcp".to_owned(),
            peer: peer.to_owned(),
            outstanding: number,
            rates: Rates {
                bytes_out,
                ..Rates::default()
            },
            ..Pair::default()
        }
    }

    fn processes() -> Vec<Process> {
        let process = |pid, program: &str, pairs| Process {
            pid,
            program: program.to_owned(),
            is_silent: false,
            wakeups: 0.0,
            pairs,
        };
        vec![
            process(
                10,
                "slow",
                vec![pair(1, "192.0.2.1:1", 1.0), pair(2, "192.0.2.2:1", 3.0)],
            ),
            process(20, "fast", vec![pair(7, "192.0.2.3:1", 5e6)]),
        ]
    }

    fn numbers(view: &View) -> Vec<(u32, Vec<u64>)> {
        let shown = view.arrange(processes());
        let pairs = |p: &Process| p.pairs.iter().map(|pair| pair.number).collect();
        shown.iter().map(|p| (p.pid, pairs(p))).collect()
    }

    #[test]
    fn rows_are_sorted_and_filtered() {
        let view = View::default();
        assert_eq!(numbers(&view), [(20, vec![7]), (10, vec![2, 1])]);
        let reversed = View {
            reversed: true,
            ..View::default()
        };
        assert_eq!(numbers(&reversed), [(10, vec![1, 2]), (20, vec![7])]);
        let filtered = |text: &str| View {
            filter: text.to_owned(),
            ..View::default()
        };
        assert_eq!(numbers(&filtered("192.0.2.1:")), [(10, vec![1])]);
        assert_eq!(numbers(&filtered("fast")), [(20, vec![7])]);
        assert_eq!(numbers(&filtered("nothing")), []);
        let by_name = View {
            sort: Column::Program,
            ..View::default()
        };
        assert_eq!(numbers(&by_name)[0].0, 20);
        let by_pid = View {
            sort: Column::Pid,
            ..View::default()
        };
        assert_eq!(numbers(&by_pid), [(10, vec![1, 2]), (20, vec![7])]);
    }

    #[test]
    fn every_column_has_a_successor() {
        let mut column = Column::default();
        let count = <Column as clap::ValueEnum>::value_variants().len();
        for _ in 0..count {
            column = column.next();
        }
        assert_eq!(column, Column::default());
    }

    #[test]
    fn table_fits_the_screen() {
        let shown = View::default().arrange(processes());
        let all = render(&shown, &View::default(), 200, 50);
        assert_eq!(all.len(), 6);
        assert!(
            all[2].starts_with("  7")
                && all[2].contains("5.00M")
                && all[2].ends_with("192.0.2.3:1"),
            "{all:#?}"
        );
        let small = render(&shown, &View::default(), 20, 3);
        assert_eq!(small.len(), 3);
        assert!(
            small.iter().all(|line| line.chars().count() <= 20),
            "{small:?}"
        );
        let processes_only = View {
            processes_only: true,
            ..View::default()
        };
        assert_eq!(render(&shown, &processes_only, 200, 50).len(), 3);
        assert!(render(&shown, &View::default(), 0, 0).is_empty());
    }

    #[test]
    fn rates_have_three_digits() {
        let rates = [
            0.0,
            0.004,
            9.99,
            12.34,
            999.0,
            1000.0,
            1_234_567.0,
            1e30,
            f64::INFINITY,
        ];
        let shown: Vec<String> = rates.map(short).into();
        assert_eq!(
            shown[..7],
            ["0", "0.00", "9.99", "12.3", "999", "1.00k", "1.23M"]
        );
    }
}
