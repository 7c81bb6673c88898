//! The wait of a driver: until a descriptor is ready or a deadline has passed. It returns at the deadline or after [`MAX_SLEEP`] at the
//! latest, and reports which kind of descriptor is ready.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use crate::carrier::{Carrier, CarrierError, CarrierFd, WaitFd, poll_wait};

/// Upper limit of one wait, so that a missed wakeup only delays.
const MAX_SLEEP: Duration = Duration::from_secs(1);

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
    let mut on: Vec<CarrierFd<'a>> = Vec::with_capacity(8);
    for carrier in carriers {
        let beside = match with {
            Some(first) if first.progresses_in_sleep() || !carrier.progresses_in_sleep() => {
                Some(carrier)
            }
            before => {
                with = Some(carrier);
                before
            }
        };
        if let Some(carrier) = beside {
            carrier.wait_fds(&mut on);
        }
    }
    let read = |fd| CarrierFd { fd, write: false };
    let first = on.len();
    on.extend(interface.map(read));
    let first_rare = on.len();
    on.extend(rare.map(read));
    let beside = on.iter().map(|sleeper| WaitFd {
        fd: sleeper.fd,
        write: sleeper.write,
        ready: false,
    });
    let mut beside: Vec<WaitFd<'_>> = beside.collect();
    let wait = until.map_or(MAX_SLEEP, |at| at.saturating_duration_since(Instant::now()));
    let wait = wait.min(MAX_SLEEP);
    match with {
        Some(carrier) => carrier.sleep(&mut beside, Some(wait))?,
        None => {
            poll_wait::poll(&[], &mut beside, Some(wait)).map_err(|error| {
                CarrierError::System {
                    call: "poll",
                    error,
                }
            })?;
        }
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
