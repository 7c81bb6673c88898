//! Tests of the state of a connection between processes: numbers that do not fit are refused.
//! The image inside has tests of its own.

use core::time::Duration;

use verbena_stream::RnrRetry;
use verbena_wire::ext::RnrTimer;

use super::*;

fn state(oob_qpn: Option<u32>) -> MigrationState {
    MigrationState {
        image: Vec::new(),
        early: Vec::new(),
        peer: SocketAddr::from(([127, 0, 0, 1], 7)),
        nudge: 0,
        attrs: QpAttr {
            rnr_retry: RnrRetry::Forever,
            rnr_timer: RnrTimer::DEFAULT,
            peer_timeout: None,
            grace: Duration::ZERO,
            ird: None,
            ord: None,
            traffic_class: None,
            path_mtu: None,
            ack_timeout: None,
            retry_count: None,
            psns: None,
        },
        oob_qpn,
        descriptors: 1,
    }
}

#[test]
fn number_beyond_24_bits_is_refused() {
    assert_eq!(state(None).oob_qpn().unwrap(), None);
    let last = 0xff_ffff;
    assert_eq!(state(Some(last)).oob_qpn().unwrap(), Qpn::new(last));
    for number in [last + 1, u32::MAX] {
        let refused = state(Some(number)).oob_qpn();
        assert!(
            matches!(refused, Err(Error::Image(ImageError::Invalid))),
            "{refused:?}"
        );
    }
}
