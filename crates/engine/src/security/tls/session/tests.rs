//! Tests of one session without an engine: two ends on a socket pair, targets of every size, and exhausted keys.

use rustls::crypto::{CipherSuiteCommon, CryptoProvider};
use rustls::{SupportedCipherSuite, Tls13CipherSuite};

use super::*;
use crate::config::Key;
use crate::security::keys::Keys;
use crate::security::tls::{Tls, provider, psk};

/// Two ends that have completed the handshake.
struct Pair {
    ends: [(Session, Socket); 2],
}

fn keys() -> Keys {
    vec![Key::new(b"the key of these tests").unwrap()].into()
}

impl Pair {
    fn new(tls: &Tls) -> Pair {
        let (one, two) = Socket::pair().unwrap();
        let ends = [(tls.client().unwrap(), one), (tls.server().unwrap(), two)];
        let mut pair = Pair { ends };
        while pair.ends.iter().any(|(end, _)| end.is_handshaking()) {
            for side in 0..2 {
                assert_eq!(pair.read(side, 16), Err(IoOutcome::WouldBlock));
            }
        }
        pair
    }

    fn usual() -> Pair {
        Pair::new(&psk::make(provider(), &keys()).unwrap())
    }

    /// Reads at most `most` bytes, or returns why not.
    fn read(&mut self, side: usize, most: usize) -> Result<Vec<u8>, IoOutcome> {
        let (end, socket) = &mut self.ends[side];
        let mut bytes = vec![0; most];
        let moved = {
            let mut targets = Targets::new();
            targets.stage(&mut bytes);
            end.read(socket, &mut targets)
        };
        match moved {
            IoOutcome::Bytes(n) => Ok(bytes[..n].to_vec()),
            other => Err(other),
        }
    }

    fn write(&mut self, side: usize, bytes: &[u8]) -> IoOutcome {
        let (end, socket) = &mut self.ends[side];
        let mut sources = Sources::new();
        sources.borrow_bytes(bytes);
        end.write(socket, &sources)
    }
}

/// The derivation is what other implementations have to do (docs/connections.md): it must not change.
#[test]
fn key_derivation_is_stable() {
    let key = psk::private(&Key::new(b"the key of these tests").unwrap());
    let der = key.secret_pkcs8_der();
    assert_eq!(der.len(), 48);
    let text: String = der[16..].iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        text,
        "27101d15ab220ad66613697795c454b7fc3ed478c38122d8e3c40414940586df"
    );
}

#[test]
fn reads_of_any_size_get_all_bytes() {
    for most in [1, 7, 1000, 16_384, 40_000, 300_000] {
        let mut pair = Pair::usual();
        let words: Vec<u8> = (0..50_000_u32).map(|i| (i * 7) as u8).collect();
        assert_eq!(pair.write(0, &words), IoOutcome::Bytes(words.len()));
        let mut came = Vec::new();
        while came.len() < words.len() {
            came.extend(pair.read(1, most).unwrap());
        }
        assert!(came == words);
        assert_eq!(pair.read(1, most), Err(IoOutcome::WouldBlock));
        assert!(!pair.ends[1].0.has_unread());
    }
}

#[test]
fn full_socket_keeps_encrypted_bytes() {
    let mut pair = Pair::usual();
    let words = vec![7; 100_000];
    let mut sent = 0;
    while let IoOutcome::Bytes(n) = pair.write(0, &words) {
        sent += n;
    }
    let (end, socket) = &mut pair.ends[0];
    assert!(end.has_unsent());
    assert_eq!(end.flush(socket), Flush::Full);
    let mut came = 0;
    while came < sent {
        match pair.read(1, 1 << 20) {
            Ok(some) => came += some.len(),
            Err(moved) => assert_eq!(moved, IoOutcome::WouldBlock),
        }
        let (end, socket) = &mut pair.ends[0];
        end.flush(socket);
    }
    assert_eq!(came, sent);
    assert!(!pair.ends[0].0.has_unsent());
}

#[test]
fn only_close_notify_is_an_orderly_end() {
    let mut pair = Pair::usual();
    pair.write(0, b"last words");
    let (end, socket) = &mut pair.ends[0];
    assert_eq!(end.close(socket), Flush::Done);
    assert_eq!(pair.write(0, b"more"), IoOutcome::Broken);
    assert_eq!(pair.read(1, 100).unwrap(), b"last words");
    assert!(pair.ends[1].0.has_unread(), "the end is still to be told");
    assert_eq!(pair.read(1, 100), Err(IoOutcome::Eof));
    assert!(!pair.ends[1].0.has_unread());
    // The other direction is open.
    assert_eq!(pair.write(1, b"an answer"), IoOutcome::Bytes(9));
    let mut pair = Pair::usual();
    pair.write(0, b"words");
    let (end, socket) = Socket::pair().unwrap();
    drop((core::mem::replace(&mut pair.ends[0].1, end), socket));
    assert_eq!(pair.read(1, 100).unwrap(), b"words");
    assert_eq!(pair.read(1, 100), Err(IoOutcome::Broken));
    assert_eq!(pair.ends[1].0.failure(), Some(&TlsError::Ended));
}

/// RFC 8446 §5.5: a key encrypts a limited number of records and is then updated.
#[test]
fn exhausted_traffic_keys_are_updated() {
    let usual = provider();
    let Some(SupportedCipherSuite::Tls13(suite)) = usual.cipher_suites.first() else {
        panic!("TLS 1.3 only");
    };
    let brief = Tls13CipherSuite {
        common: CipherSuiteCommon {
            confidentiality_limit: 16,
            ..suite.common
        },
        ..**suite
    };
    let suite = SupportedCipherSuite::Tls13(Box::leak(Box::new(brief)));
    let brief = CryptoProvider {
        cipher_suites: vec![suite],
        ..(*usual).clone()
    };
    let mut pair = Pair::new(&psk::make(Arc::new(brief), &keys()).unwrap());
    for i in 0..1000_u32 {
        for (from, to) in [(0, 1), (1, 0)] {
            let words = i.to_be_bytes().repeat(1 + i as usize % 9000);
            assert_eq!(pair.write(from, &words), IoOutcome::Bytes(words.len()));
            let mut came = Vec::new();
            while came.len() < words.len() {
                came.extend(pair.read(to, 1 << 20).unwrap());
            }
            assert!(came == words);
        }
    }
}
