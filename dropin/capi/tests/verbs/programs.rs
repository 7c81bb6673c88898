//! C programs, compiled against the headers of the machine and run with the libraries that `cargo xtask dropin` built: they test what only
//! the final libraries have. `cargo xtask test` builds these first; without them the tests print a message and pass.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use verbena_testing::{WAIT_LIMIT, process_ends};

/// The directory of the libraries, if they were built; a test run of the project always has them.
fn libraries() -> Option<PathBuf> {
    // Cargo runs tests from its target folder: target/debug/deps/verbs-….
    let test = std::env::current_exe().expect("a path");
    let folder = test
        .ancestors()
        .nth(3)
        .expect("a target folder")
        .join("dropin");
    let there = folder.join("libibverbs.so.1").is_file();
    if !there {
        let required = std::env::var_os("DROPIN_REQUIRED").is_some();
        assert!(!required, "no libraries in {}", folder.display());
        eprintln!("not tested: no libraries in {}", folder.display());
    }
    there.then_some(folder)
}

/// Compiles a program; none if the machine has no compiler, which fails where one is required.
fn compile(name: &str, folder: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/c")
        .join(name)
        .with_extension("c");
    compile_source(name, &source, folder)
}

/// The same for a file elsewhere.
fn compile_source(name: &str, source: &Path, folder: &Path) -> Option<PathBuf> {
    // A file of its own each time: tests run in parallel.
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("c-{name}-{count}"));
    let linked: &[&str] = match name {
        // These programs load the libraries themselves, or are preloaded with one.
        "load" | "interposed" => &[],
        "sockets" | "upgrade" | "segments" | "extras" => &["librdmacm.so.1", "libibverbs.so.1"],
        _ => &["libibverbs.so.1"],
    };
    let output = Command::new("gcc")
        .args(["-Wall", "-Wextra", "-Werror", "-O1", "-pthread", "-o"])
        .arg(&program)
        .arg(source)
        .args(linked.iter().map(|library| folder.join(library)))
        .arg("-ldl")
        .output();
    match output {
        Ok(output) if output.status.success() => Some(program),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let missing = ["infiniband/verbs.h", "rdma/rsocket.h", "rdma/rdma_cma.h"];
            let headers = missing.map(|header| said.contains(&format!("{header}: No such file")));
            let lacking = headers.contains(&true);
            assert!(lacking && std::env::var_os("CI").is_none(), "{said}");
            eprintln!("not tested: no headers of libibverbs or librdmacm");
            None
        }
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "gcc: {error}");
            eprintln!("not tested: no gcc");
            None
        }
    }
}

/// Runs a program; it must exit with success and print that it is fine, and nothing else.
fn run(name: &str, args: impl Fn(&Path) -> Vec<String>) {
    run_with(&[], name, args);
}

/// Settings by which both sides of a connection of this host use TCP, and none: they use shared memory.
const STREAMS: [&[(&str, &str)]; 2] = [&[("VERBENA_SAME_HOST", "off")], &[]];

/// The same with settings.
fn run_with(settings: &[(&str, &str)], name: &str, args: impl Fn(&Path) -> Vec<String>) {
    let Some(folder) = libraries() else { return };
    let Some(program) = compile(name, &folder) else {
        return;
    };
    let mut command = Command::new(&program);
    if name == "interposed" {
        command.env("LD_PRELOAD", folder.join("libverbena-rsocket.so"));
    }
    let mut child = command
        .args(args(&folder))
        .env("LD_LIBRARY_PATH", &folder)
        .envs(settings.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    if !process_ends(child.id(), WAIT_LIMIT) {
        let _ = child.kill();
        panic!("{name} hangs with {settings:?}");
    }
    let output = child.wait_with_output().expect("it has ended");
    let said = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert_eq!(
        said,
        ("fine\n".to_owned(), String::new()),
        "{:?} with {settings:?}",
        output.status
    );
    assert!(output.status.success(), "{:?}", output.status);
}

/// Programs are debugged with it, so the library must run there.
#[test]
fn programs_run_under_valgrind() {
    let Some(folder) = libraries() else { return };
    let Some(program) = compile("hammer", &folder) else {
        return;
    };
    let output = Command::new("timeout")
        .args(["100", "valgrind", "-q"])
        .arg(&program)
        .arg("briefly")
        .env("LD_LIBRARY_PATH", &folder)
        .output()
        .expect("timeout starts");
    if output.status.code() == Some(127) {
        eprintln!("not tested: no valgrind");
        return;
    }
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.stdout, b"fine\n", "{said}");
    assert!(output.status.success(), "{said}");
    // No invalid memory access. Of the system calls it knows one less well than the kernel does.
    assert!(!said.contains("Invalid "), "{said}");
}

