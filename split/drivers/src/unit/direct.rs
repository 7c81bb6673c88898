//! Frames of a LAN that is a TAP, read directly into the send buffer of the host that was sent the last frame: most are for the same
//! host. A frame for other or several ports is copied and goes to the ports that the switch selects. If the host has no room, or its
//! packets are too short for super-frames, frames are read by the ordinary path (`frames`).

use std::time::Instant;

use verbena_lan::{MAX_FRAME_LEN, ReadOutcome, VNET_HDR_LEN, Vnet};

use super::connected_host::HostState;
use super::frames::BATCH;
use super::{HostId, LanPort, Unit, UnitError};

/// Length of an Ethernet header: both addresses and the type.
const ETH_HLEN: usize = 14;

/// Result of reading one frame.
enum DirectOutcome {
    /// It was sent to the expected host.
    SentDirectly,
    /// It was copied to `rooms.packet`, and its ports are in `rooms.to`.
    Copied(Vnet),
    /// It was dropped, or the TAP had none.
    NotForwarded(ReadOutcome),
}

impl Unit {
    /// Reads frames of a TAP for the host that was sent the last one; true if there were any.
    pub(super) fn forward_from_tap(&mut self) -> Result<bool, UnitError> {
        let mut any = false;
        for _ in 0..BATCH {
            let Some(id) = self.last_destination.filter(|_| !self.is_lan_drained) else {
                break;
            };
            let Some(fate) = self.read_directly(id)? else {
                break;
            };
            match fate {
                DirectOutcome::SentDirectly => self.lan_counts.received += 1,
                DirectOutcome::Copied(vnet) => {
                    self.lan_counts.received += 1;
                    self.send_copied(&vnet);
                }
                DirectOutcome::NotForwarded(ReadOutcome::WouldBlock) => {
                    self.is_lan_drained = true;
                    break;
                }
                DirectOutcome::NotForwarded(_) => self.lan_counts.dropped += 1,
            }
            any = true;
        }
        Ok(any)
    }

    /// Reads a frame into the host's send buffer, and sends it if it is for this host only; `None` if the direct path cannot be used.
    fn read_directly(&mut self, id: HostId) -> Result<Option<DirectOutcome>, UnitError> {
        let (LanPort::Tap(tap), Some(host)) = (&self.lan, self.hosts.get_mut(&id)) else {
            return Ok(None);
        };
        let (Some(queue), Some(port)) = (tap.queue(), host.port) else {
            return Ok(None);
        };
        let most = host.link.options().size as usize - VNET_HDR_LEN;
        // The TAP delivers super-frames whatever hosts accept: if they may not fit, the ordinary path segments them.
        if host.state != HostState::Up || !host.is_idle() || most <= MAX_FRAME_LEN {
            return Ok(None);
        }
        let (switch, rooms, lan_id) = (&mut self.switch, &mut self.buffers, self.lan_id);
        let age = Instant::now().saturating_duration_since(self.start);
        let takes = host.accepts;
        let mut fate = Ok(DirectOutcome::SentDirectly);
        let sent = host.link.send_with(|memory, offset| {
            let took = queue.read_frame_with(most, |fd, header| {
                memory.read_from(fd, header, offset + VNET_HDR_LEN, most)
            });
            let (vnet, len) = match took {
                Ok(ReadOutcome::Frame(vnet, len)) => (vnet, len),
                other => {
                    fate = other.map(DirectOutcome::NotForwarded);
                    return None;
                }
            };
            let mut head = [0; ETH_HLEN];
            let short = len < ETH_HLEN || !memory.read(offset + VNET_HDR_LEN, &mut head);
            let head = if short { &[][..] } else { &head[..] };
            // Fails only for a port that was removed; then the frame goes to no port.
            if switch
                .forward_head(lan_id, head, len, age, &mut rooms.to)
                .is_err()
            {
                rooms.to.clear();
            }
            if rooms.to == [port] && takes.accepts(&vnet) {
                memory.write(offset, &vnet.emit());
                return Some(VNET_HDR_LEN + len);
            }
            rooms.packet.resize(VNET_HDR_LEN + len, 0);
            if let Some(frame) = rooms.packet.get_mut(VNET_HDR_LEN..) {
                memory.read(offset + VNET_HDR_LEN, frame);
            }
            fate = Ok(DirectOutcome::Copied(vnet));
            None
        });
        if sent.is_err() {
            host.unfit += 1;
        }
        Ok(Some(fate?))
    }
}
