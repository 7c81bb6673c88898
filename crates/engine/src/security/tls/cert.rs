//! `tls = cert`: both sides present a certificate, whose chain must lead to the authority of the setting `tls_ca`.
//!
//! Every certificate of the authority that is valid now is accepted, in both directions, and its names are not checked: peers are
//! known by addresses that programs exchange, either side of an out-of-band connection may be the one that connects, and the
//! accepting side knows no name at all.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::client::{ResolvesClientCert, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ParsedCertificate, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};

use super::Tls;
use super::verifier::IdentityPolicy;
use crate::config::Settings;
use crate::security::keys::{self, KeyFileError};

/// Size limit of a file: more than any chain of certificates that fits a handshake.
const MAX_FILE: usize = 256 << 10;

pub(super) fn tls(settings: &Settings) -> Result<Tls, KeyFileError> {
    let provider = super::provider();
    let chain = Pem::read("tls_cert", settings.tls_cert.as_ref(), false)?;
    let key = Pem::read("tls_key", settings.tls_key.as_ref(), true)?;
    let ca = Pem::read("tls_ca", settings.tls_ca.as_ref(), false)?;
    let private = PrivateKeyDer::from_pem_slice(&key.bytes).map_err(|e| key.invalid(e))?;
    let mut roots = RootCertStore::empty();
    for root in ca.certificates()? {
        roots.add(root).map_err(|error| ca.invalid(error))?;
    }
    let roots = Arc::new(roots);
    let signs = provider.key_provider.load_private_key(private);
    let signs = signs.map_err(|error| key.invalid(error))?;
    let certified = CertifiedKey::new(chain.certificates()?, signs);
    certified
        .keys_match()
        .map_err(|error| chain.invalid(error))?;
    let presents = Arc::new(SingleCertAndKey::from(certified));
    let client: Arc<dyn ResolvesClientCert> = presents.clone();
    let server: Arc<dyn ResolvesServerCert> = presents;
    let clients = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone());
    let clients = clients.build().map_err(|error| ca.invalid(error))?;
    let accepts = AuthorityVerifier {
        roots,
        clients,
        algorithms: provider.signature_verification_algorithms,
    };
    let made = Tls::of(provider, (client, server), accepts);
    made.map_err(|error| chain.invalid(error))
}

/// A file of the settings.
struct Pem {
    setting: &'static str,
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Pem {
    fn read(
        setting: &'static str,
        path: Option<&PathBuf>,
        secret: bool,
    ) -> Result<Pem, KeyFileError> {
        // Settings without one of them are rejected earlier (`Settings::contradictions`).
        let path = path.map_or(Path::new(""), PathBuf::as_path);
        let bytes = keys::read_file(setting, path, MAX_FILE, secret)?;
        Ok(Pem {
            setting,
            path: path.to_owned(),
            bytes,
        })
    }

    fn invalid(&self, error: impl core::fmt::Display) -> KeyFileError {
        KeyFileError::content(self.setting, &self.path, error)
    }

    /// The certificates; at least one.
    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, KeyFileError> {
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        let all = all.map_err(|error| self.invalid(error))?;
        if all.is_empty() {
            return Err(self.invalid("no certificate"));
        }
        Ok(all)
    }
}

/// Accepts any valid certificate of the authority, whatever its names.
#[derive(Debug)]
struct AuthorityVerifier {
    roots: Arc<RootCertStore>,
    clients: Arc<dyn ClientCertVerifier>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl IdentityPolicy for AuthorityVerifier {
    const RAW_KEYS: bool = false;

    fn verify_server(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let end_entity = ParsedCertificate::try_from(end_entity)?;
        verify_server_cert_signed_by_trust_anchor(
            &end_entity,
            &self.roots,
            intermediates,
            now,
            self.algorithms.all,
        )
    }

    fn verify_client(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        self.clients
            .verify_client_cert(end_entity, intermediates, now)
            .map(drop)
    }

    fn verify_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signed, &self.algorithms)
    }

    fn schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn authorities(&self) -> &[DistinguishedName] {
        self.clients.root_hint_subjects()
    }
}
