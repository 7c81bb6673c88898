//! An interface of a driver's own, claimed before it is touched.
//! It promises that the TAP of another driver is left alone: whoever has it says so at its desk.
//! It refuses to drive it.

use std::io;

use verbena_lan::Tap;

use crate::lane::Lane;
use crate::status::Desk;

/// Creates a TAP with this name or pattern for a driver of this kind (`host`, `unit`), and a desk for each of its queues, in their order.
pub(crate) fn claim<E>(kind: &str, name: &str, queues: u8) -> Result<(Tap, Vec<Desk>), E>
where
    E: From<verbena_lan::Error> + From<io::Error>,
{
    Tap::check_name(name)?;
    let desks = |name: &str| -> io::Result<Vec<Desk>> {
        let each = Lane::all(queues).map(|lane| Desk::open(&lane.desk(kind, name)));
        each.collect()
    };
    // The kernel would let us have queues of an interface for several that another driver has, and with them frames. The next free
    // one of a pattern is nobody else's, and its name is not known yet.
    let early = match name.contains('%') {
        true => None,
        false => Some(desks(name)?),
    };
    let tap = Tap::create(name, usize::from(queues))?;
    let desks = match early {
        Some(desks) => desks,
        None => desks(&tap.interface().name()?)?,
    };
    Ok((tap, desks))
}
