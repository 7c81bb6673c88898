//! Frames of a LAN that is a TAP, read directly into the send buffer of the host that was sent the last frame: most are for the same
//! host. A frame for other or several ports is copied and goes to the ports that the switch selects. If the host has no room, or its
//! packets are too short for super-frames, frames are read by the ordinary path (`frames`).

use std::time::Instant;

use verbena_lan::{LONGEST, Took, VNET, Vnet};

use super::frames::BATCH;
use super::guest::Standing;
use super::{GuestId, LanPort, Unit, UnitError};

/// Length of an Ethernet header: both addresses and the type.
const ETHERNET: usize = 14;

/// Result of reading one frame.
enum Fate {
    /// It was sent to the expected host.
    Guessed,
    /// It was copied to `rooms.packet`, and its ports are in `rooms.to`.
    Copied(Vnet),
    /// It was dropped, or the TAP had none.
    Took(Took),
}

impl Unit {
    /// Reads frames of a TAP for the host that was sent the last one; true if there were any.
    pub(super) fn take_tap(&mut self) -> Result<bool, UnitError> {
        let mut any = false;
        for _ in 0..BATCH {
            let Some(id) = self.favourite.filter(|_| !self.is_lan_dry) else {
                break;
            };
            let Some(fate) = self.guess(id)? else {
                break;
            };
            match fate {
                Fate::Guessed => self.lan_counts.came += 1,
                Fate::Copied(vnet) => {
                    self.lan_counts.came += 1;
                    self.spread(&vnet);
                }
                Fate::Took(Took::Nothing) => {
                    self.is_lan_dry = true;
                    break;
                }
                Fate::Took(_) => self.lan_counts.dropped += 1,
            }
            any = true;
        }
        Ok(any)
    }

    /// Reads a frame into the host's send buffer, and sends it if it is for this host only; `None` if the direct path cannot be used.
    fn guess(&mut self, id: GuestId) -> Result<Option<Fate>, UnitError> {
        let (LanPort::Tap(tap), Some(guest)) = (&self.lan, self.guests.get_mut(&id)) else {
            return Ok(None);
        };
        let (Some(queue), Some(port)) = (tap.queue(), guest.port) else {
            return Ok(None);
        };
        let most = guest.link.options().size as usize - VNET;
        // The TAP delivers super-frames whatever hosts accept: if they may not fit, the ordinary path segments them.
        if guest.standing != Standing::Up || !guest.is_idle() || most <= LONGEST {
            return Ok(None);
        }
        let (switch, rooms, lan_id) = (&mut self.switch, &mut self.rooms, self.lan_id);
        let age = Instant::now().saturating_duration_since(self.start);
        let takes = guest.takes;
        let mut fate = Ok(Fate::Guessed);
        let sent = guest.link.send_by(|memory, offset| {
            let took = queue.take_by(most, |fd, header| {
                memory.read_from(fd, header, offset + VNET, most)
            });
            let (vnet, len) = match took {
                Ok(Took::Frame(vnet, len)) => (vnet, len),
                other => {
                    fate = other.map(Fate::Took);
                    return None;
                }
            };
            let mut head = [0; ETHERNET];
            let short = len < ETHERNET || !memory.read(offset + VNET, &mut head);
            let head = if short { &[][..] } else { &head[..] };
            // Fails only for a port that was removed; then the frame goes to no port.
            if switch
                .forward_head(lan_id, head, len, age, &mut rooms.to)
                .is_err()
            {
                rooms.to.clear();
            }
            if rooms.to == [port] && takes.take(&vnet) {
                memory.write(offset, &vnet.emit());
                return Some(VNET + len);
            }
            rooms.packet.resize(VNET + len, 0);
            if let Some(frame) = rooms.packet.get_mut(VNET..) {
                memory.read(offset + VNET, frame);
            }
            fate = Ok(Fate::Copied(vnet));
            None
        });
        if sent.is_err() {
            guest.unfit += 1;
        }
        Ok(Some(fate?))
    }
}
