//! The two rings of a connection whose peer is on the same host: its byte stream passes through shared memory instead of the TCP socket.
//! A direction changes from the socket to its ring at one position of the stream, which its first eight bytes name, and back to the socket
//! behind the end of the ring. The socket stays open meanwhile: its end is the end of the peer.
//!
//! The responder of the connection does not begin before the initiator has: until then it does not know that the initiator has the rings.
//!
//! A thread that polls finds input without a system call. A thread that sleeps is woken by a doorbell, which the peer rings only if the ring
//! says that this side sleeps; so every thread that begins to sleep announces it ([`Rings::prepare_sleep`]).

use verbena_mem::{Sources, Targets};
use verbena_nic::IoOutcome;
use verbena_ring::{Consumer, Producer, Read, RingError};
use verbena_stream::Role;
use verbena_sync::atomic::{AtomicBool, Ordering, fence};
use verbena_sync::locks::Mutex;

use crate::same_host::{RingEnds, RingPermit};
use crate::stream_path::PeerProcess;
use crate::sys::{self, Doorbell, Socket};

/// Empty polls of the ring between two looks at the socket, whose end tells of the peer's, and at the wishes of the peer.
const POLLS_PER_LOOK: u32 = 256;

/// Both directions.
#[derive(Debug)]
pub(super) struct Rings {
    // Locked by the thread that holds the queue pair's lock, and briefly by one that begins to sleep.
    tx: Mutex<Tx>,
    rx: Mutex<Rx>,
    /// Rung by the peer.
    doorbell_in: Doorbell,
    /// Wakes the peer.
    doorbell_out: Doorbell,
    /// This side sleeps, as far as the peer knows or knew: it takes that back when it rings. Changed while `rx` is locked.
    asleep: AtomicBool,
    /// This side may write to its ring.
    may_write: AtomicBool,
    peer: PeerProcess,
    _permit: RingPermit,
}

#[derive(Debug)]
struct Tx {
    ring: Producer,
    phase: TxPhase,
    /// The peer was told that this side waits for room.
    waits: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TxPhase {
    /// The ring has not begun.
    Socket,
    Ring,
    /// The ring has ended: the socket again.
    Ended,
}

#[derive(Debug)]
struct Rx {
    ring: Consumer,
    phase: RxPhase,
    /// Reads since the last look.
    polls: u32,
    /// While this side sleeps: the peer rings for input, or the own doorbell was rung because there is some.
    awaits_input: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RxPhase {
    /// The ring has not begun.
    Socket,
    /// It begins at this position of the stream.
    Until(u64),
    Ring,
    /// The ring has ended: the socket again.
    Ended,
}

impl Rings {
    pub(super) fn new(ends: RingEnds, role: Role, permit: RingPermit) -> Rings {
        Rings {
            tx: Mutex::new(Tx {
                ring: ends.tx,
                phase: TxPhase::Socket,
                waits: false,
            }),
            rx: Mutex::new(Rx {
                ring: ends.rx,
                phase: RxPhase::Socket,
                polls: 0,
                awaits_input: false,
            }),
            doorbell_in: ends.doorbell_in,
            doorbell_out: ends.doorbell_out,
            asleep: AtomicBool::new(false),
            may_write: AtomicBool::new(role == Role::Initiator),
            peer: PeerProcess {
                pid: ends.peer_pid,
                is_readable: ends.reads_peer,
            },
            _permit: permit,
        }
    }

    /// The peer.
    pub(super) fn peer(&self) -> PeerProcess {
        self.peer
    }

    /// Readable when the peer has woken this side.
    pub(super) fn doorbell(&self) -> &Doorbell {
        &self.doorbell_in
    }

    /// Reads the next bytes; `read` is how many the socket has given so far.
    pub(super) fn read(&self, targets: &mut Targets<'_>, socket: &Socket, read: u64) -> ReadFrom {
        let mut rx = self.rx.lock();
        let looks = self.must_look(&mut rx);
        if looks {
            self.end_if_asked();
        }
        loop {
            match rx.phase {
                RxPhase::Ring => break,
                RxPhase::Ended => return ReadFrom::Socket,
                RxPhase::Until(start) if start == read => rx.phase = RxPhase::Ring,
                // Bytes beyond the beginning of the ring would be lost.
                RxPhase::Until(start) if start < read => return ReadFrom::Ring(IoOutcome::Broken),
                RxPhase::Until(start) => return ReadFrom::BeforeRing(start - read, looks),
                RxPhase::Socket => {
                    let mut start = [0; 8];
                    let mut first = Targets::new();
                    first.stage(&mut start);
                    // In this order: the peer may begin its ring, end it and write to the socket again at any moment, and what the socket has
                    // while the ring is empty precedes all of that.
                    let there = sys::readable(socket);
                    match rx.ring.read(&mut first) {
                        Ok(Read::Empty) => return ReadFrom::BeforeRing(there, looks),
                        // It ends before it has begun.
                        Ok(Read::End) => {
                            rx.phase = RxPhase::Ended;
                            return ReadFrom::Socket;
                        }
                        // Written as one record, so that it is there as a whole.
                        Ok(Read::Bytes(8)) => {}
                        Ok(_) | Err(_) => return ReadFrom::Ring(IoOutcome::Broken),
                    }
                    drop(first);
                    self.may_write.store(true, Ordering::Relaxed);
                    rx.phase = RxPhase::Until(u64::from_le_bytes(start));
                }
            }
        }
        let mut moved = self.read_ring(&mut rx, targets);
        if moved == RingRead::Empty
            && looks
            && let Some(end) = sys::peek_end(socket)
        {
            // The peer may have written between the two looks.
            moved = self.read_ring(&mut rx, targets);
            if moved == RingRead::Empty {
                return ReadFrom::Ring(end);
            }
        }
        match moved {
            RingRead::Moved(moved) => ReadFrom::Ring(moved),
            RingRead::Empty => ReadFrom::Ring(IoOutcome::WouldBlock),
            RingRead::End => {
                rx.phase = RxPhase::Ended;
                ReadFrom::Socket
            }
        }
    }