#[test]
fn threads_can_be_cancelled() {
    run("cancel", |_| vec![]);
}

/// Signals, cancelled threads, and peers that are killed or exit without closing.
#[test]
fn socket_calls_survive_signals_cancellation_and_peer_death() {
    run("sockets", |_| vec![]);
}

/// Descriptor flags once caused an endless recursion between the preloaded library and `rfcntl`.
#[test]
fn interposed_socket_calls_do_not_recurse() {
    run("interposed", |_| vec![]);
}

#[test]
fn forked_children_open_their_own_device() {
    run("fork", |_| vec![]);
}

#[test]
fn program_can_exit_without_cleanup() {
    run("leave", |_| vec![]);
    run("leave", |_| vec!["quickly".to_owned()]);
}

/// A receiver that exits or is killed after polling a completion; its sender's request has succeeded.
#[test]
fn polled_messages_succeed_though_the_receiver_dies() {
    for settings in STREAMS {
        run_with(settings, "deaths", |_| vec!["8".to_owned()]);
    }
}

/// RFC 5044 §4.5, and what siw needs: full frames have no pad, fit a segment, and end with it.
#[test]
fn full_frames_end_with_their_segments() {
    run("segments", |_| vec![]);
}

/// On-demand paging, device memory, parent domains, timestamps and more, with the inline functions of the headers.
#[test]
fn verbs_beyond_the_usual_ones_in_both_personalities() {
    for personality in ["roce", "iwarp"] {
        run("extras", |_| vec![personality.to_owned()]);
    }
}

/// The C program of docs/dropin.md, as it stands there.
#[test]
fn example_of_dropin_page_runs() {
    let Some(folder) = libraries() else { return };
    let page = include_str!("../../../../docs/dropin.md");
    let example = page.split("```c\n").nth(1).expect("an example in C");
    let example = example.split("```").next().expect("its end");
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("docs-dropin.c");
    std::fs::write(&source, example).expect("a file");
    let Some(program) = compile_source("docs", &source, &folder) else {
        return;
    };
    let output = Command::new(program)
        .env("LD_LIBRARY_PATH", &folder)
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(
        said.starts_with("key 0x") && said.ends_with(" ns\n"),
        "{said}"
    );
}

#[test]
fn threads_create_and_destroy_objects_concurrently() {
    run("hammer", |_| vec![]);
}

#[test]
fn a_read_returns_nothing_of_a_later_write() {
    for settings in STREAMS {
        run_with(settings, "order", |_| vec![]);
    }
}

/// XRC domains of several processes, some of which are killed.
#[test]
fn xrc_domain_spans_processes() {
    for settings in STREAMS {
        run_with(settings, "xrc_processes", |_| vec![]);
    }
}

#[test]
fn libraries_share_one_engine_in_either_load_order() {
    let path = |folder: &Path, name: &str| folder.join(name).display().to_string();
    let (verbs, cm) = ("libibverbs.so.1", "librdmacm.so.1");
    run("load", |folder| vec![path(folder, verbs), path(folder, cm)]);
    run("load", |folder| vec![path(folder, cm), path(folder, verbs)]);
}

