//! Where a driver waits: until a descriptor is ready or a moment has come.
//! It promises to be back by that moment, and to say what else is ready.
//! It refuses to do anything else.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use crate::carrier::{Beside, Carrier, CarrierError, Sleeper, rest};

/// Never longer than this, so that nothing is overlooked for good.
const LONGEST: Duration = Duration::from_secs(1);

/// What a driver woke for, beside its carriers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Woken {
    /// Its interface has frames.
    pub(crate) frames: bool,
    /// Something that is rare.
    pub(crate) rare: bool,
}

/// Sleeps with the carriers, on the interface, and on other descriptors that are rarely ready. A carrier that does its work meanwhile is the one to sleep with.
pub(crate) fn sleep<'a>(
    carriers: impl Iterator<Item = &'a dyn Carrier>,
    interface: Option<BorrowedFd<'a>>,
    rare: impl Iterator<Item = BorrowedFd<'a>>,
    until: Option<Instant>,
) -> Result<Woken, CarrierError> {
    let mut with: Option<&dyn Carrier> = None;
    let mut on: Vec<Sleeper<'a>> = Vec::with_capacity(8);
    for carrier in carriers {
        let beside = match with {
            Some(first) if first.works_asleep() || !carrier.works_asleep() => Some(carrier),
            before => {
                with = Some(carrier);
                before
            }
        };
        if let Some(carrier) = beside {
            carrier.sleepers(&mut on);
        }
    }
    let read = |fd| Sleeper { fd, write: false };
    let first = on.len();
    on.extend(interface.map(read));
    let first_rare = on.len();
    on.extend(rare.map(read));
    let beside = on.iter().map(|sleeper| Beside {
        fd: sleeper.fd,
        write: sleeper.write,
        ready: false,
    });
    let mut beside: Vec<Beside<'_>> = beside.collect();
    let wait = until.map_or(LONGEST, |at| at.saturating_duration_since(Instant::now()));
    let wait = wait.min(LONGEST);
    match with {
        Some(carrier) => carrier.sleep(&mut beside, Some(wait))?,
        None => rest::poll(&[], &mut beside, Some(wait)).map_err(|error| CarrierError::System {
            call: "poll",
            error,
        })?,
    }
    let any = |of: core::ops::Range<usize>| {
        let of = beside.get(of).unwrap_or_default();
        of.iter().any(|one| one.ready)
    };
    Ok(Woken {
        frames: any(first..first_rare),
        rare: any(first_rare..beside.len()),
    })
}