    fn read_ring(&self, rx: &mut Rx, targets: &mut Targets<'_>) -> RingRead {
        match rx.ring.read(targets) {
            Ok(Read::Bytes(n)) => {
                if rx.ring.needs_wakeup_for_room() {
                    self.doorbell_out.ring();
                }
                // Not zero: the next empty read is usual.
                rx.polls = 1;
                RingRead::Moved(IoOutcome::Bytes(n))
            }
            Ok(Read::Empty) => RingRead::Empty,
            Ok(Read::End) => RingRead::End,
            Err(RingError::Unmapped) => RingRead::Moved(IoOutcome::Fault),
            // External records are not agreed on.
            Ok(Read::External { .. }) | Err(_) => RingRead::Moved(IoOutcome::Broken),
        }
    }

    /// Whether this read looks at the socket and at the peer's wishes, too: every so often, and in a thread that slept, which may have been
    /// woken for that.
    fn must_look(&self, rx: &mut Rx) -> bool {
        let due = rx.polls.is_multiple_of(POLLS_PER_LOOK);
        rx.polls = rx.polls.wrapping_add(1);
        due || self.asleep.load(Ordering::Relaxed)
    }

    /// Writes the next bytes; `written` is how many the socket has taken so far. None if they go to the socket.
    pub(super) fn write(&self, sources: &Sources<'_>, written: u64) -> Option<IoOutcome> {
        let mut tx = self.tx.lock();
        self.end_writing_if_asked(&mut tx);
        match tx.phase {
            TxPhase::Ring => {}
            TxPhase::Ended => return None,
            TxPhase::Socket if !self.may_write.load(Ordering::Relaxed) => return None,
            TxPhase::Socket => {
                let start = written.to_le_bytes();
                let mut first = Sources::new();
                first.borrow_bytes(&start);
                if tx.ring.write(&first) != Ok(start.len()) {
                    return Some(IoOutcome::Broken);
                }
                tx.phase = TxPhase::Ring;
            }
        }
        let outcome = match tx.ring.write(sources) {
            Ok(0) => IoOutcome::WouldBlock,
            Ok(n) => IoOutcome::Bytes(n),
            Err(RingError::Unmapped) => IoOutcome::Fault,
            Err(_) => IoOutcome::Broken,
        };
        if tx.ring.needs_wakeup() {
            self.doorbell_out.ring();
        }
        Some(outcome)
    }

    /// Bytes written to the ring that the peer's process has not read, and at least as many; `None` if they went to the socket.
    pub(super) fn unread(&self) -> Option<u64> {
        let mut tx = self.tx.lock();
        (tx.phase == TxPhase::Ring).then(|| tx.ring.unread())
    }

    /// Bytes written to the ring, while it had the stream, that the peer's process has not read, and at least as many.
    pub(super) fn unread_in_ring(&self) -> u64 {
        self.tx.lock().ring.unread()
    }

    /// What is written from now on goes to the socket.
    pub(super) fn end_writing(&self) {
        self.end_ring(&mut self.tx.lock());
    }

    fn end_ring(&self, tx: &mut Tx) {
        if tx.phase != TxPhase::Ended {
            tx.phase = TxPhase::Ended;
            tx.ring.close();
            if tx.ring.needs_wakeup() {
                self.doorbell_out.ring();
            }
        }
    }

    /// Returns both directions to the socket: this one now, the other when the peer has read the wish.
    pub(super) fn ask_end(&self) {
        self.end_writing();
        self.rx.lock().ring.close();
        self.doorbell_out.ring();
    }

    /// The peer wishes to return to the socket: this direction does.
    pub(super) fn end_if_asked(&self) {
        self.end_writing_if_asked(&mut self.tx.lock());
    }

