//! Two processes race for shared words (V1): the words are passed as a descriptor, and each is taken by exactly one.

use std::time::Duration;

use verbena_engine::sys::{Claims, FdChannel, HandoverListener};

use crate::common::process::{Peer, print_line, read_line};

/// Words to race for, and one more that starts the race.
const WORDS: usize = 10_000;
const PARENT: u64 = 1;
const CHILD: u64 = 2;
const LONG: Duration = Duration::from_secs(20);

/// Role `rival`.
pub(crate) fn race_as_child(settings: &[(String, String)]) {
    let mut fd_channel = FdChannel::connect(settings[0].1.as_ref()).unwrap();
    let (bytes, mut came) = fd_channel.receive().unwrap();
    assert_eq!((&bytes[..], came.len()), (&b"race"[..], 1));
    let claims = Claims::adopt(came.remove(0)).unwrap();
    assert_eq!(claims.len(), WORDS + 1);
    fd_channel.send(b"ready", &[]).unwrap();
    while claims.load(WORDS) == Ok(0) {
        std::hint::spin_loop();
    }
    print_line(&race(&claims, CHILD).to_string());
    read_line();
}

/// Takes as many words as possible; returns how many.
fn race(claims: &Claims, id: u64) -> usize {
    (0..WORDS)
        .filter(|at| claims.take(*at, 0, id).is_ok())
        .count()
}

#[test]
fn each_word_is_taken_by_one_process() {
    let path = std::env::temp_dir().join(format!("verbena-claims-{}", std::process::id()));
    let handover_listener = HandoverListener::bind(&path).unwrap();
    let mut rival = Peer::start("rival", &[("at", path.to_str().unwrap())]);
    let mut fd_channel = handover_listener.accept(LONG).unwrap().unwrap();
    fd_channel.set_timeouts(LONG, LONG);
    let claims = Claims::new(WORDS + 1).unwrap();
    fd_channel.send(b"race", &[claims.fd()]).unwrap();
    assert_eq!(fd_channel.receive().unwrap().0, b"ready");
    claims.take(WORDS, 0, 1).unwrap();
    let ours = race(&claims, PARENT);
    let theirs: usize = rival.read_line().parse().unwrap();
    let held = |id| (0..WORDS).filter(|at| claims.load(*at) == Ok(id)).count();
    assert_eq!(ours + theirs, WORDS, "each exactly once");
    assert_eq!((held(PARENT), held(CHILD)), (ours, theirs));
}
