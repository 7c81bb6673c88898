//! The wait of a driver: until a descriptor is ready or a deadline has passed. It returns at the deadline or after [`LONGEST`] at the
//! latest, and reports which kind of descriptor is ready.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use crate::carrier::{Beside, Carrier, CarrierError, Sleeper, rest};

/// Upper limit of one wait, so that a missed wakeup only delays.
const LONGEST: Duration = Duration::from_secs(1);

/// What woke a driver, besides its carriers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Woken {
    /// Its interface has frames.
    pub(crate) frames: bool,
    /// One of the rarely ready descriptors is.
    pub(crate) rare: bool,
}

/// Waits for the carriers, the interface, and other descriptors that are rarely ready. The wait itself is a carrier's `sleep`, preferably
/// that of a carrier that progresses while it sleeps; the others are waited for by their descriptors.
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
