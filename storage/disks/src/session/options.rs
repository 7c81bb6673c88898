//! Options of a session: name, limits and timeouts. With the defaults a target that does not answer is detected within seconds and given
//! up after half a minute. The login validates the values that it offers.

use std::sync::Arc;
use std::time::Duration;

use verbena::events::Handler;
use verbena_iscsi::login::{Chap, DigestPreference, IserOffer, Offer, Purpose};

use crate::address::{Address, Credentials, Digest, Transport};

/// What to do when a target redirects a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Redirects {
    /// The login fails.
    Forbidden,
    /// Follow; to another host without our CHAP credentials, and not at all with mutual CHAP.
    #[default]
    WithoutCredentials,
    /// Follow, with credentials.
    WithCredentials,
}

/// Options of a session.
#[derive(Debug, Clone)]
pub struct Options {
    /// InitiatorName.
    pub initiator: String,
    /// Most commands outstanding.
    pub depth: usize,
    /// Time limit for connecting, and for each step of the login.
    pub login: Duration,
    /// Time limit of a command. After it the target is asked to abort the command, within `silence`, and the command is repeated if that is
    /// safe. If it is not aborted, or still waits for the command window, the connection is closed.
    pub command: Duration,
    /// Silence of the target after which a NOP-Out is sent; the time limit of its answer is the same.
    pub silence: Duration,
    /// How long reconnecting is tried before all commands fail.
    pub reconnect: Duration,
    /// MaxBurstLength, and MaxRecvDataSegmentLength.
    pub burst: u32,
    /// How long to poll for completions of a few requests before sleeping. Polling saves the latency of a wake-up and occupies a processor.
    /// `None`: adaptive, 50 µs while answers come within that time, otherwise none.
    pub poll: Option<Duration>,
    /// The completion handler of the session's queue, with its processors and its class (N4 to N6). `None`: the adapter's default.
    pub handler: Option<Arc<Handler>>,
    /// Most bytes of data of one command over iSER. A target has a buffer for each, and may close the connection when one is longer; in
    /// tgtd the default is 512 KiB.
    pub iser_max_data: u32,
    /// Over iSER, the memory of a command is registered one-touch (M9): the first RDMA Write or RDMA Read that the target ends in it closes
    /// it, before the response does. Only for targets that move the data of a command by one operation, as tgtd does: the second one ends
    /// the connection.
    pub iser_one_touch: bool,
    /// Over iSER, offer InitialR2T=No: data of writes up to FirstBurstLength that does not fit the command's own PDU follows it in Data-Out
    /// PDUs, and only the rest is read by the target. Not with tgtd, which does not execute such writes.
    pub iser_unsolicited: bool,
    /// What to do when a target redirects a login.
    pub redirects: Redirects,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            initiator: "iqn.2026-11.org.verbena:initiator".to_owned(),
            depth: 64,
            login: Duration::from_secs(5),
            command: Duration::from_secs(30),
            silence: Duration::from_secs(5),
            reconnect: Duration::from_secs(30),
            burst: 1 << 20,
            poll: None,
            handler: None,
            iser_max_data: 512 << 10,
            iser_one_touch: false,
            iser_unsolicited: false,
            redirects: Redirects::default(),
        }
    }
}

impl Options {
    /// The login's offer.
    pub(super) fn offer(&self, address: &Address, purpose: Purpose) -> Offer {
        let digest = |wish: Digest| match wish {
            Digest::Either => DigestPreference::Accepted,
            Digest::None => DigestPreference::None,
            Digest::Crc32c => DigestPreference::Required,
        };
        let chap = |who: &Option<Credentials>| {
            let who = who.as_ref()?;
            Some(Chap::new(who.user.clone(), who.password.clone()))
        };
        let iser = (address.transport == Transport::Iser).then(IserOffer::default);
        // A discovery session transfers text only; its responses have to fit a receive.
        let max_recv = match purpose {
            Purpose::Discovery => 8192,
            Purpose::Target(_) => self.burst.max(8192),
        };
        Offer {
            header_digest: digest(address.header_digest),
            data_digest: digest(address.data_digest),
            max_recv,
            max_burst: self.burst,
            first_burst: self.burst.min(256 << 10),
            chap: chap(&address.credentials),
            mutual: chap(&address.target_credentials),
            // Over iSER the target reads what the command's PDU does not hold.
            initial_r2t: iser.is_some() && !self.iser_unsolicited,
            // Reconnect at once if the target allows it.
            time2wait: 0,
            iser,
            ..Offer::new(self.initiator.clone(), purpose)
        }
    }
}
