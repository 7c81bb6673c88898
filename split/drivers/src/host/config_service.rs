//! The configuration service (P8) of a host: its requests to the unit, and its answers. The unit knows the interface's address and MTU
//! before frames pass, and is told every change. Every request of the unit is answered, with an error status if it does not apply.

use std::time::Instant;

use verbena_lan::Offloads;
use verbena_split_wire::push::{Operation, Status};

use super::{
    Host, LEAVE_TIMEOUT, MacChoice, Phase, PhaseEvent, REDIAL_MIN, ReportedState, packet_mtu,
};
use crate::link::{Link, LinkEvent};
use crate::service::{ConfigRequest, Counts, Terms, flag, mac};

impl Host {
    /// Called when all channels are connected.
    pub(super) fn begin(&mut self, now: Instant) {
        self.phase = self.phase.after(PhaseEvent::Opened);
        self.last_probe = now;
        let takes = match self.offloads() {
            true => Offloads::ALL,
            false => Offloads::NONE,
        };
        let mtu = self.options.mtu;
        let mtu = mtu.or_else(|| self.interface().mtu().ok());
        self.request(ConfigRequest::Initialise(Terms {
            accepts: takes,
            mtu: mtu.unwrap_or(0),
        }));
    }

    pub(super) fn request(&mut self, ask: ConfigRequest) {
        let (operation, data) = ask.encode();
        let Some(link) = &mut self.link else {
            return;
        };
        match link.request(operation, &data) {
            Ok(context) => {
                self.pending_requests.insert(context, ask);
            }
            Err(misuse) => self.drop_connection(&misuse.to_string()),
        }
        self.with_link(|link, carrier| link.drive(carrier));
    }

    /// Handles answers and requests of the unit; true if there were any.
    pub(super) fn serve_events(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some(event) = self.link.as_mut().and_then(Link::next_event) {
            any = true;
            match event {
                LinkEvent::Request {
                    context,
                    operation,
                    data,
                } => self.answer(context, operation, &data),
                LinkEvent::Reply {
                    context,
                    status,
                    data,
                    ..
                } => {
                    if let Some(ask) = self.pending_requests.remove(&context) {
                        self.answered(&ask, status, &data, now);
                    }
                }
            }
        }
        any
    }

    fn answer(&mut self, context: u64, operation: Operation, data: &[u8]) {
        let status = match ConfigRequest::parse(operation, data) {
            Ok(ConfigRequest::SetLink(up)) => {
                self.set_link(up);
                Status::Ok
            }
            Ok(ConfigRequest::Shutdown) => Status::Ok,
            Ok(_) => Status::NotAllowed,
            Err(status) => status,
        };
        if let Some(link) = &mut self.link
            && let Err(misuse) = link.reply(context, status, &[])
        {
            self.drop_connection(&misuse.to_string());
        }
        self.with_link(|link, carrier| link.drive(carrier));
    }

    fn answered(&mut self, ask: &ConfigRequest, status: Status, data: &[u8], now: Instant) {
        if status != Status::Ok {
            let mut what = format!("the unit answers {status} to {}", ask.encode().0);
            if !data.is_empty() {
                let why = String::from_utf8_lossy(data);
                what = format!("{what}: {}", why.escape_default());
            }
            // Without these no frame can pass.
            return match ask {
                ConfigRequest::Initialise(_) | ConfigRequest::GetMac | ConfigRequest::SetMac(_) => {
                    self.drop_connection(&what);
                }
                _ => self.journal.note(&what),
            };
        }
        match ask {
            ConfigRequest::Initialise(_) => match Terms::parse(data) {
                Some(terms) => self.initialised(terms),
                None => self.drop_connection("the answer to initialise is invalid"),
            },
            ConfigRequest::GetMac => match mac(data).filter(|mac| mac.is_station()) {
                Some(mac) => {
                    match self.interface().set_mac(mac) {
                        // Kept for later connections: other stations know it, and a restarted unit would suggest another.
                        Ok(()) => self.options.mac = MacChoice::Own,
                        Err(error) => self.journal.note(&error.to_string()),
                    }
                    self.report_changes();
                    self.request(ConfigRequest::GetLink);
                }
                None => self.drop_connection("the answer to get-mac is invalid"),
            },
            ConfigRequest::GetLink => {
                if let Some(up) = flag(data) {
                    self.finish_setup(now);
                    self.set_link(up);
                }
            }
            ConfigRequest::Statistics => self.at_unit = Counts::parse(data),
            _ => {}
        }
    }

