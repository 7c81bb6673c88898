//! Connections of a unit: requests for channels, channels connected and ended. A request that is not a host's, one host too many and a
//! channel that is already connected are rejected with a reason, and other hosts are not affected. The host's Ethernet address and its
//! offloads follow later in the configuration service (see `config_service`).

use std::collections::BTreeMap;
use std::time::Instant;

use super::connected_host::ConnectedHost;
use super::{HostId, Unit};
use crate::carrier::{CarrierEvent, Source, Ticket};
use crate::hello::{Hello, channels};
use crate::host::packet_size;
use crate::lane::Lane;
use crate::link::{Link, LinkError, LinkOptions};

impl Unit {
    pub(super) fn handle_event(&mut self, at: usize, news: CarrierEvent, now: Instant) {
        let of = |pairs: &BTreeMap<_, _>, pair| pairs.get(&(at, pair)).copied();
        match news {
            CarrierEvent::Request {
                ticket,
                from,
                source,
                private_data: private,
                acknowledged,
            } => {
                let who = (from.as_str(), source);
                let asked = self.handle_request(at, ticket, who, (&private, acknowledged), now);
                if let Err(why) = asked
                    && let Some(carrier) = self.carriers.get_mut(at)
                {
                    carrier.reject(ticket, why.as_bytes());
                    self.rejected(&from, &why, now);
                }
            }
            CarrierEvent::Rejected { from, why } => self.rejected(&from, &why, now),
            CarrierEvent::Connected { pair, .. } => {
                if let Some(id) = of(&self.pairs, pair) {
                    self.with_host(id, |known, carrier| known.link.connected(carrier, pair));
                }
            }
            CarrierEvent::Refused { pair, why, .. } | CarrierEvent::Ended { pair, why } => {
                let outlives = |known: &ConnectedHost| known.link.outlives(pair);
                if let Some(id) = of(&self.pairs, pair)
                    && !self.hosts.get(&id).is_some_and(outlives)
                {
                    self.drop_host(id, &why);
                }
            }
        }
    }

    /// A request was rejected, by the unit or by a carrier.
    fn rejected(&mut self, from: &str, why: &str, now: Instant) {
        self.rejections.add();
        let sentence = format!("{from} was rejected: {why}");
        self.log_rejected(sentence, now);
    }

    /// A request for a channel: the first of a new host, or a further one of a known host.
    fn handle_request(
        &mut self,
        at: usize,
        ticket: Ticket,
        who: (&str, Option<Source>),
        (private, acknowledged): (&[u8], Option<bool>),
        now: Instant,
    ) -> Result<(), String> {
        let hello = Hello::parse(private).map_err(|error| error.to_string())?;
        self.check_lane(hello.lane)?;
        let kinds = hello.channel_kinds();
        if acknowledged.is_some_and(|acknowledged| acknowledged != kinds.acknowledged) {
            return Err("a channel of the wrong kind for the arrangement".to_owned());
        }
        self.options.kinds.admit(kinds)?;
        if self.leaving.is_some() {
            return Err("the unit is stopping".to_owned());
        }
        let known = self
            .hosts
            .iter()
            .find(|(_, known)| known.carrier == at && known.service == hello.service);
        let id = match known {
            Some((id, _)) => *id,
            None => self.admit(at, who, &hello, now)?,
        };
        let known = self
            .hosts
            .get_mut(&id)
            .ok_or("the host is no longer connected")?;
        if known.differs_from(&hello) || !known.claim(hello.channel) {
            return Err(format!("channel {} was requested already", hello.channel));
        }
        let pair = known.link.pair(hello.channel).ok_or("no such channel")?;
        let carrier = self.carriers.get_mut(at).ok_or("no such carrier")?;
        let welcome = self.options.welcome;
        let welcome = welcome.with_data_pair(known.link.datagram_pair());
        let accepted = carrier.accept(ticket, pair, &welcome);
        let accepted = accepted.map_err(LinkError::from);
        let bound = accepted.and_then(|()| match hello.data_pair {
            Some(number) => known.link.bind_datagrams(&mut **carrier, number),
            None => Ok(()),
        });
        bound.map_err(|error| {
            // It can never have all its channels, and must not keep a place that another host could use.
            let why = error.to_string();
            self.drop_host(id, &why);
            why
        })
    }

    /// Queues are connected to queues of the same number, and there are as many on both sides: otherwise frames of some flows would be lost.
    fn check_lane(&self, theirs: Lane) -> Result<(), String> {
        let ours = self.options.lane;
        match (ours.queue_count(), ours.queue()) {
            (of, _) if of != theirs.queue_count() => {
                let s = if of == 1 { "" } else { "s" };
                Err(format!(
                    "this unit has {of} queue{s}: start the host with --queues {of}"
                ))
            }
            (_, queue) if queue != theirs.queue() => Err(format!(
                "{theirs} was connected to {ours}: start the host with the port of the first queue"
            )),
            _ => Ok(()),
        }
    }

    /// Creates a host for the first request with a new service number.
    fn admit(
        &mut self,
        at: usize,
        (from, source): (&str, Option<Source>),
        hello: &Hello,
        now: Instant,
    ) -> Result<HostId, String> {
        let most = self.options.hosts_per_source;
        let here = self.hosts.values().filter(|known| known.source == source);
        if here.count() >= most {
            let source = source.map_or("an unknown address".to_owned(), |s| s.to_string());
            return Err(format!(
                "{most} hosts of {source} are connected already: see --hosts-per-source of the unit"
            ));
        }
        if self.hosts.len() >= self.options.hosts {
            return Err(format!(
                "{} hosts are connected already",
                self.options.hosts
            ));
        }
        let carrier = self.carriers.get_mut(at).ok_or("no such carrier")?;
        let (elements, size) = (self.options.elements, packet_size(self.options.offloads));
        let options = LinkOptions {
            kinds: hello.channel_kinds(),
            indication: self.options.indication,
            ..LinkOptions::new(hello.arrangement, elements, size)
        };
        let link = Link::new(&mut **carrier, options, now).map_err(|lost| lost.to_string())?;
        let id = self.next;
        self.next += 1;
        for channel in 0..channels(hello.arrangement) {
            if let Some(pair) = link.pair(channel) {
                self.pairs.insert((at, pair), id);
            }
        }
        self.hosts
            .insert(id, ConnectedHost::new((at, source), from, hello, link, now));
        Ok(id)
    }
}
