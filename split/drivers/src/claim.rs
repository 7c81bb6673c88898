//! Creation of a driver's TAP. The status sockets of its queues are bound before the TAP is opened, which fails if another driver has
//! one of that name: its TAP is then not touched.

use std::io;

use verbena_lan::Tap;

use crate::lane::Lane;
use crate::status::StatusSocket;

/// Creates a TAP with this name or pattern for a driver of this kind (`host`, `unit`), and the status socket of each of its queues, in order.
pub(crate) fn claim<E>(kind: &str, name: &str, queues: u8) -> Result<(Tap, Vec<StatusSocket>), E>
where
    E: From<verbena_lan::Error> + From<io::Error>,
{
    Tap::check_name(name)?;
    let status_sockets = |name: &str| -> io::Result<Vec<StatusSocket>> {
        let each = Lane::all(queues).map(|lane| StatusSocket::open(&lane.socket_name(kind, name)));
        each.collect()
    };
    // The kernel would attach us to a multi-queue TAP that another driver has, and we would receive some of its frames. With a pattern the
    // kernel selects a free name, which is not known until then.
    let early = match name.contains('%') {
        true => None,
        false => Some(status_sockets(name)?),
    };
    let tap = Tap::create(name, usize::from(queues))?;
    let status_sockets = match early {
        Some(status_sockets) => status_sockets,
        None => status_sockets(&tap.interface().name()?)?,
    };
    Ok((tap, status_sockets))
}
