//! A shared key in connections by address: both sides reject a peer that cannot prove it, and replayed startup frames are useless.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, mpsc};

use hmac::{Hmac, Mac};
use sha2::Sha256;
use verbena_engine::security::access::RefusedBy;
use verbena_engine::{Engine, Error};
use verbena_nic::QpState;
use verbena_wire::ext::{Caps, DialReject, Features, KeyProof, Personality, QpType, RnrTimer};

use crate::common::mpa::mpa_request as request;
use crate::common::{
    Side, TEST_TIMEOUT, config, dial, exchange, loopback, make_qp, read_to_end, serialize_tests,
    try_connect_sides, wait,
};

const ONE: &str = "one of the keys of this test";
const TWO: &str = "two of the keys of this test";

fn with(key: Option<&str>) -> Side {
    let brief = ("startup_timeout", "2s");
    match key {
        Some(key) => Side::new(&[brief, ("key", key)]),
        None => Side::new(&[brief]),
    }
}

#[test]
fn same_keys_connect() {
    let _alone = serialize_tests();
    let (a, b) = (with(Some(ONE)), with(Some(ONE)));
    // The private data of programs is not changed, whatever its length.
    try_connect_sides(&a, &b, &[7; 200], b"").unwrap();
    exchange(&a, &b);
    assert_eq!(b.engine.access_list().refused(), 0);
    // Nor does the time limit for the proof end a connection that has been proven.
    let acceptor = b.engine.listen(loopback(), 16).unwrap();
    let silent = TcpStream::connect(acceptor.local_addr().unwrap()).unwrap();
    // Closed when the time limit of a later connection has passed.
    read_to_end(&silent);
    exchange(&a, &b);
}

#[test]
fn different_keys_do_not_connect() {
    let _alone = serialize_tests();
    for (one, two) in [(Some(ONE), Some(TWO)), (Some(ONE), None), (None, Some(ONE))] {
        let (a, b) = (with(one), with(two));
        let reported = Arc::new(Mutex::new(Vec::new()));
        let ours = reported.clone();
        b.engine.access_list().on_refusal(move |refusal| {
            ours.lock().unwrap().push((refusal.by, refusal.to_string()));
        });
        let acceptor = b.engine.listen(loopback(), 16).unwrap();
        let refused = dial(&a.qp, acceptor.local_addr().unwrap()).unwrap_err();
        let Error::Rejected { private_data, .. } = &refused else {
            panic!("{one:?} {two:?}: {refused}");
        };
        assert_eq!(DialReject::parse(private_data), Ok(DialReject::KeyMismatch));
        assert!(acceptor.try_next().unwrap().is_none(), "nothing was shown");
        let reported = reported.lock().unwrap();
        assert_eq!(reported.len(), 1);
        assert_eq!(reported[0].0, RefusedBy::Key);
        let wanted = "refused 127.0.0.1: it does not have the same `key` as this adapter";
        assert_eq!(reported[0].1, wanted);
    }
}

fn is_rejected(raw: &mut TcpStream) -> bool {
    let mut head = [0; 20];
    raw.read_exact(&mut head).unwrap();
    assert_eq!(&head[..16], b"MPA ID Rep Frame");
    head[16] & 0x20 != 0
}

#[test]
fn key_refuses_standard_peers_without_peers_entry() {
    let _alone = serialize_tests();
    let strict = with(Some(ONE));
    let acceptor = strict.engine.listen(loopback(), 16).unwrap();
    assert!(is_rejected(&mut request(
        acceptor.local_addr().unwrap(),
        b""
    )));
    assert_eq!(strict.engine.access_list().refused(), 1);
    let known = Side::new(&[("key", ONE), ("peers", "127.0.0.0/8=standard")]);
    let acceptor = known.engine.listen(loopback(), 16).unwrap();
    let _raw = request(acceptor.local_addr().unwrap(), b"");
    assert!(acceptor.next().unwrap().is_some());
}

/// The proof as docs/extensions.md describes it, without the adapter's code.
fn prove(words: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(ONE.as_bytes()).unwrap();
    words.iter().for_each(|word| mac.update(word));
    mac.finalize().into_bytes().into()
}

#[test]
fn replayed_request_delivers_no_message() {
    let _alone = serialize_tests();
    let b = with(Some(ONE));
    let acceptor = b.engine.listen(loopback(), 16).unwrap();
    let nonce = 0x0123_4567_89ab_cdef_u64;
    let keyed = KeyProof {
        nonce,
        proof: prove(&[b"VbKy request", &nonce.to_be_bytes(), b"hello"]),
    };
    let recorded = [&keyed.emit()[..], b"hello"].concat();
    for attempt in 0..3 {
        let mut raw = request(acceptor.local_addr().unwrap(), &recorded);
        let incoming = acceptor.next().unwrap().unwrap();
        assert_eq!(incoming.private_data(), b"hello");
        let qp = make_qp(&b.engine, &b.cq, b.pd);
        incoming.accept(&qp, b"welcome", |_| ()).unwrap();
        assert!(!is_rejected(&mut raw));
        let mut said = vec![0; 4 + KeyProof::LEN + 7];
        raw.read_exact(&mut said).unwrap();
        let (reply, private) = KeyProof::parse(&said[4..]).unwrap();
        assert_eq!(private, b"welcome");
        let words: [&[u8]; 4] = [
            b"VbKy reply",
            &nonce.to_be_bytes(),
            &reply.nonce.to_be_bytes(),
            private,
        ];
        assert_eq!(reply.proof, prove(&words));
        match attempt {
            // Silence.
            0 => {}
            // Anything but the frame that proves the key.
            1 => raw.write_all(&[0; 4096]).unwrap(),
            // The end of the stream.
            _ => raw.shutdown(std::net::Shutdown::Write).unwrap(),
        }
        read_to_end(&raw);
        assert_eq!(qp.view().counters.messages_in, 0);
    }
    // One that is changed on the way is rejected at once.
    let mut changed = recorded.clone();
    *changed.last_mut().unwrap() ^= 1;
    assert!(is_rejected(&mut request(
        acceptor.local_addr().unwrap(),
        &changed
    )));
}

