//! `verbena faults` on programs of C: at their start from rules and from a file, in a running one, and what is told about wrong rules.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::dropin::libraries;
use super::running::{Program, Runtime, text, write_bw};

/// Compiles the program; none if the machine has no compiler or headers, which fails in CI.
fn faulty(folder: &Path, to: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/commands/faulty.c");
    let program = to.join("faulty");
    let output = Command::new("gcc")
        .args(["-Wall", "-Wextra", "-Werror", "-O1", "-D_GNU_SOURCE", "-o"])
        .arg(&program)
        .arg(source)
        .args(["librdmacm.so.1", "libibverbs.so.1"].map(|library| folder.join(library)))
        .output();
    let compiled = output.as_ref().is_ok_and(|output| output.status.success());
    if !compiled {
        assert!(std::env::var_os("CI").is_none(), "{output:?}");
        eprintln!("not tested: the program cannot be compiled: {output:?}");
    }
    compiled.then_some(program)
}

/// The program with faults, up to its last line; its lines, and what the command said.
struct Faulty {
    program: Program,
    lines: Vec<String>,
}

impl Faulty {
    fn start(runtime: &Runtime, rules: &[&str], program: &Path) -> Faulty {
        let mut command = runtime.command(&["faults", "--set", "device=127.0.0.1"]);
        let child = command
            .args(rules)
            .arg("--")
            .arg(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let mut program = Program(child);
        let out = BufReader::new(program.0.stdout.take().expect("piped"));
        let mut lines = Vec::new();
        for line in out.lines() {
            lines.push(line.expect("text"));
            if lines.last().is_some_and(|line| line == "done") {
                break;
            }
        }
        Faulty { program, lines }
    }

    fn shown(&self, runtime: &Runtime) -> String {
        let output = runtime.output(&["faults", &self.program.pid().to_string(), "--show"]);
        assert!(output.status.success(), "{output:?}");
        text(&output.stdout)
    }

    /// What the command said before the program began.
    fn complaints(mut self) -> String {
        drop(self.program.0.stdin.take());
        let err = self.program.0.stderr.take().expect("piped");
        let lines = BufReader::new(err).lines();
        lines.map_while(Result::ok).collect::<Vec<_>>().join("\n")
    }
}

#[test]
fn program_sees_faults_from_its_start() {
    let Some(folder) = libraries() else { return };
    let runtime = Runtime::new();
    let Some(program) = faulty(&folder, &runtime.0) else {
        return;
    };
    let rules = "seed=7; connect nth=1 errno=ECONNREFUSED; register nth=1 errno=ENOMEM; \
                 post nth=2 errno=ENOMEM; completion nth=4 status=REM_ACCESS_ERR";
    let run = Faulty::start(&runtime, &[rules], &program);
    let expected = [
        "connect: RDMA_CM_EVENT_REJECTED",
        "reg_mr: ENOMEM",
        "write 1: success",
        "post 2: ENOMEM",
        "write 3: success",
        "write 4: remote access error",
        "write 5: Work Request Flushed Error",
        "write 6: Work Request Flushed Error",
        "done",
    ];
    assert_eq!(run.lines, expected);
    let shown = run.shown(&runtime);
    for part in [
        "seed 7\n",
        "rule 1: connect nth=1 errno=ECONNREFUSED: fired 1 times of 2\n",
        "rule 2: register nth=1 errno=ENOMEM: fired 1 times of 3\n",
        "rule 3: post nth=2 errno=ENOMEM: fired 1 times of 6\n",
        "rule 4: completion nth=4 status=REM_ACCESS_ERR: fired 1 times of 6\n",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    // What failed is told to be injected.
    let why = runtime.output(&["why", &run.program.pid().to_string()]);
    let why = text(&why.stdout);
    for part in [
        "(injected by verbena faults)",
        "fault    none: a fault that was set by `verbena faults`",
        "completed with RemAccessErr",
        "fired 4 times in this process",
    ] {
        assert!(why.contains(part), "{part} in {why}");
    }
    let said = run.complaints();
    assert_eq!(said.lines().next(), Some("verbena: faults with seed 7"));
}

#[test]
fn same_seed_repeats_a_run_from_a_file() {
    let Some(folder) = libraries() else { return };
    let runtime = Runtime::new();
    let Some(program) = faulty(&folder, &runtime.0) else {
        return;
    };
    let file = runtime.0.join("faults.toml");
    let rules = "seed = 11\n\n[[fault]]\nkind = \"post\"\nrate = 0.5\nerrno = \"EAGAIN\"\n";
    std::fs::write(&file, rules).unwrap();
    let from_file = ["-f", file.to_str().unwrap()];
    let first = Faulty::start(&runtime, &from_file, &program).lines;
    let refused = |line: &&String| line.ends_with("EAGAIN");
    assert!(
        (1..6).contains(&first.iter().filter(refused).count()),
        "{first:?}"
    );
    let again = ["seed=11; post rate=50% errno=EAGAIN"];
    assert_eq!(Faulty::start(&runtime, &again, &program).lines, first);
}

#[test]
fn running_program_gets_faults() {
    let runtime = Runtime::new();
    let Some((server, mut client)) = write_bw(&runtime) else {
        return;
    };
    let pid = client.pid().to_string();
    let none = runtime.output(&["faults", &pid, "--show"]);
    assert_eq!(text(&none.stdout), "no faults are set\n", "{none:?}");
    let set = runtime.output(&["faults", &pid, "seed=3; delay every=100 time=1ms"]);
    assert!(text(&set.stdout).starts_with("seed 3\n"), "{set:?}");
    let cleared = runtime.output(&["faults", &pid, "--clear"]);
    assert_eq!(text(&cleared.stdout), "", "{cleared:?}");
    let killed = runtime.output(&["faults", &pid, "kill"]);
    let said = text(&killed.stdout);
    assert!(said.contains("rule 1: kill: fired 1 times"), "{killed:?}");
    // perftest ends when a completion fails.
    assert!(!client.0.wait().unwrap().success());
    let why = text(&runtime.output(&["why", &pid]).stdout);
    assert!(
        why.contains("the queue pair was killed by rule 1 (injected by verbena faults)"),
        "{why}"
    );
    drop(server);
}

#[test]
fn wrong_rules_start_nothing() {
    let runtime = Runtime::new();
    let file = runtime.0.join("faults.toml");
    std::fs::write(&file, "[[fault]]\nkind = \"kill\"\nnth = 0\n").unwrap();
    let file = file.to_str().unwrap();
    for (args, complaint) in [
        (
            &["post nth=1", "--", "true"][..],
            "rule 1: post needs `errno=`",
        ),
        (
            &["-f", file, "--", "true"],
            "line 3: `nth`: \"0\" is not a number from 1",
        ),
        (&["--", "true"], "the rules are missing"),
        (&["kill"], "`kill` is no process id"),
        (&["1", "kill", "--clear"], "either rules or --clear"),
        (&["1"], "rules, --file, --show or --clear is missing"),
        (&[], "are missing"),
    ] {
        let output = runtime.output(&[&["faults"], args].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains(complaint), "{output:?}");
    }
}

#[test]
fn hostile_client_of_the_fault_socket_is_harmless() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixStream};

    let Some(folder) = libraries() else { return };
    let runtime = Runtime::new();
    let Some(program) = faulty(&folder, &runtime.0) else {
        return;
    };
    let run = Faulty::start(&runtime, &["delay nth=99 time=1ms"], &program);
    let name = format!("verbena-faults/{}/0", run.program.pid());
    let name = SocketAddr::from_abstract_name(name).unwrap();
    for request in [&b"explode"[..], b"set kill nth=0", b"\xff\xfe", b""] {
        let mut client = UnixStream::connect_addr(&name).unwrap();
        client.write_all(request).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let answer = std::io::read_to_string(client).unwrap();
        assert!(answer.contains("wrong: "), "{answer}");
    }
    // An endless request is cut.
    let mut client = UnixStream::connect_addr(&name).unwrap();
    while client.write_all(&[b'a'; 4096]).is_ok() {}
    let shown = run.shown(&runtime);
    assert!(shown.contains("delay nth=99 time=1ms: fired 0"), "{shown}");
}
