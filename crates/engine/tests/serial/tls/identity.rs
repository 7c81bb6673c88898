//! Which peers are accepted: by key, by certificate, and with TLS on one side only.

use std::fs::Permissions;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use verbena_engine::error::TlsError;
use verbena_engine::security::access::RefusedBy;
use verbena_engine::{Engine, Error};

use super::{ONE, TWO, exchange, psk, transfer, with};
use crate::common::{
    Side, config, connect_sides, dial, loopback, read_to_end, serialize_tests, wait,
};

/// Collects the refusals that a side reports.
fn refusals(side: &Side) -> Arc<Mutex<Vec<(RefusedBy, String)>>> {
    let reported = Arc::new(Mutex::new(Vec::new()));
    let ours = reported.clone();
    side.engine.access_list().on_refusal(move |refusal| {
        ours.lock().unwrap().push((refusal.by, refusal.to_string()));
    });
    reported
}

/// Connects to a side that rejects it; returns the error of the initiator, and what the other side reported.
fn refused(a: &Side, b: &Side) -> (TlsError, RefusedBy, String) {
    let reported = refusals(b);
    let acceptor = b.engine.listen(loopback(), 16).unwrap();
    let error = dial(&a.qp, acceptor.local_addr().unwrap()).unwrap_err();
    let Error::Tls { cause, .. } = error else {
        panic!("{error}");
    };
    assert!(acceptor.try_next().unwrap().is_none(), "nothing was shown");
    wait("the refusal is told", || {
        !reported.lock().unwrap().is_empty()
    });
    assert_eq!(b.engine.access_list().refused(), 1);
    let (by, words) = reported.lock().unwrap().remove(0);
    (cause, by, words)
}

#[test]
fn different_key_is_refused() {
    let _alone = serialize_tests();
    let (cause, by, words) = refused(&with(ONE), &with(TWO));
    assert!(matches!(cause, TlsError::UntrustedPeer(_)), "{cause}");
    assert_eq!(by, RefusedBy::Tls);
    let wanted = "refused 127.0.0.1: its TLS handshake failed, as with another key or certificate";
    assert_eq!(words, wanted);
}

#[test]
fn initiator_without_tls_is_refused() {
    let _alone = serialize_tests();
    let plain = Side::new(&psk(ONE)[..2]);
    let (cause, by, words) = refused(&plain, &with(ONE));
    assert_eq!(cause, TlsError::UnexpectedTls);
    assert_eq!(by, RefusedBy::NoTls);
    let wanted = "refused 127.0.0.1: the peer speaks no TLS (setting `tls`)";
    assert_eq!(words, wanted);
}

#[test]
fn listener_without_tls_is_refused() {
    let _alone = serialize_tests();
    let plain = Side::new(&psk(ONE)[..2]);
    let (cause, by, words) = refused(&with(ONE), &plain);
    assert_eq!(cause, TlsError::Ended);
    assert_eq!(by, RefusedBy::TlsOff);
    let wanted = "refused 127.0.0.1: the peer speaks TLS, and the setting `tls` is off here";
    assert_eq!(words, wanted);
    // Nor is any other server accepted.
    let listener = TcpListener::bind(loopback()).unwrap();
    let at = listener.local_addr().unwrap();
    let answers = std::thread::spawn(move || {
        let (mut raw, _) = listener.accept().unwrap();
        raw.write_all(b"MPA ID Rep Frame\0\x01\0\0").unwrap();
        read_to_end(&raw);
    });
    let error = dial(&with(ONE).qp, at).unwrap_err();
    let is_plain = matches!(&error, Error::Tls { cause, .. } if *cause == TlsError::NotTls);
    assert!(is_plain, "{error}");
    answers.join().unwrap();
}

/// The steps of docs/connections.md: after each, every pair of hosts that did or did not take it connects both ways.
#[test]
fn key_rotation_interrupts_no_connection() {
    let _alone = serialize_tests();
    let files = TempDir::new("rotation");
    let steps = [&[ONE][..], &[ONE, TWO], &[TWO, ONE], &[TWO]].map(|keys| {
        let name = keys.len().to_string() + &keys[0][..3];
        files.file(&name, &keys.join("\n"), 0o600)
    });
    let side = |file: &PathBuf| Side::new(&[("key_file", text(file)), ("tls", "psk")]);
    for pair in steps.windows(2) {
        for (one, two) in [(&pair[0], &pair[1]), (&pair[1], &pair[0])] {
            let (a, b) = (side(one), side(two));
            connect_sides(&a, &b);
            exchange(&a, &b);
        }
    }
    assert!(matches!(
        refused(&side(&steps[0]), &side(&steps[3])).0,
        TlsError::UntrustedPeer(_)
    ));
}

