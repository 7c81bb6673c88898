//! The rustls verifiers for both modes. A mode says which identities it accepts and how they sign; signatures of TLS 1.2 are
//! rejected here for all of them.

use core::fmt::Debug;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible, SignatureScheme};

/// The identities that a mode accepts.
pub(super) trait IdentityPolicy: Debug + Send + Sync + 'static {
    /// Peers present raw public keys (RFC 7250) instead of certificates.
    const RAW_KEYS: bool;

    fn verify_server(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error>;

    fn verify_client(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error>;

    /// Verifies that a TLS 1.3 signature is by this identity.
    fn verify_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error>;

    fn schemes(&self) -> Vec<SignatureScheme>;

    /// The authorities that clients are told.
    fn authorities(&self) -> &[DistinguishedName];
}

/// Accepts these identities, with TLS 1.3 only.
#[derive(Debug)]
pub(super) struct Tls13<I>(pub(super) I);

/// TLS 1.2 is never negotiated, so rustls does not call this; it fails in any case.
fn no_tls12() -> Result<HandshakeSignatureValid, Error> {
    Err(PeerIncompatible::ServerDoesNotSupportTls12Or13.into())
}

impl<I: IdentityPolicy> ServerCertVerifier for Tls13<I> {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.0.verify_server(end_entity, intermediates, now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        I::RAW_KEYS
    }
}

impl<I: IdentityPolicy> ClientCertVerifier for Tls13<I> {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.authorities()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.0.verify_client(end_entity, intermediates, now)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        I::RAW_KEYS
    }
}

#[cfg(test)]
mod tests {
    use rustls::internal::msgs::codec::{Codec, Reader};

    use super::*;

    /// Accepts every identity and every signature.
    #[derive(Debug)]
    struct AcceptAll;

    impl IdentityPolicy for AcceptAll {
        const RAW_KEYS: bool = false;

        fn verify_server(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: UnixTime,
        ) -> Result<(), Error> {
            Ok(())
        }

        fn verify_client(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: UnixTime,
        ) -> Result<(), Error> {
            Ok(())
        }

        fn verify_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn authorities(&self) -> &[DistinguishedName] {
            &[]
        }
    }

    #[test]
    fn tls12_signatures_are_refused_in_every_mode() {
        let cert = CertificateDer::from(vec![0; 4]);
        // ED25519, and a signature of two bytes.
        let mut signed = Reader::init(&[8, 7, 0, 2, 1, 1]);
        let signed = DigitallySignedStruct::read(&mut signed).unwrap();
        let (server, client): (&dyn ServerCertVerifier, &dyn ClientCertVerifier) =
            (&Tls13(AcceptAll), &Tls13(AcceptAll));
        assert!(server.verify_tls12_signature(b"", &cert, &signed).is_err());
        assert!(client.verify_tls12_signature(b"", &cert, &signed).is_err());
        assert!(server.verify_tls13_signature(b"", &cert, &signed).is_ok());
        assert!(client.verify_tls13_signature(b"", &cert, &signed).is_ok());
    }
}