/// CAPS with this nonce, as the first FPDU of a stream without checksums (docs/extensions.md).
fn first_frame(nonce: u64) -> Vec<u8> {
    let caps = Caps {
        version: Caps::VERSION,
        max_ulpdu: u16::MAX,
        features: Features::NONE,
        personality: Personality::Roce,
        qp_type: QpType::Rc,
        min_rnr_timer: RnrTimer::DEFAULT,
        ird: 16,
        nonce,
        same_host: None,
        path: None,
    };
    // Untagged, last; control message of kind 1 on queue 5, the first one.
    let mut ulpdu = vec![0x41, 0x4f, 1, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0];
    caps.emit(&mut ulpdu);
    let mut frame = (ulpdu.len() as u16).to_be_bytes().to_vec();
    frame.extend(ulpdu);
    frame.resize(frame.len().next_multiple_of(4) + 4, 0);
    frame
}

/// The first frame has the right form, but a nonce made without the key.
#[test]
fn wrong_first_frame_nonce_ends_the_stream() {
    let _alone = serialize_tests();
    let b = with(Some(ONE));
    let acceptor = b.engine.listen(loopback(), 16).unwrap();
    let nonce = 7_u64;
    let keyed = KeyProof {
        nonce,
        proof: prove(&[b"VbKy request", &nonce.to_be_bytes()]),
    };
    let mut raw = request(acceptor.local_addr().unwrap(), &keyed.emit());
    let qp = make_qp(&b.engine, &b.cq, b.pd);
    let incoming = acceptor.next().unwrap().unwrap();
    incoming.accept(&qp, b"", |_| ()).unwrap();
    assert!(!is_rejected(&mut raw));
    let mut said = vec![0; 4 + KeyProof::LEN];
    raw.read_exact(&mut said).unwrap();
    raw.write_all(&first_frame(0x5555_5555)).unwrap();
    wait("the queue pair has failed", || qp.state() == QpState::Err);
    assert!(qp.view().cause.unwrap().contains("knows the key"));
    read_to_end(&raw);
}

#[test]
fn responder_without_the_key_is_refused() {
    let _alone = serialize_tests();
    let a = with(Some(ONE));
    let listener = TcpListener::bind(loopback()).unwrap();
    let (done, notified) = mpsc::channel();
    let to = listener.local_addr().unwrap();
    a.qp.connect(to, b"", move |r| done.send(r).unwrap())
        .unwrap();
    let (mut raw, _) = listener.accept().unwrap();
    let mut asked = vec![0; 20 + 4 + KeyProof::LEN];
    raw.read_exact(&mut asked).unwrap();
    KeyProof::parse(&asked[24..]).unwrap();
    // The Request, sent back as a Reply that agrees to the extensions.
    let mut frame = b"MPA ID Rep Frame".to_vec();
    frame.extend([0x12, 2, 0, 52]);
    frame.extend(&asked[20..]);
    raw.write_all(&frame).unwrap();
    let error = notified.recv_timeout(TEST_TIMEOUT).unwrap().unwrap_err();
    assert!(matches!(error, Error::Unauthenticated { .. }), "{error}");
    read_to_end(&raw);
}

/// A key file that is removed on drop.
struct KeyFile(PathBuf);

impl KeyFile {
    fn new(name: &str, keys: &[&str], mode: u32) -> KeyFile {
        let id = std::process::id();
        let path = std::env::temp_dir().join(format!("verbena-rotation-{id}-{name}"));
        std::fs::write(&path, keys.join("\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        KeyFile(path)
    }

    fn side(&self) -> Side {
        Side::new(&[("key_file", self.0.to_str().unwrap())])
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The steps of docs/connections.md: after each, every pair of hosts that did or did not take it connects both ways.
#[test]
fn key_rotation_interrupts_no_connection() {
    let _alone = serialize_tests();
    let steps = [
        KeyFile::new("old", &[ONE], 0o600),
        KeyFile::new("added", &[ONE, TWO], 0o600),
        KeyFile::new("first", &[TWO, ONE], 0o600),
        KeyFile::new("new", &[TWO], 0o600),
    ];
    for pair in steps.windows(2) {
        for (one, two) in [(&pair[0], &pair[1]), (&pair[1], &pair[0])] {
            let (a, b) = (one.side(), two.side());
            try_connect_sides(&a, &b, b"hello", b"welcome").unwrap();
            exchange(&a, &b);
        }
    }
}

#[test]
fn engine_refuses_key_file_readable_by_others() {
    let file = KeyFile::new("open", &[ONE], 0o644);
    let error = Engine::new(config(&[("key_file", file.0.to_str().unwrap())])).unwrap_err();
    let sentence = error.to_string();
    let command = format!("chmod 600 {}", file.0.display());
    assert!(sentence.contains(&command), "{sentence}");
}
