//! The attributes, state and connection of a queue pair in one answer (N1).
//! The queue pair's part is a consistent snapshot; handlers and addresses are read a moment later.

use core::net::SocketAddr;
use core::time::Duration;

use verbena_nic::qp::{Limits, Psns};
use verbena_nic::{Qp, QpInfo, UdQp, UlpInfo};
use verbena_roce::Mtu;
use verbena_wire::number::Qpn;

use super::link::{Link, LinkNumbers};
use super::{QpAttr, QueuePair};
use crate::core::Core;
use crate::error::Error;
use crate::notify::handler::HandlerId;
use crate::roce::connection::RoceConnection;
use crate::stream_path::StreamPath;
use crate::sys;

/// A queue pair with its handlers and addresses.
#[derive(Debug, Clone)]
pub struct QueuePairInfo {
    /// The queue pair itself: domain, access, queues, state, outstanding work, first error.
    pub qp: QpInfo,
    /// Its number in completions, which its program knows it by.
    pub wc_qpn: u32,
    /// The handler of the queue that its sends complete in, if that has one.
    pub send_handler: Option<HandlerId>,
    /// The handler of the queue that its receives complete in, if that has one.
    pub recv_handler: Option<HandlerId>,
    /// Its attributes towards the peer: timeouts, retries, read depths. While it is connected over RoCEv2, path MTU, timeout and number of
    /// repetitions and initial PSNs are those of the connection, which the connection manager may have chosen.
    pub attr: QpAttr,
    /// Our address and port, while it is connected.
    pub local_addr: Option<SocketAddr>,
    /// The peer's address and port, while it is connected.
    pub peer_addr: Option<SocketAddr>,
    /// What carries its messages, while it is connected.
    pub path: Option<StreamPath>,
    /// Its number in packets, while it is connected over RoCEv2.
    pub qpn: Option<Qpn>,
    /// The number of the peer's queue pair, while it is connected over RoCEv2.
    pub peer_qpn: Option<Qpn>,
}

impl Core {
    /// Its completion queues, shared receive queues and queue pairs of all kinds, one per line, for `verbena devinfo PID` (N1). Objects
    /// that are destroyed meanwhile are left out.
    pub(crate) fn describe(&self) -> String {
        let (function, config) = (&self.function, &self.config);
        let refused = self.same_host.rejections();
        let (drops, packets) = (
            self.routes.ud_demux.drops(),
            self.roce_ports.handover.counters(),
        );
        // Destroyed queue pairs included.
        let counted = function.counters();
        let (sums, datagrams) = (counted.connections, counted.datagrams);
        let failure = self
            .lifecycle
            .failure()
            .map(|why| one_word(&why.to_string()));
        let mut text = format!(
            "adapter name={} function={} failure={} personality={:?} rings_wrong_secret={} rings_too_many={} rings_invalid={} \
             dropped_malformed={} dropped_oversized={} dropped_checksum={} dropped_partition={} dropped_no_receiver={} \
             dropped_wrong_source={} packets_handed_over={} packets_taken_over={} packets_not_handed_over={} \
             bytes_in={} bytes_out={} messages_in={} messages_out={} rnr_sent={} rnr_received={} destroyed={}\n",
            config.name,
            function.number(),
            or_none(failure),
            config.personality,
            refused.wrong_secret,
            refused.too_many,
            refused.invalid,
            drops.malformed,
            drops.oversized,
            drops.checksum,
            drops.partition,
            drops.no_receiver,
            drops.wrong_source,
            packets.sent,
            packets.received,
            packets.lost,
            sums.bytes_in + datagrams.bytes_in,
            sums.bytes_out + datagrams.bytes_out,
            sums.messages_in + datagrams.received,
            sums.messages_out + datagrams.sent,
            sums.rnr_sent,
            sums.rnr_received,
            counted.destroyed,
        );
        let faults = self.faults.counts();
        if !faults.rules.is_empty() {
            let fired: u64 = faults.rules.iter().map(|one| one.fired).sum();
            let rules = faults.rules.len();
            text.push_str(&format!(
                "faults rules={rules} fired={fired} seed={}\n",
                faults.seed
            ));
        }
        for number in function.cq_numbers() {
            let Ok(cq) = function.query_cq(number) else {
                continue;
            };
            let handler = self.notification.cq_notifications.handler(number);
            text += &format!(
                "cq number={number} entries={} waiting={} overflowed={} users={} handler={}\n",
                cq.entries,
                cq.waiting,
                cq.overflowed,
                cq.users,
                or_none(handler.map(|handler| handler.0)),
            );
        }
        for number in function.srq_numbers() {
            let Ok(srq) = function.query_srq(number) else {
                continue;
            };
            text += &format!(
                "srq number={number} pd={} receives={} max_sge={} waiting={} limit={} users={}\n",
                srq.pd.0, srq.receives, srq.max_sge, srq.waiting, srq.limit, srq.users,
            );
        }
        let infos = function.all_qps().into_iter();
        for (number, (info, link)) in infos.filter_map(|qp| Some((qp.number(), self.query(&qp)?))) {
            let numbers = link.map(|link| LinkNumbers::of(&link, sys::now()));
            text += &info.line(number, numbers.as_ref());
            text += &info.recorded_failure(self, number).unwrap_or_default();
            text += &info.wait_line(number, numbers.as_ref()).unwrap_or_default();
        }
        for qp in function.all_uds() {
            text += &self.ud_line(&qp);
        }
        for info in function.query_ulps() {
            text += &self.ulp_line(&info);
        }
        text
    }