/// The example of the library `verbena` whose server is replaced under load.
fn upgrade() -> Command {
    let test = std::env::current_exe().expect("a path");
    let folder = test.ancestors().nth(2).expect("a folder of this profile");
    let program = folder.join("examples/upgrade");
    if !program.exists() {
        // Tests of this crate alone do not build it.
        let cargo = std::env::var_os("CARGO").expect("cargo runs tests");
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "--package", "verbena", "--example"]);
        assert!(build.arg("upgrade").status().expect("cargo").success());
    }
    Command::new(program)
}

/// A process whose output is read line by line.
struct ChildOutput(Child, BufReader<std::process::ChildStdout>);

impl ChildOutput {
    fn new(command: &mut Command) -> ChildOutput {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let out = child.stdout.take().expect("it is piped");
        ChildOutput(child, BufReader::new(out))
    }

    /// The rest of the line that begins with this text.
    fn wait_for_line(&mut self, what: &str) -> String {
        let mut all = String::new();
        loop {
            let from = all.len();
            let read = self.1.read_line(&mut all).expect("words");
            assert!(read > 0, "not `{what}`: {all}");
            if let Some((_, rest)) = all[from..].split_once(what) {
                return rest.trim().to_owned();
            }
        }
    }
}

impl Drop for ChildOutput {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// V1: the server is replaced by another process again and again, without an error for a program that uses verbs alone.
fn run_server_upgrades(settings: &[(&str, &str)]) {
    const UPGRADES: u32 = 10;
    let Some(folder) = libraries() else { return };
    let Some(program) = compile("upgrade", &folder) else {
        return;
    };
    let name = format!("c-upgrade-{}-{}", std::process::id(), settings.len());
    let place = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&place).expect("a folder");
    let path = place.join("successor");
    let start = |arguments: &[&str]| {
        let mut server = upgrade();
        server.arg("server").args(arguments).arg(&path);
        ChildOutput::new(server.envs(settings.iter().copied()))
    };
    let mut server = start(&["--at", "127.0.0.1:0", "--handover"]);
    let at = server.wait_for_line("listening at ");
    let (ip, port) = at.split_once(':').expect("an address");
    let mut client = Command::new(program);
    client.args([ip, port]).env("LD_LIBRARY_PATH", &folder);
    let mut client = ChildOutput::new(client.envs(settings.iter().copied()));
    client.wait_for_line("loading");
    for upgrade in 1..=UPGRADES {
        server.wait_for_line("waiting for a successor");
        let mut next = start(&["--takeover"]);
        next.wait_for_line("took over 1 connections");
        assert!(server.0.wait().expect("it is ours").success());
        server = next;
        client.wait_for_line(&format!("change {upgrade}"));
    }
    drop(client.0.stdin.take());
    client.wait_for_line(&format!(", {UPGRADES} changes of the server"));
    client.wait_for_line("fine");
    assert!(client.0.wait().expect("it is ours").success());
    // It may still be about to wait for a successor there.
    drop(server);
    std::fs::remove_dir_all(&place).expect("it is ours");
}

#[test]
fn handover_is_transparent_to_verbs_client() {
    run_server_upgrades(&[]);
}

#[test]
fn handover_is_transparent_without_extensions() {
    run_server_upgrades(&[("VERBENA_EXTENSIONS", "off")]);
}

/// The example of the packages, with our own headers and nothing of rdma-core.
#[test]
fn example_is_built_with_own_headers_and_runs() {
    let Some(folder) = libraries() else { return };
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = here.join("../../packaging/examples/hello.c");
    let program =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("hello-{}", std::process::id()));
    let built = Command::new("gcc")
        .args(["-Wall", "-Wextra", "-Werror", "-O1", "-o"])
        .arg(&program)
        .arg(source)
        .arg("-I")
        .arg(here.join("include"))
        .arg("-L")
        .arg(&folder)
        .args(["-lrdmacm", "-libverbs"])
        .output();
    let built = match built {
        Ok(built) => built,
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "gcc: {error}");
            eprintln!("not tested: no gcc");
            return;
        }
    };
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    let output = Command::new(&program)
        .env("LD_LIBRARY_PATH", &folder)
        .output()
        .expect("the program starts");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "hello over RDMA\n",
        "{output:?}"
    );
    std::fs::remove_file(&program).expect("remove what was built");
}
