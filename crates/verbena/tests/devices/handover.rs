//! A server that is replaced by another process under load, and every way in which that can fail (V1).
//!
//! The processes are those of the example `upgrade`, whose client checks every answer.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use verbena::handover::{
    FailedHandover, Handover, HandoverListener, HandoverStep, IncomingHandover,
};
use verbena::low::{Cq, Data, Qp, QpOptions, QpState, RecvWr};
use verbena::{Access, Device, Error, Status};
use verbena_testing::{wait_for, wait_until};

use crate::common::low::{SEND, complete, connect_qps, wr};
use crate::common::process::{Process, example};

const TIMEOUT: Duration = Duration::from_secs(15);

/// A server under load, and the path of its handover socket.
struct LoadedServer {
    folder: PathBuf,
    server: Process,
    client: Process,
    at: String,
}

impl LoadedServer {
    fn new(server: &[&str], client: &[&str]) -> LoadedServer {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("verbena-handover-{}-{count}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("successor");
        let path = path.to_str().unwrap();
        let first = ["server", "--at", "127.0.0.1:0", "--handover", path];
        let mut server = run(&[&first, server].concat());
        let at = server.wait_for_line("listening at ");
        server.wait_for_line("waiting for a successor");
        let usual = ["client", &at, "--until-stdin-closes", "--seconds", "600"];
        let mut client = run(&[&usual, client].concat());
        client.wait_for_line("loading");
        LoadedServer {
            folder,
            server,
            client,
            at,
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.join("successor")
    }

    fn next_process(&self, orders: &[&str]) -> Process {
        let path = self.path();
        let usual = ["server", "--takeover", path.to_str().unwrap()];
        run(&[&usual, orders].concat())
    }

    /// The next process takes over, and the previous one exits with success.
    fn upgrade(&mut self) {
        let kept = |said: &[String]| said.iter().filter(|line| line.contains("kept")).count();
        let before = kept(&self.server.output);
        let mut next = self.next_process(&[]);
        next.wait_for_line("took over");
        self.server.wait_for_line("handed over");
        assert!(self.server.wait_exit(TIMEOUT).success());
        assert_eq!(
            kept(&self.server.output),
            before,
            "{:?}",
            self.server.output
        );
        next.wait_for_line("waiting for a successor");
        self.server = next;
    }

    /// The client saw no error, and its last answer was from this server.
    fn assert_no_errors(mut self, generation: u64) -> Vec<String> {
        self.client.wait_for_generation(generation);
        self.client.close_stdin();
        let status = self.client.wait_exit(TIMEOUT);
        let verdict = format!("generation {generation}: 0 lost, 0 wrong");
        assert!(
            self.client.has_printed(&verdict),
            "{:?}",
            self.client.output
        );
        assert!(status.success());
        std::mem::take(&mut self.client.output)
    }

    /// The client has lost its connections in time, and saw no wrong answer.
    fn assert_connections_lost(mut self) {
        let status = self.client.wait_exit(TIMEOUT);
        assert!(!status.success());
        let verdict = "2 lost, 0 wrong";
        assert!(self.client.has_printed(verdict), "{:?}", self.client.output);
    }

    /// A new client is served.
    fn assert_new_client_served(&self) {
        let mut client = run(&["client", &self.at, "--clients", "1", "--seconds", "1"]);
        assert!(client.wait_exit(TIMEOUT).success(), "{:?}", client.output);
    }
}

impl Drop for LoadedServer {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn run(arguments: &[&str]) -> Process {
    let mut command = example("upgrade");
    command.args(arguments);
    Process::new(command)
}

const TWO_CLIENTS: &[&str] = &["--clients", "2"];

/// It was ended by the signal that it sent itself.
fn assert_killed(process: &mut Process) {
    use std::os::unix::process::ExitStatusExt;
    let status = process.wait_exit(TIMEOUT);
    assert_eq!(status.signal(), Some(9), "{:?}", process.output);
}

#[test]
fn handovers_under_load_lose_nothing() {
    let long = std::env::var_os("LONG_TESTS").is_some();
    let upgrades = if long { 1000 } else { 20 };
    let mut scene = LoadedServer::new(&[], &["--clients", "4", "--newcomers"]);
    for _ in 0..upgrades {
        scene.upgrade();
    }
    let said = scene.assert_no_errors(upgrades + 1);
    println!("{upgrades} upgrades: {said:?}");
}

#[test]
fn handovers_without_extensions_lose_nothing() {
    // Set for the started processes only.
    let set = |mut command: std::process::Command| {
        command.env("VERBENA_EXTENSIONS", "off");
        command.env("VERBENA_RFC7306", "on");
        command
    };
    let folder = std::env::temp_dir().join(format!("verbena-standard-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("successor");
    let start = |arguments: &[&str]| {
        let mut command = set(example("upgrade"));
        command.args(arguments);
        Process::new(command)
    };
    let path = path.to_str().unwrap();
    let mut server = start(&["server", "--at", "127.0.0.1:0", "--handover", path]);
    let at = server.wait_for_line("listening at ");
    let mut client = start(&["client", &at, "--until-stdin-closes", "--seconds", "60"]);
    client.wait_for_line("loading");
    for _ in 0..10 {
        server.wait_for_line("waiting for a successor");
        let mut next = start(&["server", "--takeover", path]);
        next.wait_for_line("took over");
        assert!(server.wait_exit(TIMEOUT).success());
        server = next;
    }
    client.wait_for_generation(11);
    client.close_stdin();
    client.wait_for_line("generation 11: 0 lost, 0 wrong");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Whichever process dies and when, the connection lives in one process or in none.
#[test]
fn no_death_leaves_two_connection_owners() {
    for step in HandoverStep::ALL {
        println!("{step:?}");
        match step {
            HandoverStep::Exported | HandoverStep::Sent | HandoverStep::Completed => {
                kill_running_process(step);
            }
            HandoverStep::Received
            | HandoverStep::Unpacked
            | HandoverStep::Claimed
            | HandoverStep::Started => {
                kill_successor(step);
            }
        }
    }
}

fn kill_running_process(step: HandoverStep) {
    let mut scene = LoadedServer::new(&["--die-at", &format!("{step:?}")], TWO_CLIENTS);
    let mut next = scene.next_process(&[]);
    assert_killed(&mut scene.server);
    assert!(!scene.server.has_printed("handed over") && !scene.server.has_printed("kept"));
    if step == HandoverStep::Exported {
        assert!(!next.wait_exit(TIMEOUT).success());
        assert!(!next.has_printed("took over"), "{:?}", next.output);
        scene.assert_connections_lost();
    } else {
        next.wait_for_line("took over 2 connections, 1 listener");
        next.wait_for_line("waiting for a successor");
        scene.assert_new_client_served();
        scene.server = next;
        // It can be replaced in turn.
        scene.upgrade();
        scene.assert_no_errors(3);
    }
}

fn kill_successor(step: HandoverStep) {
    let mut scene = LoadedServer::new(&[], TWO_CLIENTS);
    let mut next = scene.next_process(&["--die-at", &format!("{step:?}")]);
    assert_killed(&mut next);
    if matches!(step, HandoverStep::Received | HandoverStep::Unpacked) {
        scene.server.wait_for_line("kept: ");
        scene.assert_new_client_served();
        assert!(!scene.server.has_printed("handed over"));
        // The attempt left nothing behind.
        scene.upgrade();
        scene.assert_no_errors(2);
    } else {
        scene.server.wait_for_line("handed over");
        assert!(scene.server.wait_exit(TIMEOUT).success());
        assert!(
            !scene.server.has_printed("kept"),
            "{:?}",
            scene.server.output
        );
        scene.assert_connections_lost();
    }
}

fn resume(process: &Process) {
    let pid = Pid::from_raw(process.id()).unwrap();
    kill_process(pid, Signal::CONT).unwrap();
}

#[test]
fn successor_hanging_before_claim_gets_nothing() {
    for step in ["Received", "Unpacked"] {
        let mut scene = LoadedServer::new(&["--patience-ms", "500"], TWO_CLIENTS);
        let mut next = scene.next_process(&["--stop-at", step]);
        scene.server.wait_for_line("kept: ");
        scene.assert_new_client_served();
        resume(&next);
        assert!(!next.wait_exit(TIMEOUT).success());
        assert!(next.has_printed("Withdrawn"), "{:?}", next.output);
        // It touched nothing, and another successor can take over.
        scene.assert_new_client_served();
        scene.upgrade();
        scene.assert_no_errors(2);
    }
}

/// The word decides, not the answer: if the successor has claimed everything and hangs, its peers wait and the running process releases it.
#[test]
fn successor_hanging_after_claim_keeps_everything() {
    for step in ["Claimed", "Started"] {
        let mut scene = LoadedServer::new(&["--patience-ms", "500"], TWO_CLIENTS);
        let mut next = scene.next_process(&["--stop-at", step]);
        scene.server.wait_for_line("handed over");
        assert!(scene.server.wait_exit(TIMEOUT).success());
        resume(&next);
        next.wait_for_line("took over");
        next.wait_for_line("waiting for a successor");
        scene.server = next;
        scene.assert_new_client_served();
        scene.assert_no_errors(2);
    }
}

#[test]
fn private_memory_is_not_handed_over() {
    let mut scene = LoadedServer::new(&["--private"], TWO_CLIENTS);
    let mut next = scene.next_process(&[]);
    let why = scene.server.wait_for_line("kept: ");
    println!("{why}");
    assert!(!next.wait_exit(TIMEOUT).success());
    scene.assert_new_client_served();
    scene.assert_no_errors(1);
}

#[test]
fn object_not_taken_cancels_the_handover() {
    let mut scene = LoadedServer::new(&[], TWO_CLIENTS);
    let mut next = scene.next_process(&["--forget"]);
    let why = scene.server.wait_for_line("kept: ");
    assert!(why.contains("was received and not unpacked"), "{why}");
    assert!(!next.wait_exit(TIMEOUT).success());
    assert!(next.has_printed("NotUnpacked"), "{:?}", next.output);
    scene.assert_new_client_served();
    scene.upgrade();
    scene.assert_no_errors(2);
}

/// A handover in one process: `take` is the successor.
pub(crate) fn hand_over_in_process(
    handover: Handover,
    take: impl FnOnce(IncomingHandover) -> Result<(), Error> + Send + 'static,
) -> Result<(), Box<FailedHandover>> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("verbena-within-{}-{count}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let handover_listener = HandoverListener::bind(&path).unwrap();
    let taking = std::thread::spawn(move || IncomingHandover::connect(&path).and_then(take));
    let next_process = handover_listener.accept(TIMEOUT).unwrap().unwrap();
    let given = next_process.send(handover, |_| ());
    if let Err(kept) = &given {
        assert_eq!(kept.sender.is_some(), is_refused_here(kept), "{kept}");
    }
    let waits = matches!(&given, Err(kept) if kept.sender.is_some());
    if !waits {
        assert_eq!(taking.join().unwrap().is_ok(), given.is_ok());
    }
    given
}

/// Whether an object could not be moved, so that nothing was sent.
fn is_refused_here(kept: &FailedHandover) -> bool {
    let why = kept.to_string();
    ["cannot be moved", "cannot move"]
        .iter()
        .any(|part| why.contains(part))
}

#[test]
fn stag_in_use_is_refused() {
    let device = crate::common::device(&[]);
    let memory = device.shared_memory(4096, Access::ALL).unwrap();
    memory.write_at(0, b"still here").unwrap();
    let mut handover = Handover::default();
    handover.memory(1, memory.clone()).memory(2, memory.clone());
    let kept = hand_over_in_process(handover, |mut inheritance| {
        let device = crate::common::device(&[]);
        let pd = device.pd()?;
        let _first = inheritance.memory(1, &pd)?;
        // The same STag a second time.
        let _second = inheritance.memory(2, &pd)?;
        inheritance.accept(&device, |_| ()).map(drop)
    });
    let kept = kept.unwrap_err();
    println!("{kept}");
    assert!(kept.to_string().contains("the successor refused"), "{kept}");
    let (memories, ..) = kept.handover.into_parts();
    assert_eq!(memories[0].1.get::<[u8; 10]>(0).unwrap(), *b"still here");
}

#[test]
fn unconnected_qp_is_refused_successor_stays_usable() {
    let device = crate::common::device(&[]);
    let (pd, cq) = (device.pd().unwrap(), device.cq(16).unwrap());
    let qp = Qp::new(&pd, &cq, &cq, QpOptions::default()).unwrap();
    let mut handover = Handover::default();
    handover.user_data(b"twice").qp(1, qp);
    let take = |inheritance: IncomingHandover| {
        assert_eq!(inheritance.user_data(), b"twice");
        let device = crate::common::device(&[]);
        inheritance.accept(&device, |_| ()).map(drop)
    };
    let kept = hand_over_in_process(handover, take).unwrap_err();
    let next_process = kept.sender.unwrap();
    let mut handover = Handover::default();
    handover.user_data(b"twice");
    next_process.send(handover, |_| ()).unwrap();
}

/// A connection whose server side can be handed over, with completions that were not polled.
struct LoadedConnection {
    client: (Device, Qp, Cq),
    server: (Device, Qp, Cq),
}

impl LoadedConnection {
    fn new(messages: u64) -> LoadedConnection {
        let [client, server] = [(), ()].map(|()| {
            let device = crate::common::device(&[("device", "127.0.0.1")]);
            let (pd, cq) = (device.pd().unwrap(), device.cq(256).unwrap());
            let qp = Qp::new(&pd, &cq, &cq, QpOptions::default()).unwrap();
            qp.modify(QpState::Init).unwrap();
            (device, qp, cq)
        });
        let listener = server.0.listen("127.0.0.1:0").unwrap();
        let flowing = LoadedConnection { client, server };
        flowing.receive(&flowing.server.1, messages);
        connect_qps(&listener, &flowing.client.1, &flowing.server.1);
        flowing.send(messages);
        complete(&flowing.client.2, messages as usize);
        flowing
    }

    fn receive(&self, qp: &Qp, messages: u64) {
        for id in 0..messages {
            let scatter = &[];
            qp.post_recv(&[RecvWr { id, scatter }]).unwrap();
        }
    }

    fn send(&self, messages: u64) {
        for id in 0..messages {
            let send = wr(id, SEND, Data::Gather(&[]));
            self.client.1.post_send(&[send]).unwrap();
        }
    }

    /// The successor runs `take`; the running process must have kept the connection, and it works.
    fn assert_kept(
        self,
        messages: usize,
        take: impl FnOnce(IncomingHandover, &Device) -> Result<(), Error> + Send + 'static,
    ) -> String {
        let LoadedConnection { client, server } = self;
        let (device, qp, cq) = server;
        let mut handover = Handover::default();
        handover.qp(1, qp);
        let kept = hand_over_in_process(handover, move |inheritance| {
            take(
                inheritance,
                &crate::common::device(&[("device", "127.0.0.1")]),
            )
        });
        let kept = kept.unwrap_err();
        let why = kept.to_string();
        let (_, mut qps, _) = kept.handover.into_parts();
        let qp = qps.pop().unwrap().1;
        let server = (device, qp, cq);
        let flowing = LoadedConnection { client, server };
        let waiting = complete(&flowing.server.2, messages);
        assert!(waiting.iter().all(|wc| wc.status == Status::Success));
        flowing.receive(&flowing.server.1, 1);
        flowing.send(1);
        let more = complete(&flowing.server.2, 1);
        assert_eq!(more[0].status, Status::Success);
        why
    }
}

/// A connection that cannot start is detected before the ownership changes.
#[test]
fn modified_queue_pair_cancels_the_handover() {
    let why = LoadedConnection::new(3).assert_kept(3, |mut inheritance, device| {
        let (pd, cq) = (device.pd()?, device.cq(16)?);
        let qp = inheritance.qp(1, &pd, &cq, &cq, None)?;
        qp.modify(QpState::Init).unwrap();
        inheritance.accept(device, |_| ()).map(drop)
    });
    assert!(why.contains("the successor refused"), "{why}");
}

#[test]
fn small_queue_refuses_waiting_completions() {
    let why = LoadedConnection::new(100).assert_kept(100, |mut inheritance, device| {
        let (pd, cq) = (device.pd()?, device.cq(1)?);
        let _qp = inheritance.qp(1, &pd, &cq, &cq, None)?;
        inheritance.accept(device, |_| ()).map(drop)
    });
    assert!(why.contains("100 completions wait"), "{why}");
}

/// A program that continues after an error cannot take a part.
#[test]
fn failed_take_cancels_the_handover() {
    let why = LoadedConnection::new(1).assert_kept(1, |mut inheritance, device| {
        let other = crate::common::device(&[]);
        let (pd, cq) = (device.pd()?, other.cq(16)?);
        let foreign = inheritance.qp(1, &pd, &cq, &cq, None);
        assert!(matches!(foreign, Err(Error::Foreign)), "{foreign:?}");
        inheritance.accept(device, |_| ()).map(drop)
    });
    assert!(why.contains("connection with tag 1"), "{why}");

    let memory = crate::common::device(&[])
        .shared_memory(64, Access::ALL)
        .unwrap();
    let mut handover = Handover::default();
    handover.memory(1, memory.clone()).memory(2, memory);
    let kept = hand_over_in_process(handover, |mut inheritance| {
        let device = crate::common::device(&[]);
        let pd = device.pd()?;
        let _first = inheritance.memory(1, &pd)?;
        assert!(inheritance.memory(2, &pd).is_err());
        inheritance.accept(&device, |_| ()).map(drop)
    });
    assert!(kept.is_err());
}

#[test]
fn invalid_handover_clients_get_nothing() {
    let mut scene = LoadedServer::new(&[], TWO_CLIENTS);
    // A frame without descriptors: its length in eight bytes, then the bytes.
    let frame = |bytes: &[u8]| [&(bytes.len() as u64).to_le_bytes(), bytes].concat();
    let (newer, older) = (*b"vbnh\x09\x00\x01\x00", *b"vbnh\x01\x00\x00\x00");
    let says: [(&[u8], &str); 6] = [
        (&frame(&newer), "handover version 9"),
        (&frame(&older), "connection images of version 0"),
        (&frame(b"GET / HTTP/1.1"), "an unknown protocol"),
        (&[0xff; 64], "not the beginning of a frame"),
        (&frame(&newer)[..11], "11 of 16 bytes"),
        (b"", "the other process"),
    ];
    for (bytes, why) in says {
        let mut unknown = UnixStream::connect(scene.path()).unwrap();
        unknown.write_all(bytes).unwrap();
        unknown.shutdown(std::net::Shutdown::Write).unwrap();
        let said = scene.server.wait_for_line("successor not accepted: ");
        assert!(said.contains(why), "{said}");
    }
    // A process that connects and sends nothing delays the next one only until the time limit, and clients not at all.
    let silent = UnixStream::connect(scene.path()).unwrap();
    scene.assert_new_client_served();
    scene.upgrade();
    drop(silent);
    scene.assert_no_errors(2);
}

#[test]
fn one_of_two_successors_takes_everything() {
    for _ in 0..5 {
        let mut scene = LoadedServer::new(&[], TWO_CLIENTS);
        let mut both = [scene.next_process(&[]), scene.next_process(&[])];
        scene.server.wait_for_line("handed over 2 connections");
        assert!(scene.server.wait_exit(TIMEOUT).success());
        let first = wait_for("one takes over", || {
            both.iter_mut().position(|p| p.has_printed("took over"))
        });
        let [a, b] = both;
        let (mut first, mut second) = if first == 0 { (a, b) } else { (b, a) };
        // It connected either to the process that has ended, or to the new one, from which it takes everything.
        wait_until("it ends or takes over", || {
            !second.is_running() || second.has_printed("took over")
        });
        let generation = if second.has_printed("took over") {
            assert!(first.wait_exit(TIMEOUT).success());
            assert!(first.has_printed("handed over 2"), "{:?}", first.output);
            3
        } else {
            assert!(second.has_printed("Channel"), "{:?}", second.output);
            assert!(!first.has_printed("handed over"));
            2
        };
        scene.assert_new_client_served();
        scene.assert_no_errors(generation);
    }
}
