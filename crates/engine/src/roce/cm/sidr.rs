//! Service ID resolution by the connection manager: SIDR_REQ asks for the datagram queue pair of a port, SIDR_REP names it and its Q_Key.
//! A request is repeated until it is answered, and `done` is called once with the result, or not at all if [`RoceSidrQuery`] is dropped before.
//! Answers of another address, transaction or request have no effect.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::HashMap;
use std::sync::Arc;

use verbena_roce::cm::Mad;
use verbena_stream::Time;
use verbena_sync::locks::Mutex;
use verbena_wire::roce::cm::{CmMessage, CmaHeader, SidrRep, SidrReq};
use verbena_wire::roce::{DEFAULT_PKEY, Qpn};

use super::connect::{FIRST_DYNAMIC_PORT, local_address};
use super::failures::rejected_service;
use super::{RoceCm, ServiceGuard};
use crate::core::Core;
use crate::error::Error;
use crate::guard::catch_panic;
use crate::sys;

/// Bytes of private data for the program in a request.
pub(crate) const MAX_REQUEST_DATA: usize = SidrReq::PRIVATE_LEN - CmaHeader::LEN;
/// Bytes of private data in an answer.
pub(crate) const MAX_ANSWER_DATA: usize = SidrRep::PRIVATE_LEN;
/// Time for an answer to the first request; each repetition has twice the time of the one before, up to [`MAX_INTERVAL`].
const FIRST_INTERVAL: Duration = Duration::from_millis(50);
const MAX_INTERVAL: Duration = Duration::from_secs(1);
/// How long the answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The status of a SIDR_REP.
const VALID: u8 = 0;
const UNSUPPORTED: u8 = 1;
const REJECTED: u8 = 2;

/// The queue pair of a service, as a SIDR_REP says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResolvedService {
    pub(crate) qpn: Qpn,
    pub(crate) qkey: u32,
    pub(crate) address: IpAddr,
    pub(crate) private_data: Vec<u8>,
}

/// Called with the result.
type Done = Box<dyn FnOnce(Result<ResolvedService, Error>) + Send>;

/// What identifies a request, and where it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SidrOrigin {
    local: IpAddr,
    transaction: u64,
    request_id: u32,
    service: u64,
}

/// A request of a peer.
pub(crate) struct SidrArrival {
    pub(crate) origin: SidrOrigin,
    pub(crate) peer: SocketAddr,
    pub(crate) private_data: Vec<u8>,
}

/// A listener for such requests.
pub(crate) trait SidrService: Send + Sync {
    /// A request, possibly a repeated one; called on a shard without any lock.
    fn handle_request(self: Arc<Self>, request: SidrArrival);
}

/// The answer to a request: the queue pair and its Q_Key, or none if it is rejected.
pub(crate) fn answer(
    origin: &SidrOrigin,
    queue_pair: Option<(Qpn, u32)>,
    private: &[u8],
) -> Box<Mad> {
    let (qpn, qkey) = queue_pair.unwrap_or((Qpn::wrapping(0), 0));
    let rep = SidrRep {
        request_id: origin.request_id,
        status: if queue_pair.is_some() {
            VALID
        } else {
            REJECTED
        },
        qpn,
        service: origin.service,
        qkey,
        private,
    };
    Box::new(CmMessage::SidrRep(rep).emit(origin.transaction))
}

/// Requests of this side, by number.
#[derive(Default)]
pub(super) struct Queries(Mutex<HashMap<u32, Query>>);

struct Query {
    local: IpAddr,
    to: SocketAddr,
    transaction: u64,
    mad: Box<Mad>,
    begun: Time,
    due: Time,
    interval: Duration,
    done: Done,
}

/// A request in progress; dropping it cancels it without a call of `done`.
pub(crate) struct RoceSidrQuery {
    cm: Arc<RoceCm>,
    request_id: u32,
    local: SocketAddr,
}

impl RoceSidrQuery {
    /// The local address of the request, with the port that it names.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The request has ended, or `done` is about to be called.
    pub(crate) fn is_finished(&self) -> bool {
        !self.cm.queries.0.lock().contains_key(&self.request_id)
    }
}

impl Drop for RoceSidrQuery {
    fn drop(&mut self) {
        if self.cm.core.upgrade().is_some_and(|core| core.is_alive()) {
            let query = self.cm.queries.0.lock().remove(&self.request_id);
            // Without the lock: it owns the program's code.
            drop(query);
        }
    }
}

impl RoceCm {
    /// Asks for the queue pair of a port; `done` is called with the result on the shard of the connection manager, unless this fails at once.
    pub(crate) fn query_sidr(
        core: &Arc<Core>,
        from: Option<IpAddr>,
        to: SocketAddr,
        private_data: &[u8],
        done: impl FnOnce(Result<ResolvedService, Error>) + Send + 'static,
    ) -> Result<RoceSidrQuery, Error> {
        let (got, limit) = (private_data.len(), MAX_REQUEST_DATA);
        if got > limit {
            return Err(Error::PrivateData { got, limit });
        }
        core.security.check_roce_encryption()?;
        let local = local_address(core, from, to)?;
        core.roce_ports.at(core, local)?;
        let cm = RoceCm::of(core)?;
        let transaction = sys::random_u64()?;
        let port = FIRST_DYNAMIC_PORT | transaction as u16;
        let header = CmaHeader {
            port,
            src: local,
            dst: to.ip(),
        };
        let mut private = header.emit().to_vec();
        private.extend_from_slice(private_data);
        let mut queries = cm.queries.0.lock();
        let request_id = cm.new_id(core, |id| queries.contains_key(&id))?;
        let req = SidrReq {
            request_id,
            pkey: DEFAULT_PKEY,
            service: CmaHeader::service_id(CmaHeader::PS_UDP, to.port()),
            private: &private,
        };
        let mad = Box::new(CmMessage::SidrReq(req).emit(transaction));
        let now = sys::now();
        let due = now + FIRST_INTERVAL;
        let query = Query {
            local,
            to,
            transaction,
            mad: mad.clone(),
            begun: now,
            due,
            interval: FIRST_INTERVAL,
            done: Box::new(done),
        };
        queries.insert(request_id, query);
        drop(queries);
        cm.send(core, local, to.ip(), &mad);
        cm.shard.set_timer(due, cm.token);
        Ok(RoceSidrQuery {
            cm,
            request_id,
            local: SocketAddr::new(local, port),
        })
    }

