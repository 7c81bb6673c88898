//! Chooses the thread that runs next, from a seed.
//! A seed also chooses the strategy: a random thread at every step, a random one now and then, or the runnable thread of highest priority, with
//! random priorities that change at a few random steps (probabilistic concurrency testing, Burckhardt et al. 2010). In most runs a thread also
//! pauses now and then, as if it had lost its processor, and in all runs where a program has requested it. The clock thread runs only when a
//! deadline has passed or nothing else can run.

use core::cell::Cell;
use core::ops::Range;

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};

use super::Run;
use super::world::{World, with};

std::thread_local! {
    static CURRENT: Cell<Run> = const { Cell::new(Run { seed: 0, steps: 0, digest: 0 }) };
}

/// The run in progress, or the last one.
pub(super) fn current_run() -> Run {
    CURRENT.get()
}

/// Steps within which the priorities change, if they do: most programs end sooner.
const CHANGES_WITHIN: u64 = 1 << 14;
/// Decisions that a thread pauses, at most.
const MAX_PAUSE: u64 = 1 << 11;
/// Decisions after which a thread that goes on counts as yielding: it may wait for another one in a loop.
const MAX_STREAK: u64 = 1 << 11;

#[derive(Debug)]
enum Strategy {
    /// Another thread with a probability of one in this many.
    Random(u64),
    Priorities {
        /// By task number; a lower number runs first.
        priorities: Vec<u64>,
        /// Steps at which the running thread gets the last priority.
        changes: Vec<u64>,
        /// The last priority given away.
        last: u64,
    },
}

/// Runs one seed after the other.
pub(super) struct SeededScheduler<F> {
    seeds: Range<u64>,
    strategy: Strategy,
    /// State of an xorshift generator, apart from the system's random numbers.
    random: u64,
    /// Consecutive decisions for the same thread.
    streak: u64,
    /// How many decisions lie between two pauses of a thread, on average; zero for no pauses.
    pause_every: u64,
    /// A thread that is not chosen before this step, unless no other can run: as if it had lost its processor.
    paused: Option<(TaskId, u64)>,
    /// Told of each run that passed.
    done: F,
    began: bool,
}

impl<F: FnMut(Run)> SeededScheduler<F> {
    pub(super) fn new(seeds: Range<u64>, done: F) -> SeededScheduler<F> {
        SeededScheduler {
            seeds,
            strategy: Strategy::Random(1),
            random: 1,
            streak: 0,
            pause_every: 0,
            paused: None,
            done,
            began: false,
        }
    }

    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn choose_strategy(&mut self) -> Strategy {
        match self.next_random() % 4 {
            0 => Strategy::Random(1),
            1 => Strategy::Random(4),
            2 => Strategy::Random(32),
            _ => {
                let count = self.next_random() % 8;
                let changes = (0..count).map(|_| self.next_random() % CHANGES_WITHIN);
                Strategy::Priorities {
                    changes: changes.collect(),
                    priorities: Vec::new(),
                    last: u64::MAX / 2,
                }
            }
        }
    }

    /// Begins or continues the pause of a thread: takes it out of those to choose from.
    fn pause(
        &mut self,
        tasks: &mut smallvec::SmallVec<[TaskId; 16]>,
        current: Option<TaskId>,
        step: u64,
    ) {
        let random = self.next_random();
        let requested = with(|world| world.is_pause_due(current));
        let begins = requested || self.pause_every != 0 && random % self.pause_every == 0;
        if self.paused.is_none() && begins {
            let length = (random >> 32) % MAX_PAUSE;
            self.paused = current.map(|task| (task, step + length));
        }
        self.paused = self.paused.filter(|(_, until)| step < *until);
        if let Some((task, _)) = self.paused
            && tasks.iter().any(|other| *other != task)
        {
            tasks.retain(|other| *other != task);
        }
    }

    fn choose(
        &mut self,
        tasks: &[TaskId],
        current: Option<TaskId>,
        yields: bool,
        step: u64,
    ) -> Option<TaskId> {
        let random = self.next_random();
        match &mut self.strategy {
            Strategy::Random(one_in) => {
                let stays = current.filter(|now| tasks.contains(now) && !yields);
                match stays {
                    Some(now) if random % *one_in != 0 => Some(now),
                    _ => tasks.get((random >> 32) as usize % tasks.len()).copied(),
                }
            }
            Strategy::Priorities {
                priorities,
                changes,
                last,
            } => {
                let known = tasks.iter().map(|task| usize::from(*task) + 1).max()?;
                while priorities.len() < known.max(current.map_or(0, usize::from) + 1) {
                    let fresh = priorities.len() as u64;
                    priorities.push((random ^ fresh.wrapping_mul(0x9e37_79b9)) >> 2);
                }
                if let Some(now) = current.filter(|_| yields || changes.contains(&step)) {
                    *last += 1;
                    priorities[usize::from(now)] = *last;
                }
                let first = tasks
                    .iter()
                    .min_by_key(|task| priorities[usize::from(**task)]);
                first.copied()
            }
        }
    }
}

impl<F: FnMut(Run)> Scheduler for SeededScheduler<F> {
    fn new_execution(&mut self) -> Option<Schedule> {
        if self.began {
            (self.done)(current_run());
        }
        let seed = self.seeds.next()?;
        self.began = true;
        self.random = seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1;
        for _ in 0..4 {
            self.next_random();
        }
        self.strategy = self.choose_strategy();
        self.streak = 0;
        self.pause_every = [0, 50, 400][(self.next_random() % 3) as usize];
        self.paused = None;
        World::begin(seed);
        CURRENT.set(Run {
            seed,
            steps: 0,
            digest: 0,
        });
        Some(Schedule::new(seed))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        yields: bool,
    ) -> Option<TaskId> {
        let (clock, due) = with(|world| {
            world.now += world.step;
            let passed = world.next_deadline().is_some_and(|next| next <= world.now);
            let due = passed || world.waiting.stopped;
            (world.waiting.clock, due)
        });
        // Parked threads are among these, since they may wake spuriously: here they do not.
        let able = runnable.iter().filter(|task| task.runnable());
        let mut tasks: smallvec::SmallVec<[TaskId; 16]> = able.map(|task| task.id()).collect();
        if !due && tasks.len() > 1 {
            tasks.retain(|task| Some(*task) != clock);
        }
        let mut run = CURRENT.get();
        self.pause(&mut tasks, current, run.steps);
        let endless = self.streak >= MAX_STREAK;
        let chosen = self.choose(&tasks, current, yields || endless, run.steps)?;
        self.streak = match current {
            Some(before) if before == chosen && !endless => self.streak + 1,
            _ => 0,
        };
        run.steps += 1;
        let step = usize::from(chosen) as u64 + 1;
        run.digest = (run.digest ^ step).wrapping_mul(0x0100_0000_01b3);
        CURRENT.set(run);
        Some(chosen)
    }

    fn next_u64(&mut self) -> u64 {
        self.next_random()
    }
}