    fn end_writing_if_asked(&self, tx: &mut Tx) {
        if tx.phase != TxPhase::Ended && tx.ring.is_peer_closed() {
            self.end_ring(tx);
        }
    }

    /// The peer does not have the rings, or may not use them: both directions stay on the socket.
    pub(super) fn abandon(&self) {
        self.end_writing();
        self.rx.lock().phase = RxPhase::Ended;
    }

    /// Both directions have returned to the socket for good.
    pub(super) fn has_ended(&self) -> bool {
        // One lock after the other: a reader takes them in the opposite order.
        let written = self.tx.lock().phase == TxPhase::Ended;
        let read = self.rx.lock().phase == RxPhase::Ended;
        written && read
    }

    /// Bytes are written to the ring: room in the socket does not matter.
    pub(super) fn is_writing(&self) -> bool {
        self.tx.lock().phase == TxPhase::Ring
    }

    /// The peer rings when something arrives.
    pub(super) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::SeqCst)
    }

    /// There is something to do: a thread that sleeps does it.
    pub(super) fn wake_sleeper(&self) {
        if self.is_asleep() && self.is_writing() {
            self.doorbell_in.ring();
        }
    }

    /// A thread serves the connection from now on and needs no doorbell.
    pub(super) fn wake(&self) {
        if !self.is_asleep() {
            return;
        }
        // Under the lock from here on: another thread must not announce its sleep between the two words, and lose the announcement.
        let mut rx = self.rx.lock();
        if !self.asleep.swap(false, Ordering::SeqCst) {
            return;
        }
        // The first empty read looks at the socket.
        rx.polls = 0;
        let rung = rx.ring.cancel_sleep();
        let mut tx = self.tx.lock();
        let rung_for_room = core::mem::take(&mut tx.waits) && tx.ring.cancel_wait();
        drop(tx);
        if rung || rung_for_room {
            self.doorbell_in.clear();
        }
    }

    /// A thread is about to sleep: the peer rings when there is input, or room if `wants_room`. Rings the own doorbell if there is something to do
    /// already.
    pub(super) fn prepare_sleep(&self, wants_input: bool, wants_room: impl FnOnce() -> bool) {
        let mut rx = self.rx.lock();
        let was_asleep = self.asleep.swap(true, Ordering::SeqCst);
        if !was_asleep {
            self.doorbell_in.clear();
            rx.awaits_input = false;
        }
        // Another thread may have announced the sleep when input was not awaited, and its turn ended before this one enabled input.
        let announce = wants_input && !rx.awaits_input;
        let input = announce && !rx.ring.prepare_sleep();
        rx.awaits_input |= announce;
        // A thread that finds no room says so first and then looks whether this side sleeps.
        fence(Ordering::SeqCst);
        let room = !was_asleep && wants_room() && !self.wait_for_room();
        if input || room {
            self.doorbell_in.ring();
        }
    }

    /// The peer rings when there is room; false if there is room now.
    pub(super) fn wait_for_room(&self) -> bool {
        let mut tx = self.tx.lock();
        if tx.phase != TxPhase::Ring {
            return true;
        }
        tx.waits = tx.ring.prepare_wait();
        tx.waits
    }
}

/// Where the next bytes come from.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReadFrom {
    /// The socket, at most so many bytes: the others may be behind those of the ring. True if the end of the socket is to be looked for.
    BeforeRing(u64, bool),
    Socket,
    Ring(IoOutcome),
}

#[derive(Debug, PartialEq, Eq)]
enum RingRead {
    Moved(IoOutcome),
    Empty,
    End,
}

#[cfg(test)]
pub(super) mod tests {
    use verbena_ring::{Layout, on_heap};

    use super::*;
    use crate::same_host::SameHost;

    /// One side's rings.
    pub(in crate::connection) fn rings(tx: Producer, rx: Consumer, role: Role) -> Rings {
        let ends = RingEnds {
            tx,
            rx,
            doorbell_in: Doorbell::new().unwrap(),
            doorbell_out: Doorbell::new().unwrap(),
            peer_pid: None,
            reads_peer: false,
        };
        Rings::new(ends, role, SameHost::default().permit(1).unwrap())
    }

    /// A thread that finds input disabled may announce the sleep after another one has enabled it, and before that one does.
    #[test]
    fn input_enabled_behind_an_announcement_is_announced() {
        let (mut peer, rx, _in) = on_heap(Layout::new(4096).unwrap());
        let (tx, _peer, _out) = on_heap(Layout::new(4096).unwrap());
        let rings = rings(tx, rx, Role::Responder);
        rings.prepare_sleep(false, || false);
        rings.prepare_sleep(true, || false);
        let mut sources = Sources::new();
        sources.borrow_bytes(b"input");
        assert_eq!(peer.write(&sources), Ok(5));
        assert!(peer.needs_wakeup());
    }
}