    /// Has a listener receive requests over RoCEv2 as well, as the setting `wire` says; see [`RoceCm::prepare_listener`].
    pub(crate) fn listen_sidr(
        core: &Arc<Core>,
        listener: &Arc<dyn SidrService>,
        at: SocketAddr,
    ) -> Result<Option<ServiceGuard>, Error> {
        let service = CmaHeader::service_id(CmaHeader::PS_UDP, at.port());
        let guard = RoceCm::open_service(core, at, service)?;
        if let Some(guard) = &guard {
            guard.listen_sidr(at, listener);
        }
        Ok(guard)
    }

    /// Sends an answer, or repeats it.
    pub(crate) fn send_sidr_answer(core: &Arc<Core>, origin: &SidrOrigin, to: IpAddr, mad: &Mad) {
        if let Some(cm) = core.roce_cm.get() {
            cm.send(core, origin.local, to, mad);
        }
    }

    pub(super) fn handle_sidr_req(
        &self,
        core: &Arc<Core>,
        (from, local): (IpAddr, IpAddr),
        transaction: u64,
        req: &SidrReq<'_>,
    ) {
        let port = CmaHeader::port_of(CmaHeader::PS_UDP, req.service);
        let listener = port.and_then(|port| self.sidr_listeners.find(local, port));
        let listener = listener.and_then(|listener| listener.upgrade());
        let header = CmaHeader::parse(req.private).ok();
        let (Some(listener), Some(header)) = (listener, header) else {
            if self.has_just_ended(local, req.service) {
                return;
            }
            let rep = SidrRep {
                request_id: req.request_id,
                status: UNSUPPORTED,
                qpn: Qpn::wrapping(0),
                service: req.service,
                qkey: 0,
                private: &[],
            };
            self.send(
                core,
                local,
                from,
                &CmMessage::SidrRep(rep).emit(transaction),
            );
            return;
        };
        let request = SidrArrival {
            origin: SidrOrigin {
                local,
                transaction,
                request_id: req.request_id,
                service: req.service,
            },
            peer: SocketAddr::new(from, header.port),
            private_data: req
                .private
                .get(CmaHeader::LEN..)
                .unwrap_or_default()
                .to_vec(),
        };
        self.with_table(core, |table| {
            table.push_run(move || listener.handle_request(request));
        });
    }

    pub(super) fn handle_sidr_rep(
        &self,
        core: &Arc<Core>,
        from: IpAddr,
        transaction: u64,
        rep: &SidrRep<'_>,
    ) {
        let query = {
            let mut queries = self.queries.0.lock();
            let is_answered =
                |query: &Query| query.transaction == transaction && query.to.ip() == from;
            match queries.get(&rep.request_id).is_some_and(is_answered) {
                true => queries.remove(&rep.request_id),
                false => None,
            }
        };
        let Some(Query { to, done, .. }) = query else {
            return;
        };
        let private_data = rep.private.to_vec();
        let result = match rep.status {
            VALID => Ok(ResolvedService {
                qpn: rep.qpn,
                qkey: rep.qkey,
                address: from,
                private_data,
            }),
            UNSUPPORTED => Err(rejected_service(to)),
            _ => Err(Error::Rejected {
                peer: to,
                private_data,
            }),
        };
        self.with_table(core, |table| table.push_call(move || done(result)));
    }

    /// Repeats the requests that are due, and gives up those that are too old.
    pub(super) fn expire_queries(&self, core: &Arc<Core>, now: Time) {
        let (mut repeated, mut next, mut given_up) = (Vec::new(), None::<Time>, Vec::new());
        {
            let mut queries = self.queries.0.lock();
            let old = |query: &Query| now >= query.begun + ANSWER_TIMEOUT;
            let ids: Vec<u32> = queries
                .iter()
                .filter_map(|(id, query)| old(query).then_some(*id))
                .collect();
            given_up.extend(ids.iter().filter_map(|id| queries.remove(id)));
            for query in queries.values_mut() {
                if query.due <= now {
                    query.interval = (query.interval * 2).min(MAX_INTERVAL);
                    query.due = (now + query.interval).min(query.begun + ANSWER_TIMEOUT);
                    repeated.push((query.local, query.to.ip(), query.mad.clone()));
                }
                next = Some(next.map_or(query.due, |next| next.min(query.due)));
            }
        }
        for (local, peer, mad) in repeated {
            self.send(core, local, peer, &mad);
        }
        if let Some(next) = next {
            self.shard.set_timer(next, self.token);
        }
        for Query {
            to, begun, done, ..
        } in given_up
        {
            let limit = now.since(begun);
            catch_panic(|| done(Err(Error::Timeout { peer: to, limit })));
        }
    }

    /// The engine stops: requests end with its error.
    pub(super) fn stop_queries(&self, core: &Core) {
        let queries = core::mem::take(&mut *self.queries.0.lock());
        for Query { done, .. } in queries.into_values() {
            catch_panic(|| done(Err(core.lifecycle.closed_error())));
        }
    }
}
