//! `verbena top` on a program of the system, in a terminal, and on a process with a hostile name.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use verbena::Device;
use verbena_testing::wait_for;

use super::running::{Runtime, text, write_bw};

#[test]
fn rates_of_a_running_program_are_shown() {
    let runtime = Runtime::new();
    let Some((server, client)) = write_bw(&runtime) else {
        return;
    };
    let sample = || {
        let output = runtime.output(&["top", "--once", "--json", "--interval", "0.3"]);
        assert!(output.status.success(), "{output:?}");
        let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let of = |pid: u32| {
            all.as_array()
                .unwrap()
                .iter()
                .find(|p| p["pid"] == pid)
                .cloned()
        };
        Some((of(client.pid())?, of(server.pid())?))
    };
    let moving =
        |process: &serde_json::Value, rate: &str| process["rates"][rate].as_f64() > Some(1000.0);
    let (sender, receiver) = wait_for("bytes that move", || {
        sample().filter(|(a, b)| moving(a, "bytes_out") && moving(b, "bytes_in"))
    });
    assert_eq!(sender["program"], "ib_write_bw");
    let pair = &sender["queue_pairs"][0];
    assert_eq!(
        (&pair["state"], &pair["path"]),
        (&"Rts".into(), &"shared-memory".into()),
        "{sender}"
    );
    assert!(pair["outstanding"].as_u64().is_some() && receiver["wakeups"].as_f64().is_some());

    let pid = client.pid().to_string();
    let output = runtime.output(&["top", "--once", "--interval", "0.1", "--filter", &pid]);
    let lines: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
    assert_eq!(
        lines.len(),
        3,
        "a heading, the process, its queue pair: {lines:#?}"
    );
    assert!(
        lines[1].starts_with(&format!("ib_write_bw {pid}")),
        "{lines:#?}"
    );
    assert!(lines[2].contains("Rts    shared-memory"), "{lines:#?}");
}

/// Both ends of a terminal.
fn terminal() -> (File, File) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
    let main: OwnedFd = openpt(flags).unwrap();
    grantpt(&main).unwrap();
    unlockpt(&main).unwrap();
    let name = ptsname(&main, Vec::new()).unwrap();
    let other = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    let size = Winsize {
        ws_row: 24,
        ws_col: 70,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&main, size).unwrap();
    (main.into(), other.into())
}

#[test]
fn table_in_a_terminal_obeys_keys_and_restores_it() {
    let runtime = Runtime::new();
    let (mut main, other) = terminal();
    let stdio = || Stdio::from(other.try_clone().unwrap());
    let mut command = runtime.command(&["top", "--interval", "0.2"]);
    command.stdin(stdio()).stdout(stdio()).stderr(stdio());
    let mut child = command.spawn().unwrap();
    let mut shown = String::new();
    let mut read_until = |main: &mut File, what: &str| {
        while !shown.contains(what) {
            let mut bytes = [0; 4096];
            let count = main.read(&mut bytes).unwrap();
            shown += &String::from_utf8_lossy(&bytes[..count]);
        }
        std::mem::take(&mut shown)
    };
    let first = read_until(&mut main, "PROCESS / QUEUE PAIR");
    assert!(first.starts_with("\x1b[?1049h"), "{first:?}");
    main.write_all(b"s").unwrap();
    read_until(&mut main, "sort BytesIn");
    // Typed at once; q is a character of the filter until Enter.
    main.write_all(b"/q\x7fqq\r").unwrap();
    read_until(&mut main, "filter `qq`");
    main.write_all(b"r\x1b[Aq").unwrap();
    let last = read_until(&mut main, "\x1b[?1049l");
    assert!(last.ends_with("\x1b[?25h\x1b[?1049l"), "{last:?}");
    assert!(child.wait().unwrap().success());
    let modes = tcgetattr(&other).unwrap().local_modes;
    assert!(modes.contains(LocalModes::ECHO | LocalModes::ICANON));

    // A signal restores it, too.
    let mut command = runtime.command(&["top"]);
    command.stdin(stdio()).stdout(stdio()).stderr(stdio());
    let mut child = command.spawn().unwrap();
    read_until(&mut main, "PROCESS / QUEUE PAIR");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    read_until(&mut main, "\x1b[?1049l");
    assert!(child.wait().unwrap().success());
    assert!(
        tcgetattr(&other)
            .unwrap()
            .local_modes
            .contains(LocalModes::ECHO)
    );
}

#[test]
fn live_table_needs_a_terminal() {
    let output = Runtime::new().output(&["top"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("use --once"), "{output:?}");
    let output = Runtime::new().output(&["top", "--once", "--interval", "0"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

/// Without the prefix of the settings: unknown settings are rejected.
const ROLE: &str = "TEST_OF_VERBENA_TOP";

/// A process whose name would change the title of the terminal.
#[test]
fn as_hostile_child() {
    if std::env::var(ROLE).is_err() {
        return;
    }
    // The name of the process is that of its first thread.
    std::fs::write(
        format!("/proc/{}/comm", std::process::id()),
        "\x1b]0;evil\x07\n",
    )
    .unwrap();
    let device = Device::open().unwrap();
    let _cq = device.cq(4).unwrap();
    println!("\n> ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}

#[test]
fn hostile_program_name_is_shown_as_text() {
    let runtime = Runtime::new();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["top::as_hostile_child", "--exact", "--nocapture"])
        .env(ROLE, "yes")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("> ready") {
        line.clear();
        assert!(std::io::BufRead::read_line(&mut out, &mut line).unwrap() > 0);
    }
    let pid = child.id().to_string();
    let outputs = [
        runtime.output(&["top", "--once", "--interval", "0.1", "--filter", &pid]),
        runtime.output(&["why", &pid]),
        runtime.output(&["events"]),
    ];
    for output in outputs {
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(said.contains("?]0;evil"), "{output:?}");
        assert!(
            !said.chars().any(|c| c.is_control() && c != '\n'),
            "{output:?}"
        );
    }
    drop(child.stdin.take());
    child.wait().unwrap();
}