    /// A datagram queue pair as one line of text.
    fn ud_line(&self, qp: &UdQp) -> String {
        let (init, view) = (qp.init(), qp.view());
        let (counters, qpn) = (&view.counters, init.qpn.get());
        let mut fields = vec![
            ("state", format!("{:?}", view.state)),
            ("rdmac_state", format!("{:?}", view.state.rdmac())),
            ("pd", init.pd.0.to_string()),
            ("type", "Ud".to_owned()),
            // Peers send to this number, and it has the UDP port.
            ("qpn", qpn.to_string()),
            ("port", (qpn >> 8).to_string()),
        ];
        let queues = (init.send_cq.number(), init.recv_cq.number());
        let srq = init.srq.as_ref().map(|srq| srq.number());
        fields.extend(self.queue_fields(queues, srq, &init.limits));
        fields.extend([
            ("sends", view.sends.to_string()),
            ("receives", view.receives.to_string()),
            ("qkey", view.qkey.to_string()),
            ("bytes_in", counters.bytes_in.to_string()),
            ("bytes_out", counters.bytes_out.to_string()),
            ("messages_in", counters.received.to_string()),
            ("messages_out", counters.sent.to_string()),
            ("lost", counters.lost.to_string()),
            ("not_receiving", counters.not_receiving.to_string()),
            ("wrong_key", counters.wrong_key.to_string()),
            ("no_receive", counters.no_receive.to_string()),
            ("too_long", counters.too_long.to_string()),
            ("pending", counters.pending.to_string()),
        ]);
        qp_line(init.number, &fields, view.cause.as_ref())
    }

    /// A queue pair of an upper-layer protocol as one line of text.
    fn ulp_line(&self, info: &UlpInfo) -> String {
        let (init, view) = (&info.init_attr, &info.view);
        let stream = self.routes.ulps.get(info.number);
        let (local, peer) = stream.map_or((None, None), |stream| stream.addresses());
        let mut fields = vec![
            ("state", format!("{:?}", info.state)),
            ("rdmac_state", format!("{:?}", info.state.rdmac())),
            ("pd", init.pd.0.to_string()),
            ("type", "Ulp".to_owned()),
            ("protocol", view.protocol.to_owned()),
            ("service", init.service.to_string()),
        ];
        fields.extend(self.queue_fields((init.send_cq, init.recv_cq), init.srq, &init.limits));
        fields.extend([
            ("sends", or_none(view.sends)),
            ("receives", or_none(view.receives)),
            ("local", or_none(local)),
            ("peer", or_none(peer)),
        ]);
        qp_line(info.number, &fields, view.cause.as_ref())
    }

