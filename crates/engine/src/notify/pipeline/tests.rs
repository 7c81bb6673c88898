//! Tests of the pipeline of an adapter that is down.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::*;
use crate::config::Config;
use crate::engine::Engine;
use crate::notify::handler::HandlerOptions;

/// E2: an event that could not be reported. Sleeping threads are woken, and new requests fail with the reason.
#[test]
fn failed_adapter_refuses_requests_and_shuts_down() {
    let config = Config::from_parts(None, core::iter::empty()).unwrap();
    let engine = Engine::new(config).unwrap();
    let cq = engine.create_cq(16).unwrap();
    let woken = Arc::new(AtomicBool::new(false));
    let wake = woken.clone();
    let listens = move || wake.store(true, Ordering::Relaxed);
    cq.set_notify(Some(Arc::new(listens)));
    engine.core.notification.interrupts.destroy(0).unwrap();
    let lost = engine.inject(Cause::GeneralPurpose { pin: 0 }, Origin::UNSPECIFIED);
    assert!(matches!(lost, Err(Error::Interrupts(_))), "{lost:?}");
    assert!(woken.load(Ordering::Relaxed));
    let refused = [
        engine.create_cq(16).map(drop).unwrap_err(),
        engine.create_control(None, 1).map(drop).unwrap_err(),
        engine
            .set_handler(&HandlerOptions::default())
            .map(drop)
            .unwrap_err(),
    ];
    for error in refused {
        assert!(error.to_string().contains("the adapter is down"), "{error}");
    }
    engine.shut_down(Duration::ZERO).unwrap();
    let twice = engine.shut_down(Duration::ZERO);
    assert!(matches!(twice, Err(Error::Closed)), "{twice:?}");
}
