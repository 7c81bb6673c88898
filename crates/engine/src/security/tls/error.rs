//! Why TLS with a peer failed, in the terms of the settings; and which bytes look like TLS at all.
//! Operators read these messages in logs, so each names the setting that would change it.

/// Content types of the records that may come first (RFC 8446 §5.1).
pub(super) const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;

/// Why TLS with a peer failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// It sent something else than TLS.
    #[error("the peer speaks no TLS, and the setting `tls` demands it")]
    NotTls,
    /// It sent TLS, which is off here.
    #[error("the peer speaks TLS, and the setting `tls` is off here")]
    UnexpectedTls,
    /// It closed the connection before the handshake was complete, or later without close_notify.
    #[error(
        "the peer closed the connection before the TLS handshake: check whether its setting `tls` is off"
    )]
    Ended,
    /// Its credentials are not accepted here.
    #[error("the peer has another key or certificate than is accepted here: {0}")]
    UntrustedPeer(String),
    /// It rejected the handshake.
    #[error("the peer refused the handshake: {0}")]
    Refused(String),
    /// It violated the TLS protocol in another way.
    #[error("{0}")]
    Failed(String),
}

impl TlsError {
    /// Whether these may be the first bytes of a TLS connection; no MPA frame begins so.
    pub(crate) fn may_be_tls(bytes: &[u8]) -> bool {
        matches!(bytes.first(), Some(&(ALERT | HANDSHAKE)))
    }
}

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> TlsError {
        use rustls::Error as E;
        match error {
            E::AlertReceived(alert) => TlsError::Refused(format!("{alert:?}")),
            E::InvalidCertificate(_) | E::NoCertificatesPresented => {
                TlsError::UntrustedPeer(error.to_string())
            }
            other => TlsError::Failed(other.to_string()),
        }
    }
}