fn text(path: &std::path::Path) -> &str {
    path.to_str().unwrap()
}

/// A folder for the files of one test.
struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> TempDir {
        let name = format!("verbena-tls-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        TempDir(folder)
    }

    fn file(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An authority with its key.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Authority { issuer, pem }
    }

    /// A side with a certificate of this authority, valid until this year, that trusts another one.
    fn side(&self, files: &TempDir, name: &str, until: i32, trusts: &Authority) -> Side {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        let cert = files.file(&format!("{name}.crt"), &certificate, 0o644);
        let key = files.file(&format!("{name}.key"), &key.serialize_pem(), 0o600);
        let ca = files.file(&format!("{name}.ca"), &trusts.pem, 0o644);
        Side::new(&[
            ("startup_timeout", "2s"),
            ("tls_cert", text(&cert)),
            ("tls_key", text(&key)),
            ("tls_ca", text(&ca)),
            ("tls", "cert"),
        ])
    }
}

#[test]
fn certificates_of_one_authority_connect() {
    let _alone = serialize_tests();
    let (files, ca) = (TempDir::new("one"), Authority::new());
    let a = ca.side(&files, "a.example", 2100, &ca);
    let b = ca.side(&files, "b.example", 2100, &ca);
    connect_sides(&a, &b);
    transfer(&a, &b);
}

#[test]
fn certificates_of_another_authority_are_refused() {
    let _alone = serialize_tests();
    let (files, ca, other) = (TempDir::new("other"), Authority::new(), Authority::new());
    let a = ca.side(&files, "a", 2100, &ca);
    // The initiator rejects.
    let b = other.side(&files, "b", 2100, &ca);
    let (cause, by, _) = refused(&a, &b);
    assert!(matches!(cause, TlsError::UntrustedPeer(_)), "{cause}");
    assert_eq!(by, RefusedBy::Tls);
    // The listener rejects.
    let c = other.side(&files, "c", 2100, &ca);
    let (cause, by, _) = refused(&c, &a);
    assert!(matches!(cause, TlsError::Refused(_)), "{cause}");
    assert_eq!(by, RefusedBy::Tls);
}

#[test]
fn expired_certificates_are_refused() {
    let _alone = serialize_tests();
    let (files, ca) = (TempDir::new("expired"), Authority::new());
    let a = ca.side(&files, "a", 2100, &ca);
    let old = ca.side(&files, "old", 2001, &ca);
    let (cause, ..) = refused(&a, &old);
    assert!(matches!(cause, TlsError::UntrustedPeer(_)), "{cause}");
    let (cause, ..) = refused(&old, &a);
    assert!(matches!(cause, TlsError::Refused(_)), "{cause}");
}

#[test]
fn psk_and_certificate_do_not_connect() {
    let _alone = serialize_tests();
    let (files, ca) = (TempDir::new("mixed"), Authority::new());
    let certified = ca.side(&files, "a", 2100, &ca);
    let (_, by, _) = refused(&with(ONE), &certified);
    assert_eq!(by, RefusedBy::Tls);
    let (_, by, _) = refused(&ca.side(&files, "b", 2100, &ca), &with(ONE));
    assert_eq!(by, RefusedBy::Tls);
}

#[test]
fn unusable_tls_files_are_refused_at_start() {
    let files = TempDir::new("files");
    let ca = Authority::new();
    let key = files.file("key", &KeyPair::generate().unwrap().serialize_pem(), 0o644);
    let cert = files.file("cert", &ca.pem, 0o644);
    let empty = files.file("empty", "", 0o600);
    let start = |key: &PathBuf, ca: &PathBuf| {
        let settings = [
            ("tls_cert", text(&cert)),
            ("tls_key", text(key)),
            ("tls_ca", text(ca)),
            ("tls", "cert"),
        ];
        Engine::new(config(&settings)).unwrap_err().to_string()
    };
    let open = start(&key, &cert);
    assert!(
        open.contains("`tls_key`") && open.contains("chmod 600"),
        "{open}"
    );
    std::fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    let foreign = start(&key, &cert);
    assert!(foreign.contains("`tls_cert`"), "{foreign}");
    let nothing = start(&key, &empty);
    assert!(
        nothing.contains("`tls_ca`") && nothing.contains("no certificate"),
        "{nothing}"
    );
    let missing = start(&files.0.join("none"), &cert);
    assert!(
        missing.contains("`tls_key`") && missing.contains("cannot be read"),
        "{missing}"
    );
}
