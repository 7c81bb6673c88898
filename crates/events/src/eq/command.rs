//! The driver's side of an event queue: the register, and the administrative commands (E2, E3).
//! A write of the register never waits for a command, and a failed call changes nothing.

use super::*;

impl EventQueue {
    /// Gives an undefined queue its memory; the queue is unarmed then. The driver reads through the returned reader.
    pub fn initialise(&self, memory: Memory, settings: Settings) -> Result<Reader, EqError> {
        let mut end = self.end.lock();
        let (_, act) = State::next(self.state(), Input::Initialise);
        if act == Act::Refuse {
            return Err(EqError::AlreadyInitialised);
        }
        let memory = Arc::new(memory);
        let (moves, from) = ring();
        let place = WritePosition {
            memory: memory.clone(),
            slot: 0,
            base: 0,
            moves,
            bases: VecDeque::new(),
        };
        self.set_hold(settings.moderation.hold());
        *end = End {
            memory: Some(place),
            backlog: VecDeque::new(),
            settings,
            adaptive: Adaptive::default(),
            overflow_reported: false,
            seen: 0,
        };
        self.published.store(0, Ordering::Release);
        self.placed.store(0, Ordering::Relaxed);
        self.due.store(NEVER, Ordering::Release);
        self.change(|word| {
            let (state, _) = word.state.next(Input::Initialise);
            let fresh = Word {
                state,
                ..Word::UNDEFINED
            };
            (fresh, ())
        });
        Ok(Reader::new(memory, from))
    }

    /// Takes the memory away; returns how many events were not acknowledged. Entries already written can still be read.
    pub fn destroy(&self) -> Result<usize, EqError> {
        let mut end = self.end.lock();
        if end.memory.take().is_none() {
            return Err(EqError::Undefined);
        }
        let kept = core::mem::take(&mut end.backlog).len();
        let (word, ()) = self.change(|word| {
            let (state, _) = word.state.next(Input::Destroy);
            let backlog = false;
            (
                Word {
                    state,
                    backlog,
                    ..word
                },
                (),
            )
        });
        Ok(word.unread() as usize + kept)
    }

    /// The register (E3): acknowledges what was read, and arms or unarms, in one step. It does not block.
    ///
    /// Arming while unread entries wait signals at once, unless moderation holds the signal back (E2).
    pub fn write(&self, armed: bool, read: Indicator, now: Time) -> Result<Outcome, EqError> {
        let mut out = Outcome::default();
        let hold = self.hold();
        let (word, (act, moved)) = self.step(|word| {
            if word.state == State::Undefined {
                return Err(EqError::Undefined);
            }
            let by = match read {
                Indicator::Keep => 0,
                Indicator::By(count) => count,
                Indicator::At(position) if position < word::POSITIONS => {
                    distance(word.read, position)
                }
                Indicator::At(position) => position,
            };
            // The driver reads by code, and may be ahead of the count by the one entry that is being written. A driver that has seen
            // an entry loads at least its position here; if the word is out of date, the exchange fails.
            let placed = self.placed.load(Ordering::Relaxed);
            if by > distance(word.read, placed) {
                return Err(EqError::PastWriteIndicator {
                    read: word.read,
                    by,
                    written: word.written,
                });
            }
            let word = word.advanced(by);
            let unread = word.unread();
            let ready = unread > 0 && !hold.holds(unread);
            let input = if armed {
                Input::Arm { ready }
            } else {
                Input::Unarm
            };
            let (state, act) = word.state.next(input);
            Ok((Word { state, ..word }, (act, by > 0)))
        })?;
        self.apply(act, &mut out);
        if word.state == State::Armed && word.unread() > 0 {
            self.wait(now, hold, &mut out);
        }
        // There is room now for the backlog. If the lock is taken, its holder looks at the word once more after it unlocks.
        if word.backlog
            && moved
            && let Some(mut end) = self.end.try_lock()
        {
            self.flush(&mut end, now, &mut out);
            self.unlock(end, now, &mut out);
        }
        Ok(out)
    }

    /// Continues in other memory, in one step: unread entries stay where they are, new ones are written to `memory` (E2, E3).
    pub fn switch(&self, memory: Memory, now: Time) -> Result<Outcome, EqError> {
        let mut out = Outcome::default();
        let mut end = self.end.lock();
        let word = self.load_word();
        let Some(place) = &mut end.memory else {
            return Err(EqError::Undefined);
        };
        let (has, new) = (place.memory.form(), memory.form());
        if has != new {
            return Err(EqError::Form { has, new });
        }
        // Memories before a base that the read indicator has reached are read to their end.
        let unread = |base: u32| distance(base, word.written) < word.unread();
        while place.bases.front().is_some_and(|base| !unread(*base)) {
            place.bases.pop_front();
        }
        if place.bases.len() >= MAX_PENDING_SWITCHES {
            return Err(EqError::TooManySwitches);
        }
        let memory = Arc::new(memory);
        place.moves.push(memory.clone());
        // The slot is free: there is one more than entries.
        place.memory.write(place.slot, Eqe::moved());
        place.memory = memory;
        place.slot = 0;
        place.base = word.written;
        place.bases.push_back(word.written);
        self.flush(&mut end, now, &mut out);
        self.unlock(end, now, &mut out);
        Ok(out)
    }

    /// Switches to memory of this size, allocated here, contiguous or in pages as before.
    pub fn resize(&self, entries: usize, now: Time) -> Result<Outcome, ResizeError> {
        let memory = self.memory_like(entries)?;
        Ok(self.switch(memory, now)?)
    }

    /// Memory of this size, with entries and pages as the queue has them.
    fn memory_like(&self, entries: usize) -> Result<Memory, ResizeError> {
        let end = self.end.lock();
        let place = end.memory.as_ref().ok_or(EqError::Undefined)?;
        let (form, page) = (place.memory.form(), place.memory.page());
        drop(end);
        Ok(Memory::paged(entries, form, page)?)
    }

    /// The form of its entries.
    pub fn form(&self) -> Result<Form, EqError> {
        let end = self.end.lock();
        let place = end.memory.as_ref().ok_or(EqError::Undefined)?;
        Ok(place.memory.form())
    }

    /// Entries that fit, and events in the backlog.
    pub fn room(&self) -> Result<(usize, usize), EqError> {
        let end = self.end.lock();
        let place = end.memory.as_ref().ok_or(EqError::Undefined)?;
        Ok((place.memory.entries(), end.backlog.len()))
    }

    /// Changes the moderation (E6). A signal that the old setting holds back is due at once: call [`tick`](EventQueue::tick).
    pub fn moderate(&self, moderation: Moderation) -> Result<(), EqError> {
        let mut end = self.end.lock();
        if end.memory.is_none() {
            return Err(EqError::Undefined);
        }
        end.settings.moderation = moderation;
        end.adaptive = Adaptive::default();
        self.set_hold(moderation.hold());
        // If no tick is requested, nothing is held back, or a thread that holds a signal back uses the new setting or ticks already.
        let due = self.due.load(Ordering::Acquire);
        if due != NEVER {
            // On failure another tick has taken it, and looks at the word itself.
            let _ = self
                .due
                .compare_exchange(due, 0, Ordering::AcqRel, Ordering::Acquire);
        }
        Ok(())
    }
}

/// Why a queue cannot be resized. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResizeError {
    /// No queue has this size.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The queue cannot be switched.
    #[error(transparent)]
    Queue(#[from] EqError),
}
