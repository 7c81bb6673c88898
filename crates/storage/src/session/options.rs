//! How a session shall be: names, wishes and how long it is patient.
//! The defaults promise errors in bounded time: a target that is gone is noticed within seconds and given up after half a minute.
//! They refuse nothing: what makes no sense is refused when the session is opened.

use std::sync::Arc;
use std::time::Duration;

use verbena::Handler;
use verbena_iscsi::login::{Chap, DigestWish, IserOffer, Offer, Purpose};

use crate::address::{Address, Credentials, Digest, Transport};

/// What becomes of a login whose target says that it has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Redirects {
    /// It fails.
    Forbidden,
    /// It goes on where the target is now; at another host without our CHAP credentials, and not at all where the target must
    /// prove itself.
    #[default]
    WithoutCredentials,
    /// It goes on there as it began here.
    WithCredentials,
}

/// How a session shall be.
#[derive(Debug, Clone)]
pub struct Options {
    /// Who we are.
    pub initiator: String,
    /// Commands under way at once.
    pub depth: usize,
    /// How long a target may take to answer when it is dialled, and for each step of the login.
    pub login: Duration,
    /// How long a command may take. Then the target is asked to abort it, for as long as `silence`, and it is repeated if that is safe;
    /// if it is not aborted, or waits for the target's window, the connection is given up.
    pub command: Duration,
    /// How long a silent target is trusted before it is asked for a sign of life; as long again for the sign.
    pub silence: Duration,
    /// For how long a lost connection is tried again, before everything that waits for it fails.
    pub reconnect: Duration,
    /// Bytes of one burst, and of one PDU.
    pub burst: u32,
    /// How long who waits for a few requests polls before it sleeps: an answer that comes meanwhile is there sooner by the time that waking
    /// takes, and takes a processor until then. None is 50 µs as long as answers come so soon, and nothing where they do not.
    pub poll: Option<Duration>,
    /// The completion handler that the session's queue is served by, with its processors and its class (N4 to N6); none: the
    /// adapter's usual one.
    pub handler: Option<Arc<Handler>>,
    /// Bytes of data of one command over iSER. A target has a buffer for each, and may end the connection when one is longer: tgtd
    /// has them of 512 KiB if nobody tells it otherwise.
    pub iser_longest: u32,
    /// Whether a target that has moved is followed, and with what.
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
            iser_longest: 512 << 10,
            redirects: Redirects::default(),
        }
    }
}

impl Options {
    /// What a login offers.
    pub(super) fn offer(&self, address: &Address, purpose: Purpose) -> Offer {
        let digest = |wish: Digest| match wish {
            Digest::Either => DigestWish::Accepted,
            Digest::None => DigestWish::None,
            Digest::Crc32c => DigestWish::Required,
        };
        let chap = |who: &Option<Credentials>| {
            let who = who.as_ref()?;
            Some(Chap::new(who.user.clone(), who.password.clone()))
        };
        let iser = (address.transport == Transport::Iser).then(IserOffer::default);
        // A discovery has no data but text, whose answers fit a receive.
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
            // Over iSER the target fetches data by itself, and none goes along.
            immediate_data: iser.is_none(),
            initial_r2t: iser.is_some(),
            // We come back at once if the target lets us.
            time2wait: 0,
            iser,
            ..Offer::new(self.initiator.clone(), purpose)
        }
    }
}
