//! A server that is replaced by another process under load, and every way in which that can fail (V1).
//!
//! The processes are those of the example `upgrade`, whose client checks every answer.

mod common;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use common::low::{SEND, complete, join, wr};
use common::process::{Process, example};
use rustix::process::{Pid, Signal, kill_process};
use verbena::low::{Data, QpState, RecvWr};
use verbena::{
    Access, Cq, Device, Error, Handover, Hatch, Inheritance, Kept, Qp, QpOptions, Status, Step,
};

const SOON: Duration = Duration::from_secs(15);

/// A server under load, and the path of its handover socket.
struct Scene {
    folder: PathBuf,
    server: Process,
    client: Process,
    at: String,
}

impl Scene {
    fn new(server: &[&str], client: &[&str]) -> Scene {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("verbena-handover-{}-{count}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("successor");
        let path = path.to_str().unwrap();
        let first = ["server", "--at", "127.0.0.1:0", "--hatch", path];
        let mut server = run(&[&first, server].concat());
        let at = server.until("listening at ");
        server.until("waiting for a successor");
        let usual = ["client", &at, "--until-told", "--seconds", "600"];
        let mut client = run(&[&usual, client].concat());
        client.until("loading");
        Scene {
            folder,
            server,
            client,
            at,
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.join("successor")
    }

    fn successor(&self, orders: &[&str]) -> Process {
        let path = self.path();
        let usual = ["server", "--inherit", path.to_str().unwrap()];
        run(&[&usual, orders].concat())
    }

    /// The next process takes over, and the previous one exits with success.
    fn upgrade(&mut self) {
        let kept = |said: &[String]| said.iter().filter(|line| line.contains("kept")).count();
        let before = kept(&self.server.said);
        let mut next = self.successor(&[]);
        next.until("took over");
        self.server.until("handed over");
        assert!(self.server.end(SOON).success());
        assert_eq!(kept(&self.server.said), before, "{:?}", self.server.said);
        next.until("waiting for a successor");
        self.server = next;
    }

    /// The client saw no error, and its last answer was from this server.
    fn fine(mut self, generation: u64) -> Vec<String> {
        std::thread::sleep(Duration::from_millis(50));
        self.client.tell();
        let status = self.client.end(SOON);
        let verdict = format!("generation {generation}: 0 lost, 0 wrong");
        assert!(self.client.has_said(&verdict), "{:?}", self.client.said);
        assert!(status.success());
        std::mem::take(&mut self.client.said)
    }

    /// The client has lost its connections in time, and saw no wrong answer.
    fn broken(mut self) {
        let status = self.client.end(SOON);
        assert!(!status.success());
        let verdict = "2 lost, 0 wrong";
        assert!(self.client.has_said(verdict), "{:?}", self.client.said);
    }

    /// A new client is served.
    fn newcomer(&self) {
        let mut client = run(&["client", &self.at, "--clients", "1", "--seconds", "1"]);
        assert!(client.end(SOON).success(), "{:?}", client.said);
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn run(arguments: &[&str]) -> Process {
    let mut command = example("upgrade");
    command.args(arguments);
    Process::new(command)
}

const TWO: &[&str] = &["--clients", "2"];

/// It was ended by the signal that it sent itself.
fn killed(process: &mut Process) {
    use std::os::unix::process::ExitStatusExt;
    let status = process.end(SOON);
    assert_eq!(status.signal(), Some(9), "{:?}", process.said);
}

#[test]
fn handovers_under_load_lose_nothing() {
    let long = std::env::var_os("LONG_TESTS").is_some();
    let upgrades = if long { 1000 } else { 20 };
    let mut scene = Scene::new(&[], &["--clients", "4", "--newcomers"]);
    for _ in 0..upgrades {
        scene.upgrade();
    }
    let said = scene.fine(upgrades + 1);
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
    let mut server = start(&["server", "--at", "127.0.0.1:0", "--hatch", path]);
    let at = server.until("listening at ");
    let mut client = start(&["client", &at, "--until-told", "--seconds", "60"]);
    client.until("loading");
    for _ in 0..10 {
        server.until("waiting for a successor");
        let mut next = start(&["server", "--inherit", path]);
        next.until("took over");
        assert!(server.end(SOON).success());
        server = next;
    }
    std::thread::sleep(Duration::from_millis(50));
    client.tell();
    client.until("generation 11: 0 lost, 0 wrong");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Whichever process dies and when, the connection lives in one process or in none.
#[test]
fn no_death_leaves_two_connection_owners() {
    for step in Step::ALL {
        println!("{step:?}");
        match step {
            Step::Departed | Step::Sent | Step::Given => the_running_one_dies(step),
            Step::Received | Step::Unpacked | Step::Claimed | Step::Begun => {
                the_successor_dies(step);
            }
        }
    }
}

fn the_running_one_dies(step: Step) {
    let mut scene = Scene::new(&["--die-at", &format!("{step:?}")], TWO);
    let mut next = scene.successor(&[]);
    killed(&mut scene.server);
    assert!(!scene.server.has_said("handed over") && !scene.server.has_said("kept"));
    if step == Step::Departed {
        assert!(!next.end(SOON).success());
        assert!(!next.has_said("took over"), "{:?}", next.said);
        scene.broken();
    } else {
        next.until("took over 2 connections, 1 listener");
        next.until("waiting for a successor");
        scene.newcomer();
        scene.server = next;
        // It can be replaced in turn.
        scene.upgrade();
        scene.fine(3);
    }
}

fn the_successor_dies(step: Step) {
    let mut scene = Scene::new(&[], TWO);
    let mut next = scene.successor(&["--die-at", &format!("{step:?}")]);
    killed(&mut next);
    if matches!(step, Step::Received | Step::Unpacked) {
        scene.server.until("kept: ");
        scene.newcomer();
        assert!(!scene.server.has_said("handed over"));
        // The attempt left nothing behind.
        scene.upgrade();
        scene.fine(2);
    } else {
        scene.server.until("handed over");
        assert!(scene.server.end(SOON).success());
        assert!(!scene.server.has_said("kept"), "{:?}", scene.server.said);
        scene.broken();
    }
}

fn resume(process: &Process) {
    let pid = Pid::from_raw(process.id()).unwrap();
    kill_process(pid, Signal::CONT).unwrap();
}

#[test]
fn successor_hanging_before_claim_gets_nothing() {
    for step in ["Received", "Unpacked"] {
        let mut scene = Scene::new(&["--patience-ms", "500"], TWO);
        let mut next = scene.successor(&["--stop-at", step]);
        scene.server.until("kept: ");
        scene.newcomer();
        resume(&next);
        assert!(!next.end(SOON).success());
        assert!(next.has_said("TakenBack"), "{:?}", next.said);
        // It touched nothing, and another successor can take over.
        scene.newcomer();
        scene.upgrade();
        scene.fine(2);
    }
}

/// The word decides, not the answer: if the successor has claimed everything and hangs, its peers wait and the running process releases it.
#[test]
fn successor_hanging_after_claim_keeps_everything() {
    for step in ["Claimed", "Begun"] {
        let mut scene = Scene::new(&["--patience-ms", "500"], TWO);
        let mut next = scene.successor(&["--stop-at", step]);
        scene.server.until("handed over");
        assert!(scene.server.end(SOON).success());
        resume(&next);
        next.until("took over");
        next.until("waiting for a successor");
        scene.server = next;
        scene.newcomer();
        scene.fine(2);
    }
}

#[test]
fn private_memory_is_not_handed_over() {
    let mut scene = Scene::new(&["--private"], TWO);
    let mut next = scene.successor(&[]);
    let why = scene.server.until("kept: ");
    println!("{why}");
    assert!(!next.end(SOON).success());
    scene.newcomer();
    scene.fine(1);
}

#[test]
fn object_not_taken_cancels_the_handover() {
    let mut scene = Scene::new(&[], TWO);
    let mut next = scene.successor(&["--forget"]);
    let why = scene.server.until("kept: ");
    assert!(why.contains("came and was not taken"), "{why}");
    assert!(!next.end(SOON).success());
    assert!(next.has_said("Left"), "{:?}", next.said);
    scene.newcomer();
    scene.upgrade();
    scene.fine(2);
}

/// A handover in one process: `take` is the successor.
fn within(
    handover: Handover,
    take: impl FnOnce(Inheritance) -> Result<(), Error> + Send + 'static,
) -> Result<(), Box<Kept>> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("verbena-within-{}-{count}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let hatch = Hatch::open(&path).unwrap();
    let taking = std::thread::spawn(move || Inheritance::from(&path).and_then(take));
    let successor = hatch.wait(SOON).unwrap().unwrap();
    let given = successor.give(handover, |_| ());
    if let Err(kept) = &given {
        assert_eq!(kept.successor.is_some(), taking_waits(kept), "{kept}");
    }
    let waits = matches!(&given, Err(kept) if kept.successor.is_some());
    if !waits {
        assert_eq!(taking.join().unwrap().is_ok(), given.is_ok());
    }
    given
}

/// Whether a connection could not be moved, so that nothing was sent.
fn taking_waits(kept: &Kept) -> bool {
    kept.to_string().contains("does not move")
}

#[test]
fn stag_in_use_is_refused() {
    let device = common::device(&[]);
    let memory = device.shared_memory(4096, Access::ALL).unwrap();
    memory.write_at(0, b"still here").unwrap();
    let mut handover = Handover::default();
    handover.memory(1, memory.clone()).memory(2, memory.clone());
    let kept = within(handover, |mut inheritance| {
        let device = common::device(&[]);
        let pd = device.pd()?;
        let _first = inheritance.memory(1, &pd)?;
        // The same STag a second time.
        let _second = inheritance.memory(2, &pd)?;
        inheritance.accept(&device, |_| ()).map(drop)
    });
    let kept = kept.unwrap_err();
    println!("{kept}");
    assert!(kept.to_string().contains("did not take it"), "{kept}");
    let (memories, ..) = kept.handover.into_parts();
    assert_eq!(memories[0].1.get::<[u8; 10]>(0).unwrap(), *b"still here");
}

#[test]
fn unconnected_qp_is_refused_successor_stays_usable() {
    let device = common::device(&[]);
    let (pd, cq) = (device.pd().unwrap(), device.cq(16).unwrap());
    let qp = Qp::new(&pd, &cq, &cq, QpOptions::default()).unwrap();
    let mut handover = Handover::default();
    handover.note(b"twice").qp(1, qp);
    let take = |inheritance: Inheritance| {
        assert_eq!(inheritance.note(), b"twice");
        let device = common::device(&[]);
        inheritance.accept(&device, |_| ()).map(drop)
    };
    let kept = within(handover, take).unwrap_err();
    let successor = kept.successor.unwrap();
    let mut handover = Handover::default();
    handover.note(b"twice");
    successor.give(handover, |_| ()).unwrap();
}

/// A connection whose server side can be handed over, with completions that were not polled.
struct Flowing {
    client: (Device, Qp, Cq),
    server: (Device, Qp, Cq),
}

impl Flowing {
    fn new(messages: u64) -> Flowing {
        let [client, server] = [(), ()].map(|()| {
            let device = common::device(&[("device", "127.0.0.1")]);
            let (pd, cq) = (device.pd().unwrap(), device.cq(256).unwrap());
            let qp = Qp::new(&pd, &cq, &cq, QpOptions::default()).unwrap();
            qp.modify(QpState::Init);
            (device, qp, cq)
        });
        let listener = server.0.listen("127.0.0.1:0").unwrap();
        let flowing = Flowing { client, server };
        flowing.receive(&flowing.server.1, messages);
        join(&listener, &flowing.client.1, &flowing.server.1);
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
    fn kept(
        self,
        messages: usize,
        take: impl FnOnce(Inheritance, &Device) -> Result<(), Error> + Send + 'static,
    ) -> String {
        let Flowing { client, server } = self;
        let (device, qp, cq) = server;
        let mut handover = Handover::default();
        handover.qp(1, qp);
        let kept = within(handover, move |inheritance| {
            take(inheritance, &common::device(&[("device", "127.0.0.1")]))
        });
        let kept = kept.unwrap_err();
        let why = kept.to_string();
        let (_, mut qps, _) = kept.handover.into_parts();
        let qp = qps.pop().unwrap().1;
        let server = (device, qp, cq);
        let flowing = Flowing { client, server };
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
    let why = Flowing::new(3).kept(3, |mut inheritance, device| {
        let (pd, cq) = (device.pd()?, device.cq(16)?);
        let qp = inheritance.qp(1, &pd, &cq, &cq, None)?;
        qp.modify(QpState::Init);
        inheritance.accept(device, |_| ()).map(drop)
    });
    assert!(why.contains("did not take it"), "{why}");
}

#[test]
fn small_queue_refuses_waiting_completions() {
    let why = Flowing::new(100).kept(100, |mut inheritance, device| {
        let (pd, cq) = (device.pd()?, device.cq(1)?);
        let _qp = inheritance.qp(1, &pd, &cq, &cq, None)?;
        inheritance.accept(device, |_| ()).map(drop)
    });
    assert!(why.contains("100 completions wait"), "{why}");
}

/// A program that continues after an error cannot take a part.
#[test]
fn failed_take_cancels_the_handover() {
    let why = Flowing::new(1).kept(1, |mut inheritance, device| {
        let other = common::device(&[]);
        let (pd, cq) = (device.pd()?, other.cq(16)?);
        let foreign = inheritance.qp(1, &pd, &cq, &cq, None);
        assert!(matches!(foreign, Err(Error::Foreign)), "{foreign:?}");
        inheritance.accept(device, |_| ()).map(drop)
    });
    assert!(why.contains("connection with tag 1"), "{why}");

    let memory = common::device(&[]).shared_memory(64, Access::ALL).unwrap();
    let mut handover = Handover::default();
    handover.memory(1, memory.clone()).memory(2, memory);
    let kept = within(handover, |mut inheritance| {
        let device = common::device(&[]);
        let pd = device.pd()?;
        let _first = inheritance.memory(1, &pd)?;
        assert!(inheritance.memory(2, &pd).is_err());
        inheritance.accept(&device, |_| ()).map(drop)
    });
    assert!(kept.is_err());
}

#[test]
fn invalid_handover_clients_get_nothing() {
    let mut scene = Scene::new(&[], TWO);
    // A frame without descriptors: its length in eight bytes, then the bytes.
    let frame = |bytes: &[u8]| [&(bytes.len() as u64).to_le_bytes(), bytes].concat();
    let (newer, older) = (*b"vbnh\x09\x00\x01\x00", *b"vbnh\x01\x00\x00\x00");
    let says: [(&[u8], &str); 6] = [
        (&frame(&newer), "handover form 9"),
        (&frame(&older), "connections of form 0"),
        (&frame(b"GET / HTTP/1.1"), "something else"),
        (&[0xff; 64], "begins no frame"),
        (&frame(&newer)[..11], "11 of 16 bytes"),
        (b"", "the other process"),
    ];
    for (bytes, why) in says {
        let mut stranger = UnixStream::connect(scene.path()).unwrap();
        stranger.write_all(bytes).unwrap();
        stranger.shutdown(std::net::Shutdown::Write).unwrap();
        let said = scene.server.until("not a successor: ");
        assert!(said.contains(why), "{said}");
    }
    // A process that connects and sends nothing delays the next one only until the time limit, and clients not at all.
    let silent = UnixStream::connect(scene.path()).unwrap();
    scene.newcomer();
    scene.upgrade();
    drop(silent);
    scene.fine(2);
}

#[test]
fn one_of_two_successors_takes_everything() {
    for _ in 0..5 {
        let mut scene = Scene::new(&[], TWO);
        let mut both = [scene.successor(&[]), scene.successor(&[])];
        scene.server.until("handed over 2 connections");
        assert!(scene.server.end(SOON).success());
        let first = loop {
            if let Some(at) = both.iter_mut().position(|p| p.has_said("took over")) {
                break at;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let [a, b] = both;
        let (mut first, mut second) = if first == 0 { (a, b) } else { (b, a) };
        // It connected either to the process that has ended, or to the new one, from which it takes everything.
        while second.is_running() && !second.has_said("took over") {
            std::thread::sleep(Duration::from_millis(5));
        }
        let generation = if second.has_said("took over") {
            assert!(first.end(SOON).success());
            assert!(first.has_said("handed over 2"), "{:?}", first.said);
            3
        } else {
            assert!(second.has_said("Undelivered"), "{:?}", second.said);
            assert!(!first.has_said("handed over"));
            2
        };
        scene.newcomer();
        scene.fine(generation);
    }
}
