//! Checks of how a program uses verbs (`verbena check`, docs/check.md): on if the setting `check` names the folder for reports, which is decided when the
//! library is first used. Contexts and queue pairs of a checked process get other functions in their tables (`verbs`), so that posts and polls of
//! other processes test nothing; calls that create and destroy objects test one flag.
//!
//! Reading order: `kind` → `stack` → `memory` (snapshots of buffers) → `report` → `tables`, `posts`, `completions`, `ending` (what is known, and what it shows) →
//! `verbs` (the functions in the tables), `watch` (memory that the program gives back).

mod completions;
mod ending;
mod kind;
mod memory;
mod posts;
mod report;
mod stack;
mod tables;
pub(crate) mod verbs;
mod watch;

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use core::time::Duration;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use parking_lot::{Mutex, MutexGuard};

use report::Reporter;
use tables::Tables;
use watch::Watched;

pub(crate) use completions::CompletionInfo;
pub(crate) use posts::{Answer, Direction, SendInfo};
pub(crate) use tables::{PairInfo, RegionInfo};

/// A process ends although another thread holds a lock of the checks for so long.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// What is known about the use of verbs in this process.
pub(crate) struct Checker {
    /// A forked child begins anew: it has none of its parent's objects, and locks may be held by threads that it does not have.
    process: libc::pid_t,
    tables: Mutex<Tables>,
    reporter: Mutex<Reporter>,
    watched: Watched,
}

/// The setting names a folder. Written once, before the first object exists.
static ON: AtomicBool = AtomicBool::new(false);
static CHECKER: AtomicPtr<Checker> = AtomicPtr::new(ptr::null_mut());

/// The folder of the setting, which a forked child shares.
static FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// Begins, before the first object of a process is created, if the setting names this folder.
pub(crate) fn start(folder: Option<&Path>) {
    if let Some(folder) = folder {
        let folder = FOLDER.get_or_init(|| folder.to_owned());
        ON.store(true, Ordering::Relaxed);
        start_in(folder);
    }
}

fn process_id() -> libc::pid_t {
    // SAFETY: `getpid` has no preconditions.
    unsafe { libc::getpid() }
}

#[cold]
fn start_in(folder: &Path) {
    let process = process_id();
    let now = CHECKER.load(Ordering::Acquire);
    // SAFETY: `now` is null or a box that this function leaked and never frees.
    if unsafe { now.as_ref() }.is_some_and(|known| known.process == process) {
        return;
    }
    let fresh = Box::into_raw(Box::new(Checker {
        process,
        tables: Mutex::default(),
        reporter: Mutex::new(Reporter::new(folder, process)),
        watched: Watched::default(),
    }));
    if CHECKER
        .compare_exchange(now, fresh, Ordering::AcqRel, Ordering::Acquire)
        .is_err()
    {
        // SAFETY: `fresh` was leaked above and not published, so no other thread has it.
        drop(unsafe { Box::from_raw(fresh) });
    } else {
        // SAFETY: `fresh` was published and is never freed.
        unsafe { &*fresh }.reporter.lock().begin();
        watch::start();
    }
}

/// The checks of this process; none if they are off.
#[inline]
pub(crate) fn checker() -> Option<&'static Checker> {
    if !ON.load(Ordering::Relaxed) {
        return None;
    }
    of_process()
}

#[cold]
fn of_process() -> Option<&'static Checker> {
    // SAFETY: null, or a box that `start_in` leaked and never frees.
    let known = unsafe { CHECKER.load(Ordering::Acquire).as_ref() };
    let known = known.filter(|known| known.process == process_id());
    if known.is_some() {
        return known;
    }
    // The first call in a forked child.
    start(FOLDER.get().map(PathBuf::as_path));
    // SAFETY: null if there is no folder, or the box that `start_in` has leaked for this process.
    unsafe { CHECKER.load(Ordering::Acquire).as_ref() }
}

impl Checker {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock()
    }
}

/// Runs when the library is unloaded or the process exits: after the program's own functions for that, which may destroy objects.
extern "C" fn at_end() {
    if !ON.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: null, or a box that `start_in` leaked and never frees.
    let known = unsafe { CHECKER.load(Ordering::Acquire).as_ref() };
    if let Some(known) = known.filter(|known| known.process == process_id()) {
        known.end();
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = at_end;
