//! TLS over plain TCP as in a well-written program, by rustls with the cipher that Verbena prefers and large reads: the baseline for
//! Verbena's encrypted connections. Neither side authenticates the other.

use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

use anyhow::{Context, Result};
use rcgen::{CertificateParams, KeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::version::TLS13;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, ServerConfig, ServerConnection,
    SignatureScheme, StreamOwned,
};

use crate::job::{Figures, Job};
use crate::tcp::{self, cpu_figures};
use crate::usage;

/// Length of one read of the socket; rustls itself reads 4 KiB.
const READ: usize = 128 << 10;
/// Length of one read of the stream.
const CHUNK: usize = 64 << 10;

/// A socket with large reads.
struct Transport {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
}

impl Transport {
    fn new(socket: TcpStream) -> Result<Transport> {
        Ok(Transport {
            reader: BufReader::with_capacity(READ, socket.try_clone()?),
            writer: socket,
        })
    }
}

impl Read for Transport {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.reader.read(bytes)
    }
}

impl Write for Transport {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: vec![ring::cipher_suite::TLS13_AES_128_GCM_SHA256],
        ..ring::default_provider()
    })
}

/// Accepts every certificate.
#[derive(Debug)]
struct AcceptAnyCertificate;

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

fn accept(job: &Job) -> Result<StreamOwned<ServerConnection, Transport>> {
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(Vec::new())?.self_signed(&key)?;
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        )?;
    let mut socket = tcp::accept(job)?;
    let mut tls = ServerConnection::new(Arc::new(config))?;
    while tls.is_handshaking() {
        tls.complete_io(&mut socket)
            .context("TLS handshake failed")?;
    }
    Ok(StreamOwned::new(tls, Transport::new(socket)?))
}

fn connect(job: &Job) -> Result<StreamOwned<ClientConnection, Transport>> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate))
        .with_no_client_auth();
    let mut socket = tcp::connect(job)?;
    let name = ServerName::try_from("verbena.invalid")?;
    let mut tls = ClientConnection::new(Arc::new(config), name)?;
    while tls.is_handshaking() {
        tls.complete_io(&mut socket)
            .context("TLS handshake failed")?;
    }
    Ok(StreamOwned::new(tls, Transport::new(socket)?))
}

/// Echoes messages until the end of the stream.
pub(crate) fn serve_pingpong(job: &Job) -> Result<Figures> {
    let mut stream = accept(job)?;
    stream.sock.writer.set_nonblocking(true)?;
    tcp::serve_pingpong_on(job, &mut stream)
}

/// Ping-pong.
pub(crate) fn run_pingpong(job: &Job) -> Result<Figures> {
    let mut stream = connect(job)?;
    stream.sock.writer.set_nonblocking(true)?;
    tcp::run_pingpong_on(job, &mut stream)
}

/// Reads a stream in large pieces, and confirms its end.
pub(crate) fn receive_plain(job: &Job) -> Result<Figures> {
    let mut stream = accept(job)?;
    let (mut bytes, before) = (vec![0; CHUNK], usage::cpu());
    while stream.read(&mut bytes)? > 0 {}
    stream.write_all(&[1])?;
    stream.flush()?;
    Ok(cpu_figures(before))
}

/// One write per message.
pub(crate) fn send_plain(job: &Job) -> Result<Figures> {
    let mut stream = connect(job)?;
    let (bytes, before) = (vec![7; job.size.max(1) as usize], usage::cpu());
    let mut meter = job.meter();
    while {
        stream.write_all(&bytes)?;
        meter.record(1)
    } {}
    stream.conn.send_close_notify();
    stream.flush()?;
    stream.sock.writer.shutdown(Shutdown::Write)?;
    stream.read_exact(&mut [0])?;
    Ok(Figures {
        cpu: usage::cpu() - before,
        ..meter.figures().into()
    })
}
