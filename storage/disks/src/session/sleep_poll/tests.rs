//! When a session polls before it sleeps.

use super::*;

#[test]
fn configured_polling_time_is_constant() {
    let time = Duration::from_micros(7);
    let mut polling = Polling::new(Some(time));
    for found in [false, true, false] {
        assert_eq!(polling.time(), time);
        polling.learn(found);
    }
    assert_eq!(Polling::new(Some(Duration::ZERO)).time(), Duration::ZERO);
}

/// Waits without polling until polling is tried again.
fn waits_without_poll(polling: &mut Polling) -> u32 {
    let mut waits = 0;
    while polling.time().is_zero() {
        waits += 1;
    }
    waits
}

#[test]
fn fruitless_polling_backs_off() {
    let mut polling = Polling::new(None);
    assert_eq!(waits_without_poll(&mut polling), 0, "it is tried at once");
    for skip in [2, 4, 8, 16, 32, 64, 64] {
        polling.learn(false);
        assert_eq!(waits_without_poll(&mut polling), skip);
    }
    polling.learn(true);
    assert_eq!(waits_without_poll(&mut polling), 0, "it pays again");
    polling.learn(false);
    assert_eq!(
        waits_without_poll(&mut polling),
        2,
        "one late answer is forgiven"
    );
}
