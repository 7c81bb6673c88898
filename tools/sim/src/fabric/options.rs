//! Options of queue pairs and connections of a fabric.
//! By default both ends use Verbena's extensions and checksums, and the link has no faults.

use std::sync::Arc;

use verbena_mem::Pd;
use verbena_nic::qp::{Limits, Transfer};
use verbena_nic::{Cq, Personality, QpType, Srq};
use verbena_stream::{RnrRetry, Terms};
use verbena_wire::ext::{Features, RnrTimer};

use super::host::DEFAULT_PD;
use crate::link::LinkOptions;

/// Options of a queue pair.
#[derive(Debug, Clone)]
pub struct QpOptions {
    /// Its domain.
    pub pd: Pd,
    /// RoCE or iWARP.
    pub personality: Personality,
    /// Reliable or unreliable.
    pub qp_type: QpType,
    /// Where its sends complete; its own queue if none is given.
    pub send_cq: Option<Arc<Cq>>,
    /// Where its receives complete; its own queue if none is given.
    pub recv_cq: Option<Arc<Cq>>,
    /// A receive queue shared with others, instead of its own.
    pub srq: Option<Arc<Srq>>,
    /// Capacities of its queues.
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

/// Options of one side of a connection.
#[derive(Debug, Clone)]
pub struct SideOptions {
    /// Terms of the startup.
    pub terms: Terms,
    /// Longest ULPDU it sends.
    pub max_ulpdu: u16,
    /// RFC 7306 messages are used with standard peers, too.
    pub rfc7306: bool,
    /// Features it offers if extensions are enabled.
    pub features: Features,
    /// RNR retries.
    pub rnr_retry: RnrRetry,
    /// The RNR timer that it announces to the peer.
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

/// Options of a connection: the initiator's side first.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// Options of each side.
    pub sides: [SideOptions; 2],
    /// The link from each side.
    pub links: [LinkOptions; 2],
}

impl Default for ConnectOptions {
    fn default() -> ConnectOptions {
        ConnectOptions {
            sides: [SideOptions::default(), SideOptions::default()],
            links: [LinkOptions::without_faults(), LinkOptions::without_faults()],
        }
    }
}
