//! A key-value server that is replaced by a new process repeatedly while clients load it, without an error at the clients (V1).
//! Without arguments it demonstrates this: one server, one client process, five successors. Or in three terminals:
//! `server --at ADDR --handover PATH`, `client ADDR --seconds 60`, and `server --takeover PATH` any number of times.

mod client;
mod protocol;
mod server;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use protocol::Result;

/// How often the demonstration replaces the server.
const UPGRADES: u64 = 5;

/// The program's arguments.
struct Arguments(Vec<String>);

impl Arguments {
    fn flag(&self, name: &str) -> bool {
        self.0.iter().any(|argument| argument == name)
    }

    fn value(&self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|argument| argument == name)?;
        self.0.get(at + 1).cloned()
    }

    fn number(&self, name: &str) -> Result<Option<u64>> {
        Ok(self.value(name).map(|word| word.parse()).transpose()?)
    }

    fn server(&self) -> Result<server::ServerOptions> {
        Ok(server::ServerOptions {
            at: self.value("--at"),
            handover_path: self.value("--handover"),
            takeover_path: self.value("--takeover"),
            seconds: self.number("--seconds")?,
            timeout: self.number("--patience-ms")?.map(Duration::from_millis),
            die_at: self.value("--die-at"),
            stop_at: self.value("--stop-at"),
            private: self.flag("--private"),
            forget: self.flag("--forget"),
        })
    }

    fn client(&self) -> Result<client::ClientOptions> {
        let to = self.0.get(1).ok_or("usage: upgrade client ADDR")?;
        Ok(client::ClientOptions {
            to: to.parse()?,
            seconds: self.number("--seconds")?.unwrap_or(10),
            clients: self.number("--clients")?.unwrap_or(4),
            newcomers: self.flag("--newcomers"),
            until_stdin_closes: self.flag("--until-stdin-closes"),
        })
    }
}

/// A process of this program whose output is read.
struct Process {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
}

impl Process {
    fn new(arguments: &[&str]) -> Result<Process> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let says = child.stdout.take().ok_or("no pipe from its stdout")?;
        let says = BufReader::new(says);
        Ok(Process {
            child,
            stdout: says,
        })
    }

    /// Repeats its output until a line contains `what`; returns the rest of that line.
    fn wait_for_line(&mut self, what: &str) -> Result<String> {
        loop {
            let mut line = String::new();
            if self.stdout.read_line(&mut line)? == 0 {
                return Err(format!("the process ended without printing `{what}`").into());
            }
            print!("[{}] {line}", self.child.id());
            if let Some((_, rest)) = line.split_once(what) {
                return Ok(rest.trim().to_owned());
            }
        }
    }

    /// Repeats the rest of its output, and waits for its end.
    fn wait_exit(mut self) -> Result<bool> {
        drop(self.child.stdin.take());
        for line in self.stdout.by_ref().lines() {
            println!("[{}] {}", self.child.id(), line?);
        }
        Ok(self.child.wait()?.success())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Has no effect if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run_demo() -> Result<bool> {
    let folder = std::env::temp_dir().join(format!("verbena-upgrade-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let path = folder.join("successor").display().to_string();
    let shown = run_upgrades(&path);
    std::fs::remove_dir_all(&folder)?;
    shown
}

fn run_upgrades(path: &str) -> Result<bool> {
    let mut server = Process::new(&["server", "--at", "127.0.0.1:0", "--handover", path])?;
    let at = server.wait_for_line("listening at ")?;
    let mut client = Process::new(&["client", &at, "--until-stdin-closes", "--newcomers"])?;
    client.wait_for_line("loading")?;
    for upgrade in 1..=UPGRADES {
        server.wait_for_line("waiting for a successor")?;
        let mut next = Process::new(&["server", "--takeover", path])?;
        next.wait_for_line("took over")?;
        server.wait_for_line("handed over")?;
        if !server.wait_exit()? {
            return Err("the old server failed after it had handed over".into());
        }
        server = next;
        client.wait_for_line(&format!("answered by generation {}", upgrade + 1))?;
    }
    drop(client.child.stdin.take());
    client.wait_for_line(&format!("generation {}: 0 lost, 0 wrong", UPGRADES + 1))?;
    let right = client.wait_exit()?;
    println!("{UPGRADES} upgrades under load, and no client noticed");
    Ok(right)
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments(std::env::args().skip(1).collect());
    let right = match arguments.0.first().map(String::as_str) {
        Some("server") => server::run(&arguments.server()?).map(|()| true)?,
        Some("client") => client::run(&arguments.client()?)?,
        None => run_demo()?,
        Some(other) => {
            return Err(
                format!("unknown command {other}: expected server, client, or none").into(),
            );
        }
    };
    Ok(if right {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
