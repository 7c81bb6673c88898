//! TLS between adapters (setting `tls`): the configuration for each side of a handshake, made from the settings.
//!
//! TLS 1.3 only, both sides authenticated, no resumption and no early data, so that every connection has keys of its own
//! and nothing of it can be replayed. The application protocol is `verbena/1`. [`session`] is one connection of it.

mod cert;
mod error;
mod machine;
mod psk;
mod session;
mod stage;
mod verifier;

pub use error::TlsError;
pub(crate) use session::{Flush, Session};

use std::sync::Arc;

use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::{NoServerSessionStorage, ResolvesServerCert};
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig};

use crate::config::{Settings, TlsMode};
use crate::security::keys::{KeyFileError, Keys};
use verifier::{IdentityPolicy, Tls13};

/// The ALPN protocol of the handshake (RFC 7301): servers of other protocols reject our clients, and we reject theirs.
const PROTOCOL: &[u8] = b"verbena/1";

/// The configurations for both sides of a handshake.
pub(crate) struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Tls {
    /// From the settings; none if TLS is off.
    pub(crate) fn new(settings: &Settings, keys: &Keys) -> Result<Option<Tls>, KeyFileError> {
        match settings.tls {
            TlsMode::Off => Ok(None),
            TlsMode::Psk => psk::tls(keys).map(Some),
            TlsMode::Cert => cert::tls(settings).map(Some),
        }
    }

    /// A session of the connecting side.
    pub(crate) fn client(&self) -> Result<Session, TlsError> {
        Session::client(self.client.clone())
    }

    /// A session of the accepting side.
    pub(crate) fn server(&self) -> Result<Session, TlsError> {
        Session::server(self.server.clone())
    }

    /// From the credentials that each side presents, and the identities it accepts of the other.
    fn of(
        provider: Arc<CryptoProvider>,
        presents: (Arc<dyn ResolvesClientCert>, Arc<dyn ResolvesServerCert>),
        accepts: impl IdentityPolicy,
    ) -> Result<Tls, rustls::Error> {
        let verifier = Arc::new(Tls13(accepts));
        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(verifier.clone())
            .with_client_cert_resolver(presents.0);
        client.alpn_protocols = vec![PROTOCOL.to_vec()];
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(presents.1);
        server.alpn_protocols = vec![PROTOCOL.to_vec()];
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Ok(Tls {
            client: Arc::new(client),
            server: Arc::new(server),
        })
    }
}

/// AES-128 first: it is the fastest on processors with AES instructions; ChaCha20 is for those without.
fn provider() -> Arc<CryptoProvider> {
    use ring::cipher_suite::{
        TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
    };
    Arc::new(CryptoProvider {
        cipher_suites: vec![
            TLS13_AES_128_GCM_SHA256,
            TLS13_AES_256_GCM_SHA384,
            TLS13_CHACHA20_POLY1305_SHA256,
        ],
        ..ring::default_provider()
    })
}
