//! What a queue pair and a connection of a fabric are made of, with defaults that just work.
//! A default promises both ends of our own kind, checksums, and a link without any habit.
//! It refuses to make anything; the fabric does.

use std::sync::Arc;

use verbena_mem::Pd;
use verbena_nic::qp::{Limits, Transfer};
use verbena_nic::{Cq, Personality, QpType, Srq};
use verbena_stream::{RnrRetry, Terms};
use verbena_wire::ext::{Features, RnrTimer};

use super::host::DEFAULT_PD;
use crate::link::LinkOptions;

/// How a queue pair is made.
#[derive(Debug, Clone)]
pub struct QpOptions {
    /// Its domain.
    pub pd: Pd,
    /// Whose manners it has.
    pub personality: Personality,
    /// Reliable or unreliable.
    pub qp_type: QpType,
    /// Where its sends complete; a queue of its own if none is given.
    pub send_cq: Option<Arc<Cq>>,
    /// Where its receives complete; a queue of its own if none is given.
    pub recv_cq: Option<Arc<Cq>>,
    /// A receive queue shared with others, instead of its own.
    pub srq: Option<Arc<Srq>>,
    /// How much it holds.
    pub limits: Limits,
    /// How its bytes are moved.
    pub transfer: Transfer,
}

impl Default for QpOptions {
    fn default() -> QpOptions {
        QpOptions {
            pd: DEFAULT_PD,
            personality: Personality::Roce,
            qp_type: QpType::Rc,
            send_cq: None,
            recv_cq: None,
            srq: None,
            limits: Limits::default(),
            transfer: Transfer::default(),
        }
    }
}

/// What one side brings to a connection.
#[derive(Debug, Clone)]
pub struct SideOptions {
    /// What it brings to the startup.
    pub terms: Terms,
    /// Longest ULPDU it sends.
    pub max_ulpdu: u16,
    /// RFC 7306 messages pass between standard peers too.
    pub rfc7306: bool,
    /// Features it offers when extensions are in force.
    pub features: Features,
    /// How long it waits for a receiver that is not ready.
    pub rnr_retry: RnrRetry,
    /// How long it tells the peer to wait.
    pub rnr_timer: RnrTimer,
}

impl Default for SideOptions {
    fn default() -> SideOptions {
        SideOptions {
            terms: Terms::default(),
            max_ulpdu: 1400,
            rfc7306: true,
            features: Features::READ_V2 | Features::SEND_IMM,
            rnr_retry: RnrRetry::Forever,
            rnr_timer: RnrTimer::DEFAULT,
        }
    }
}

/// How two queue pairs are joined: the initiator's side first.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// What each side brings.
    pub sides: [SideOptions; 2],
    /// The link from each side.
    pub links: [LinkOptions; 2],
}

impl Default for ConnectOptions {
    fn default() -> ConnectOptions {
        ConnectOptions {
            sides: [SideOptions::default(), SideOptions::default()],
            links: [LinkOptions::calm(), LinkOptions::calm()],
        }
    }
}
