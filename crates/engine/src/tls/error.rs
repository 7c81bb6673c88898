//! Why there is no TLS with a peer, in the words of the settings; and which bytes look like TLS at all.
//! Operators read these sentences in logs, so each names the setting that would change it.

/// The first byte of every record that may come first (RFC 8446 §5.1).
pub(super) const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;

/// Why there is no TLS with a peer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// It sent something else than TLS.
    #[error("the peer speaks no TLS, and the setting `tls` demands it")]
    NoTls,
    /// It sent TLS, which is off here.
    #[error("the peer speaks TLS, and the setting `tls` is off here")]
    SpeaksTls,
    /// It ended the connection before the handshake was over, or later without saying so.
    #[error("the peer ended the connection without a word of TLS: is its setting `tls` off?")]
    Ended,
    /// It does not have what it is to authenticate with.
    #[error("the peer has another key or certificate than is accepted here: {0}")]
    Stranger(String),
    /// It does not accept us.
    #[error("the peer refused the handshake: {0}")]
    Refused(String),
    /// It did something else that TLS does not allow.
    #[error("{0}")]
    Failed(String),
}

impl TlsError {
    /// Whether these may be the first bytes of a TLS connection; no frame of MPA begins so.
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
                TlsError::Stranger(error.to_string())
            }
            other => TlsError::Failed(other.to_string()),
        }
    }
}
