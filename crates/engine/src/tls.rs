//! TLS between adapters (setting `tls`): what the settings say, made into one configuration for each side of a handshake.
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
use crate::keys::{KeyFileError, Keys};
use verifier::{Identities, Tls13};

/// The protocol that a handshake is for (RFC 7301): a server of another one refuses us, and we refuse its clients.
const PROTOCOL: &[u8] = b"verbena/1";

/// What both sides of a handshake need.
pub(crate) struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Tls {
    /// As the settings say; none if TLS is off.
    pub(crate) fn new(settings: &Settings, keys: &Keys) -> Result<Option<Tls>, KeyFileError> {
        match settings.tls {
            TlsMode::Off => Ok(None),
            TlsMode::Psk => psk::tls(keys).map(Some),
            TlsMode::Cert => cert::tls(settings).map(Some),
        }
    }

    /// The side that connects.
    pub(crate) fn client(&self) -> Result<Session, TlsError> {
        Session::client(self.client.clone())
    }

    /// The side that was connected to.
    pub(crate) fn server(&self) -> Result<Session, TlsError> {
        Session::server(self.server.clone())
    }

    /// From what each side presents, and what it accepts of the other one.
    fn of(
        provider: Arc<CryptoProvider>,
        presents: (Arc<dyn ResolvesClientCert>, Arc<dyn ResolvesServerCert>),
        accepts: impl Identities,
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

/// AES-128 first: it is the fastest where processors have instructions for AES, and ChaCha20 is there for those without.
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