    /// The queues of a queue pair, their handlers, and its limits.
    fn queue_fields(
        &self,
        (send_cq, recv_cq): (u32, u32),
        srq: Option<u32>,
        limits: &Limits,
    ) -> [(&'static str, String); 9] {
        let handler = |cq| {
            or_none(
                self.notification
                    .cq_notifications
                    .handler(cq)
                    .map(|id| id.0),
            )
        };
        [
            ("send_cq", send_cq.to_string()),
            ("recv_cq", recv_cq.to_string()),
            ("srq", or_none(srq)),
            ("send_handler", handler(send_cq)),
            ("recv_handler", handler(recv_cq)),
            ("max_sends", limits.sends.to_string()),
            ("max_receives", limits.receives.to_string()),
            ("max_sge", limits.max_sge.to_string()),
            ("max_inline", limits.inline.to_string()),
        ]
    }

    /// `None` if it is destroyed meanwhile.
    pub(super) fn query(&self, qp: &Qp) -> Option<(QueuePairInfo, Option<Link>)> {
        let info = self.function.query_qp(qp.number()).ok()?;
        let attr = self.routes.attr_of(qp.number())?;
        let link = Link::new(
            self.routes.connection_of(qp.number()),
            self.routes.roce_of(qp.number()),
        );
        let wc_qpn = qp.init().wc_qpn;
        Some((
            QueuePairInfo::new(self, wc_qpn, info, attr, link.as_ref()),
            link,
        ))
    }
}

/// A queue pair as one line of text. The cause is the last value, since it is a sentence; a line is a line whatever it contains.
fn qp_line(number: u32, fields: &[(&str, String)], cause: Option<impl ToString>) -> String {
    let mut line = format!("qp number={number}");
    for (key, value) in fields {
        line += &format!(" {key}={value}");
    }
    line + &format!(" cause={}\n", or_none(cause).replace('\n', " "))
}

/// A sentence as one value.
fn one_word(sentence: &str) -> String {
    sentence.replace(|c: char| c.is_whitespace() || c == '=', "-")
}

/// A value, or the word `none`.
fn or_none(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}

impl QueuePairInfo {
    fn new(core: &Core, wc_qpn: u32, qp: QpInfo, attr: QpAttr, link: Option<&Link>) -> Self {
        let handler = |cq| core.notification.cq_notifications.handler(cq);
        let mut info = QueuePairInfo {
            wc_qpn,
            send_handler: handler(qp.init_attr.send_cq),
            recv_handler: handler(qp.init_attr.recv_cq),
            attr,
            local_addr: None,
            peer_addr: None,
            path: None,
            qpn: None,
            peer_qpn: None,
            qp,
        };
        match link {
            None => {}
            Some(Link::Stream(connection)) => {
                info.local_addr = connection.transport().socket().local_addr().ok();
                info.peer_addr = Some(connection.peer());
                info.path = Some(connection.path());
            }
            Some(Link::Roce(connection)) => info.add_roce(connection),
        }
        info
    }

    fn add_roce(&mut self, connection: &RoceConnection) {
        self.local_addr = Some(connection.local_addr());
        self.peer_addr = Some(connection.peer());
        self.path = Some(StreamPath::Roce);
        self.qpn = Some(connection.qpn());
        let Some(settings) = connection.settings() else {
            return;
        };
        self.peer_qpn = Some(settings.dest_qpn);
        self.attr.path_mtu = Some(settings.mtu);
        self.attr.ack_timeout = settings.timeout;
        self.attr.retry_count = Some(settings.retry_count);
        self.attr.psns = Some(Psns {
            send: settings.send_psn,
            receive: settings.receive_psn,
        });
    }

