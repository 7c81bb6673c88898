//! Frames of a LAN that is a TAP, read straight to where they leave from: most go to whom the last one went.
//! It promises that a frame which was meant for others, or for several, is copied and goes where the switch says.
//! It refuses to guess for a host that has no room: such frames take the ordinary way.

use std::time::Instant;

use verbena_lan::{LONGEST, Took, VNET, Vnet};

use super::frames::BATCH;
use super::guest::Standing;
use super::{GuestId, LanPort, Unit, UnitError};

/// Both addresses and the type.
const ETHERNET: usize = 14;

/// What became of a frame.
enum Fate {
    /// It went to whom it was believed to be for.
    Guessed,
    /// It was copied, and the ports it goes to are noted.
    Copied(Vnet),
    /// It is lost, or the TAP had none.
    Took(Took),
}

impl Unit {
    /// Frames of a TAP go to the host that got the last one, as long as they are for it; true if there were any.
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

    /// Reads a frame to where it leaves from if it is for this host; nothing if that cannot be tried.
    fn guess(&mut self, id: GuestId) -> Result<Option<Fate>, UnitError> {
        let (LanPort::Tap(tap), Some(guest)) = (&self.lan, self.guests.get_mut(&id)) else {
            return Ok(None);
        };
        let (Some(queue), Some(port)) = (tap.queue(), guest.port) else {
            return Ok(None);
        };
        let most = guest.link.options().size as usize - VNET;
        // The TAP hands over super-frames whatever hosts take: where they do not fit they are to be cut, not lost.
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
            // Refused only for a port that is gone; then it goes to nobody.
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