    /// The unit's offloads and MTU.
    fn initialised(&mut self, terms: Terms) {
        let wanted = match self.offloads() {
            true => terms.accepts,
            false => Offloads::NONE,
        };
        match self.shared_tap.tap().set_offloads(wanted) {
            Ok(granted) => self.granted = granted,
            Err(error) => self.journal.note(&error.to_string()),
        }
        // Frames longer than our elements would be dropped.
        let size = self.link.as_ref().map(|link| link.options().size);
        let size = size.unwrap_or_else(|| self.options.size());
        let most = terms.mtu.min(packet_mtu(size));
        let mtu = self.options.mtu.unwrap_or(most);
        if self.interface().mtu() != Ok(mtu)
            && let Err(error) = self.interface().set_mtu(mtu)
        {
            self.journal.note(&error.to_string());
        }
        if self.options.mac == MacChoice::Unit {
            self.request(ConfigRequest::GetMac);
        } else {
            self.report_changes();
            self.request(ConfigRequest::GetLink);
        }
    }

    fn finish_setup(&mut self, now: Instant) {
        if self.phase == Phase::Starting {
            self.phase = self.phase.after(PhaseEvent::Configured);
            self.connections += 1;
            self.redial = (now, REDIAL_MIN);
            self.why = None;
            self.journal.note(&format!("connected to {}", self.unit));
        }
    }

    fn set_link(&mut self, up: bool) {
        if up != self.lan_up {
            let what = if up { "up" } else { "down" };
            self.journal.note(&format!("the LAN's link is {what}"));
        }
        self.lan_up = up;
        self.set_carrier(up);
    }

    /// Tells the unit what has changed about the interface.
    pub(super) fn report_changes(&mut self) {
        if !matches!(self.phase, Phase::Starting | Phase::Up) {
            return;
        }
        let interface = self.interface();
        let is = ReportedState {
            mac: interface.mac().ok(),
            mtu: interface.mtu().ok(),
            promiscuous: interface.is_promiscuous().unwrap_or(false),
        };
        let was = core::mem::replace(&mut self.reported, is);
        if let Some(mac) = is.mac.filter(|_| is.mac != was.mac) {
            self.request(ConfigRequest::SetMac(mac));
        }
        if let Some(mtu) = is.mtu.filter(|_| is.mtu != was.mtu) {
            self.request(ConfigRequest::SetMtu(mtu));
        }
        if is.promiscuous != was.promiscuous {
            self.request(ConfigRequest::Promiscuous(is.promiscuous));
        }
    }

    /// Requests statistics, unless an answer is outstanding: the answer also shows that the unit is alive.
    pub(super) fn probe(&mut self, now: Instant) {
        self.last_probe = now;
        if self.pending_requests.is_empty() {
            self.request(ConfigRequest::Statistics);
        }
    }

    /// Disconnects: the unit is told, and pools are recalled; true when done or timed out.
    pub(super) fn leave(&mut self, now: Instant) -> bool {
        if self.phase != Phase::Leaving {
            let next = self.phase.after(PhaseEvent::StopRequested);
            if next != Phase::Leaving {
                self.drop_connection("stopped");
                return true;
            }
            self.phase = next;
            self.set_carrier(false);
            self.last_probe = now;
            self.request(ConfigRequest::Shutdown);
            let recalled = self.link.as_mut().map(Link::recall);
            if let Some(Err(misuse)) = recalled {
                self.journal.note(&misuse.to_string());
            }
            self.with_link(|link, carrier| link.drive(carrier));
        }
        let over = match &self.link {
            None => true,
            Some(link) => link.is_freed() && link.is_idle() && self.pending_requests.is_empty(),
        };
        let why = match (over, now > self.last_probe + LEAVE_TIMEOUT) {
            (true, _) => "disconnected in good order: all elements were returned",
            (false, true) => "disconnected without confirmation: the unit did not answer in time",
            (false, false) => return false,
        };
        self.drop_connection(why);
        true
    }
}
