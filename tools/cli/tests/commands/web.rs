//! `verbena web` on programs of the system, on one with a hostile name, and on a lab: what it says over HTTP, how it starts a browser and how it ends.
//! In a browser: the module below, which runs in the long set.

mod browser;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;
use verbena::Device;
use verbena_testing::wait_for;

use super::lab::Lab;
use super::running::{Program, Runtime, text, write_bw};

/// A page that is served by the command.
struct Page {
    program: Program,
    /// With the token.
    url: String,
}

impl Page {
    fn start(runtime: &Runtime, args: &[&str]) -> Page {
        Page::of(runtime.command(&[&["web"], args].concat()))
    }

    fn of(mut command: Command) -> Page {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut program = Program(child.expect("the command starts"));
        let url = program.first_line();
        assert!(url.starts_with("http://127.0.0.1:"), "{url}");
        Page { program, url }
    }

    fn token(&self) -> &str {
        self.url.split_once('#').unwrap().1
    }

    fn address(&self) -> &str {
        let rest = self.url.strip_prefix("http://").unwrap();
        rest.split('/').next().unwrap()
    }

    /// The answer as JSON.
    fn ask(&self, path: &str) -> Value {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
            self.address(),
            self.token()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{answer}");
        serde_json::from_str(body).unwrap()
    }

    fn process(&self, pid: u32) -> Option<Value> {
        let state = self.ask("/api/state");
        let all = state["processes"]["list"].as_array()?.clone();
        all.into_iter().find(|process| process["pid"] == pid)
    }

