//! `tls = psk`: both sides authenticate by a key pair derived from the shared `key`.
//!
//! rustls has no external pre-shared keys (RFC 8446 §2.2). Instead an Ed25519 key pair is derived from the `key` by HKDF and
//! presented as a raw public key (RFC 7250): a side that has the `key` knows the only public key that it may accept, and a
//! side without it cannot sign. The first key is presented, and those of all keys are accepted, so that keys can be
//! replaced one after the other as with the proof of [`crate::security::key_auth`].

use std::path::Path;
use std::sync::Arc;

use hmac::{Hmac, Mac};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::client::{AlwaysResolvesClientRawPublicKeys, ResolvesClientCert};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use sha2::Sha256;

use super::Tls;
use super::verifier::IdentityPolicy;
use crate::config::Key;
use crate::security::keys::{KeyFileError, Keys};

/// Salt and context of the derivation (RFC 5869): the derived pair is for this purpose only.
const SALT: &[u8] = b"verbena tls psk 1";
const CONTEXT: &[u8] = b"Ed25519 seed";

/// The PKCS #8 prefix of an Ed25519 seed (RFC 8410 §7).
const PKCS8: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

pub(super) fn tls(keys: &Keys) -> Result<Tls, KeyFileError> {
    make(super::provider(), keys)
        .map_err(|error| KeyFileError::content("tls", Path::new("the key"), error))
}

pub(super) fn make(provider: Arc<CryptoProvider>, keys: &Keys) -> Result<Tls, Error> {
    let pairs = keys.iter().map(|key| {
        let key = provider
            .key_provider
            .load_private_key(private(key).into())?;
        let public = key.public_key().map(SubjectPublicKeyInfoDer::into_owned);
        let public = public.ok_or(Error::General("a key pair without a public key".to_owned()))?;
        Ok((key, public))
    });
    let pairs = pairs.collect::<Result<Vec<_>, Error>>()?;
    let known = pairs.iter().map(|(_, public)| public.clone()).collect();
    // Settings without a key are rejected earlier (`Settings::contradictions`).
    let first = pairs.into_iter().next();
    let (key, public) = first.ok_or(Error::NoCertificatesPresented)?;
    let pair = CertifiedKey::new(vec![CertificateDer::from(public.to_vec())], key);
    let pair = Arc::new(pair);
    let accepts = RawKeyVerifier {
        keys: known,
        algorithms: provider.signature_verification_algorithms,
    };
    let client: Arc<dyn ResolvesClientCert> =
        Arc::new(AlwaysResolvesClientRawPublicKeys::new(pair.clone()));
    let server: Arc<dyn ResolvesServerCert> =
        Arc::new(AlwaysResolvesServerRawPublicKeys::new(pair));
    Tls::of(provider, (client, server), accepts)
}

/// HKDF with SHA-256, one output block (RFC 5869 §2).
pub(super) fn private(key: &Key) -> PrivatePkcs8KeyDer<'static> {
    let extracted = mac(SALT, &[key.bytes()]);
    let seed = mac(&extracted, &[CONTEXT, &[1]]);
    PrivatePkcs8KeyDer::from([&PKCS8[..], &seed].concat())
}

fn mac(key: &[u8], words: &[&[u8]]) -> [u8; 32] {
    // HMAC takes keys of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
        return [0; 32];
    };
    for word in words {
        mac.update(word);
    }
    mac.finalize().into_bytes().into()
}

/// Accepts only the public keys derived from the shared keys.
#[derive(Debug)]
struct RawKeyVerifier {
    keys: Vec<SubjectPublicKeyInfoDer<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl RawKeyVerifier {
    fn verify(&self, presented: &CertificateDer<'_>) -> Result<(), Error> {
        let known = |key: &SubjectPublicKeyInfoDer<'_>| key.as_ref() == presented.as_ref();
        if self.keys.iter().any(known) {
            Ok(())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }
}

impl IdentityPolicy for RawKeyVerifier {
    const RAW_KEYS: bool = true;

    fn verify_server(
        &self,
        presented: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<(), Error> {
        self.verify(presented)
    }

    fn verify_client(
        &self,
        presented: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<(), Error> {
        self.verify(presented)
    }

    fn verify_signature(
        &self,
        message: &[u8],
        presented: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(presented.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
    }

    fn schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn authorities(&self) -> &[DistinguishedName] {
        &[]
    }
}