    /// As one line of text.
    fn line(&self, number: u32, numbers: Option<&LinkNumbers>) -> String {
        let (init, view, attr) = (&self.qp.init_attr, &self.qp.view, &self.attr);
        let (limits, counters) = (&init.limits, &view.counters);
        let seconds = |time: Duration| format!("{}s", time.as_secs_f64());
        let mut fields = vec![
            ("state", format!("{:?}", view.state)),
            ("rdmac_state", format!("{:?}", self.qp.rdmac)),
            ("wc_qpn", self.wc_qpn.to_string()),
            ("pd", init.pd.0.to_string()),
            ("type", format!("{:?}", init.qp_type)),
            ("personality", format!("{:?}", init.personality)),
            ("send_cq", init.send_cq.to_string()),
            ("recv_cq", init.recv_cq.to_string()),
            ("srq", or_none(init.srq)),
            ("send_handler", or_none(self.send_handler.map(|id| id.0))),
            ("recv_handler", or_none(self.recv_handler.map(|id| id.0))),
            ("max_sends", limits.sends.to_string()),
            ("max_receives", limits.receives.to_string()),
            ("max_sge", limits.max_sge.to_string()),
            ("max_inline", limits.inline.to_string()),
            ("sends", view.sends.to_string()),
            ("receives", view.receives.to_string()),
            ("remote_write", view.enabled.write.to_string()),
            ("remote_read", view.enabled.read.to_string()),
            ("remote_atomic", view.enabled.atomic.to_string()),
            ("remote_flush", view.enabled.flush.to_string()),
            ("local", or_none(self.local_addr)),
            ("peer", or_none(self.peer_addr)),
            ("path", or_none(self.path.as_ref().map(StreamPath::name))),
            (
                "peer_pid",
                or_none(self.path.as_ref().and_then(StreamPath::peer_process)),
            ),
            (
                "no_shared_memory",
                or_none(self.path.as_ref().and_then(StreamPath::reason)),
            ),
            ("qpn", or_none(self.qpn.map(Qpn::get))),
            ("peer_qpn", or_none(self.peer_qpn.map(Qpn::get))),
            ("traffic_class", or_none(attr.traffic_class)),
            ("path_mtu", or_none(attr.path_mtu.map(Mtu::bytes))),
            ("ack_timeout", or_none(attr.ack_timeout.map(seconds))),
            ("retry_count", or_none(attr.retry_count)),
            ("send_psn", or_none(attr.psns.map(|psns| psns.send.get()))),
            (
                "receive_psn",
                or_none(attr.psns.map(|psns| psns.receive.get())),
            ),
            ("grace", seconds(attr.grace)),
            ("peer_timeout", or_none(attr.peer_timeout.map(seconds))),
            ("rnr_retry", format!("{:?}", attr.rnr_retry)),
            ("rnr_timer", attr.rnr_timer.code().to_string()),
            ("ird", or_none(attr.ird)),
            ("ord", or_none(attr.ord)),
            ("bytes_in", counters.bytes_in.to_string()),
            ("bytes_out", counters.bytes_out.to_string()),
            ("bytes_direct", counters.bytes_direct.to_string()),
            ("messages_in", counters.messages_in.to_string()),
            ("messages_out", counters.messages_out.to_string()),
            ("rnr_sent", counters.rnr_sent.to_string()),
            ("rnr_received", counters.rnr_received.to_string()),
            ("begun", view.waits.begun.to_string()),
            ("repeated", view.waits.repeated.0.to_string()),
        ];
        fields.extend(numbers.iter().flat_map(|numbers| numbers.fields()));
        qp_line(number, &fields, view.cause.as_ref())
    }
}

impl QueuePair {
    /// Queries the queue pair.
    pub fn query(&self) -> Result<QueuePairInfo, Error> {
        self.core.check()?;
        let qp = self.core.function.query_qp(self.number())?;
        let attr = *self.attr.lock();
        let link = Link::new(self.slot.get(), self.slot.roce());
        let wc_qpn = self.qp.init().wc_qpn;
        Ok(QueuePairInfo::new(
            &self.core,
            wc_qpn,
            qp,
            attr,
            link.as_ref(),
        ))
    }
}
