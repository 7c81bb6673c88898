//! Where a driver waits: until a descriptor is ready or a moment has come.
//! It promises to be back by that moment.
//! It refuses to do anything else.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use crate::carrier::{Beside, Carrier, CarrierError, Sleeper, rest};

/// Never longer than this, so that nothing is overlooked for good.
const LONGEST: Duration = Duration::from_secs(1);

/// Sleeps with the carriers and on these other descriptors. One that does its work meanwhile is the one to sleep with.
pub(crate) fn sleep<'a>(
    carriers: impl Iterator<Item = &'a dyn Carrier>,
    others: impl Iterator<Item = BorrowedFd<'a>>,
    until: Option<Instant>,
) -> Result<(), CarrierError> {
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
    on.extend(others.map(|fd| Sleeper { fd, write: false }));
    let beside = on.iter().map(|sleeper| Beside {
        fd: sleeper.fd,
        write: sleeper.write,
        ready: false,
    });
    let mut beside: Vec<Beside<'_>> = beside.collect();
    let wait = until.map_or(LONGEST, |at| at.saturating_duration_since(Instant::now()));
    let wait = wait.min(LONGEST);
    match with {
        Some(carrier) => carrier.sleep(&mut beside, Some(wait)),
        None => rest::poll(&on, &mut [], Some(wait)).map_err(|error| CarrierError::System {
            call: "poll",
            error,
        }),
    }
}
