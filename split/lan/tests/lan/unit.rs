//! A small I/O unit: several hosts' TAPs and one LAN port on a switch (P9).

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use verbena_lan::{
    Batch, BatchReadOutcome, Limits, Mac, Misuse, Offloads, Port, PortId, Role, Switch, Tap,
};

use crate::common::{Netns, privileged, wait_until};

/// The interface behind a port of the switch.
enum End {
    Host(Tap),
    Lan(Port),
}

impl End {
    fn read(&self, batch: &mut Batch) -> BatchReadOutcome {
        match self {
            End::Host(tap) => tap.queues()[0].read(batch).unwrap(),
            End::Lan(port) => port.read(batch).unwrap(),
        }
    }

    /// The frame is lost if there is no room: pings are repeated.
    fn write(&self, frame: &verbena_lan::Frame) {
        let one = std::slice::from_ref(frame);
        match self {
            End::Host(tap) => tap.queues()[0].write(one).unwrap(),
            End::Lan(port) => port.write(one).unwrap(),
        };
    }
}

struct State {
    switch: Switch,
    ends: BTreeMap<PortId, End>,
}

struct Unit {
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Unit {
    fn new() -> Unit {
        let switch = Switch::new(Limits::default());
        let ends = BTreeMap::new();
        let state = Arc::new(Mutex::new(State { switch, ends }));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (state, stop) = (state.clone(), stop.clone());
            move || serve(&state, &stop)
        });
        Unit {
            state,
            stop,
            thread: Some(thread),
        }
    }

    fn with<T>(&self, what: impl FnOnce(&mut State) -> T) -> T {
        what(&mut self.state.lock().unwrap())
    }

    fn lan(&self, port: Port) -> PortId {
        self.with(|state| {
            let id = state.switch.add(Role::Lan).unwrap();
            state.ends.insert(id, End::Lan(port));
            id
        })
    }

    /// Adds a host with its own namespace, address and TAP.
    fn host(&self, space: &Netns, last: u8) -> Result<PortId, Misuse> {
        let tap = space.run(|| Tap::create("tap0", 1)).unwrap();
        let mac = Mac::new([2, 0, 0, 0, 9, last]);
        tap.set_offloads(Offloads::ALL).unwrap();
        tap.interface().set_mac(mac).unwrap();
        tap.interface().set_up(true).unwrap();
        space.ip(&format!("address add 10.9.0.{last}/24 dev tap0"));
        let own = Some(mac);
        self.with(|state| {
            let id = state.switch.add(Role::Host { own })?;
            state.ends.insert(id, End::Host(tap));
            Ok(id)
        })
    }

    fn remove(&self, id: PortId) {
        self.with(|state| {
            state.switch.remove(id).unwrap();
            state.ends.remove(&id)
        });
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}

fn serve(state: &Mutex<State>, stop: &AtomicBool) {
    let (mut batch, mut to) = (Batch::new(16), Vec::new());
    let start = Instant::now();
    let stopped = || stop.load(Ordering::Relaxed);
    verbena_testing::serve_until(stopped, || {
        let mut passed = 0;
        if let Ok(mut state) = state.lock() {
            let State { switch, ends } = &mut *state;
            for (id, end) in ends.iter() {
                passed += end.read(&mut batch).frames;
                for frame in batch.frames() {
                    let now = start.elapsed();
                    switch.forward(*id, frame.bytes(), now, &mut to).unwrap();
                    to.iter().for_each(|to| ends[to].write(frame));
                }
            }
        }
        passed > 0
    });
}

fn pings(from: &Netns, last: u8, wait: u8) -> bool {
    let words = format!("-q -n -c 3 -i 0.05 -W {wait} 10.9.0.{last}");
    let ran = from.run(|| Command::new("ping").args(words.split(' ')).output());
    let said = String::from_utf8_lossy(&ran.unwrap().stdout).into_owned();
    said.contains("3 received")
}

#[test]
fn p9_host_removal_leaves_other_hosts_connected() {
    let name = "unit::p9_host_removal_leaves_other_hosts_connected";
    privileged(name, || {
        let [unit, lan, one, two] = [(); 4].map(|()| Netns::new());
        unit.connect_veth("u0", &lan, "l0");
        lan.ip("address add 10.9.0.9/24 dev l0");
        let served = Unit::new();
        served.lan(unit.run(|| Port::open("u0", true)).unwrap());
        let first = served.host(&one, 1).unwrap();
        let second = served.host(&two, 2).unwrap();
        for (from, to) in [
            (&one, 9),
            (&two, 9),
            (&one, 2),
            (&two, 1),
            (&lan, 1),
            (&lan, 2),
        ] {
            assert!(pings(from, to, 5), "to {to}");
        }
        // No other host can be added with an owned address.
        let thief = Netns::new();
        assert!(matches!(served.host(&thief, 1), Err(Misuse::Owned { .. })));
        // A host leaves; the others are not affected, and it may return.
        served.remove(first);
        wait_until("its interface is gone", || !one.ip("link").contains("tap0"));
        assert!(!pings(&two, 1, 1) && pings(&two, 9, 5) && pings(&lan, 2, 5));
        let first = served.host(&one, 1).unwrap();
        assert!(pings(&two, 1, 5) && pings(&one, 9, 5));
        // Frames from another host's address reach no port and are counted.
        let spoofed = |id| served.with(|state| state.switch.statistics(id).unwrap().spoofed);
        assert_eq!((spoofed(first), spoofed(second)), (0, 0));
        one.ip("link set tap0 address 02:00:00:00:09:02");
        one.ip("neigh flush dev tap0");
        assert!(!pings(&one, 9, 1));
        assert!(spoofed(first) > 0 && spoofed(second) == 0);
        assert!(pings(&two, 9, 5) && pings(&lan, 2, 5));
    });
}
