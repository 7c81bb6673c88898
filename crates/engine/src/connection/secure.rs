//! Effects of TLS on the startup of a connection: which failures are reported as refusals, and whether checksums are needed.
//! The handshake itself is part of every read and write of the [`Line`](super::Transport).

use core::net::SocketAddr;

use super::starting::Starting;
use super::startup::is_same_host;
use super::{Connection, Phase};
use crate::error::Error;
use crate::security::Security;
use crate::security::access::RefusedBy;
use crate::security::tls::TlsError;
use crate::sys::Socket;

impl Connection {
    /// Counts and reports an incoming connection whose TLS handshake failed, or that uses TLS where it is off, as a refusal.
    pub(super) fn report_refusal(&self, error: &Error) {
        let Error::Tls { cause, .. } = error else {
            return;
        };
        let by = match cause {
            // A peer that disconnects is not refused.
            TlsError::Ended => return,
            TlsError::NotTls => RefusedBy::NoTls,
            TlsError::UnexpectedTls => RefusedBy::TlsOff,
            TlsError::UntrustedPeer(_) | TlsError::Refused(_) | TlsError::Failed(_) => {
                RefusedBy::Tls
            }
        };
        let came = |starting: &Starting| starting.is_accepted();
        if matches!(&*self.phase.lock(), Phase::Starting(starting) if came(starting)) {
            self.core.security.access.refuse(self.peer.ip(), by);
        }
    }
}

impl Security {
    /// Integrity is ensured without MPA's CRC: the bytes stay on this host, or TLS authenticates them.
    pub(super) fn has_integrity(&self, socket: &Socket, peer: SocketAddr) -> bool {
        self.tls.is_some() || is_same_host(socket, peer)
    }
}