    fn interrupt(&mut self) {
        self.program.signal(Signal::INT);
        assert_eq!(self.program.0.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn running_programs_are_joined_and_explained() {
    let runtime = Runtime::new();
    let Some((server, client)) = write_bw(&runtime) else {
        return;
    };
    let mut page = Page::start(&runtime, &[]);
    let moving = |process: &Value| process["rates"]["bytes_out"].as_f64() > Some(1000.0);
    let process = wait_for("bytes that move", || {
        page.process(client.pid()).filter(moving)
    });
    assert_eq!(process["program"], "ib_write_bw");
    let pair = &process["queue_pairs"][0];
    assert_eq!(
        (&pair["path"], &pair["state"]),
        (&"shared-memory".into(), &"Rts".into()),
        "{process}"
    );
    let other = pair["other"].as_array().unwrap_or_else(|| panic!("{pair}"));
    assert_eq!(other[0], server.pid(), "{pair}");

    // Every attribute of the queue pair at the other end, and of its queues.
    let name = format!("{}/{}/{}", other[0], other[1], other[2]);
    let objects = page.ask(&format!("/api/object/{name}"));
    let kinds: Vec<_> = objects.as_array().unwrap().iter().map(|o| &o[0]).collect();
    assert_eq!(kinds[0], "qp", "{objects}");
    assert!(kinds.contains(&&"cq".into()), "{objects}");

    server.signal(Signal::STOP);
    let cause = format!("process {} is stopped", server.pid());
    wait_for("the cause", || {
        let state = page.ask("/api/state");
        let findings = state["findings"]["list"].as_array()?.clone();
        findings.into_iter().find(|finding| {
            finding["pid"] == client.pid()
                && finding["rows"][0][1]
                    .as_str()
                    .is_some_and(|row| row.contains(&cause))
        })
    });
    server.signal(Signal::CONT);
    page.interrupt();
}

/// Without the prefix of the settings: unknown settings are rejected.
const ROLE: &str = "TEST_OF_VERBENA_WEB";
/// As long as a name can be.
const HOSTILE: &str = "<img src=x>\u{1b}]\u{7}";
const HARMLESS: &str = "<img src=x>?]?";

/// A process whose name would be an element of the page.
#[test]
fn as_hostile_child() {
    if std::env::var(ROLE).is_err() {
        return;
    }
    // The name of the process is that of its first thread.
    fs::write(format!("/proc/{}/comm", std::process::id()), HOSTILE).unwrap();
    let device = Device::open().unwrap();
    let _cq = device.cq(4).unwrap();
    println!("\n> ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}

/// Such a process.
fn hostile_program() -> Program {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["web::as_hostile_child", "--exact", "--nocapture"])
        .env(ROLE, "yes")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut program = Program(child.unwrap());
    let mut out = BufReader::new(program.0.stdout.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("> ready") {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0);
    }
    // It may still write.
    program.0.stdout = Some(out.into_inner());
    program
}

#[test]
fn hostile_name_is_a_string_without_control_characters() {
    let runtime = Runtime::new();
    let program = hostile_program();
    let page = Page::start(&runtime, &[]);
    let process = wait_for("the process", || page.process(program.pid()));
    assert_eq!(process["program"], HARMLESS);
}

#[test]
fn browser_is_started_with_a_file_of_this_user() {
    let runtime = Runtime::new();
    let folder = runtime.0.canonicalize().unwrap();
    let (seen, opener) = (folder.join("seen"), folder.join("xdg-open"));
    let script = format!(
        "#!/bin/sh\nstat -c %a \"$1\" > '{0}.part'; cat \"$1\" >> '{0}.part'; echo \"$1\" >> '{0}.part'; mv '{0}.part' '{0}'\n",
        seen.display()
    );
    fs::write(&opener, script).unwrap();
    fs::set_permissions(&opener, fs::Permissions::from_mode(0o700)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut command = runtime.command(&["web", "--open"]);
    command.env("PATH", format!("{}:{path}", folder.display()));
    let mut page = Page::of(command);
    let said = wait_for("a browser", || fs::read_to_string(&seen).ok());
    let (mode, rest) = said.split_once('\n').unwrap();
    assert_eq!(mode, "600");
    assert!(rest.contains(&format!("url={}\"", page.url)), "{said}");
    let file = PathBuf::from(rest.lines().last().unwrap());
    assert!(!file.to_str().unwrap().contains(page.token()));
    assert!(file.starts_with(&folder) && file.exists());
    page.interrupt();
    assert!(!file.exists(), "it is removed at the end");
}

#[test]
fn lab_is_shown_with_its_links() {
    let plan = "name = \"page\"\n[hosts.a]\n[hosts.b]\n[switches.s]\n[[links]]\nends = [\"a\", \"s\"]\n\
                [[links]]\nends = [\"b\", \"s\"]\nfaults = \"loss=1%\"\n";
    let Some(lab) = Lab::of(plan) else { return };
    let mut command = Command::new(env!("CARGO_BIN_EXE_verbena"));
    command.arg("web").env("XDG_RUNTIME_DIR", &lab.folder);
    let page = Page::of(command);
    let shown = wait_for("the lab", || {
        let state = page.ask("/api/state");
        state["labs"]["list"].as_array()?.first().cloned()
    });
    assert_eq!(shown["name"], "page", "{shown}");
    let names: Vec<_> = shown["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| &n["name"])
        .collect();
    assert_eq!(names.len(), 3, "{shown}");
    assert_eq!(
        shown["links"][1]["state"]
            .as_str()
            .unwrap()
            .split(',')
            .next(),
        Some("loss=1%")
    );
}

#[test]
fn wrong_arguments_are_refused_by_name() {
    let runtime = Runtime::new();
    let refused = |args: &[&str], what: &str| {
        let output = runtime.output(args);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(text(&output.stderr).contains(what), "{output:?}");
    };
    refused(&["web", "--listen", "0.0.0.0:0"], "is no loopback address");
    refused(
        &["web", "--trace", "/no/such/file"],
        "cannot read /no/such/file",
    );
    refused(&["web", "--trace", "/"], "not a regular file");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refused(&["web", "--listen", &address], "cannot listen on");
}
