//! The port of the device: its state is that of the network link, and its changes are asynchronous events.
//! The test runs in a network namespace of its own, with a pair of virtual Ethernet interfaces.

use crate::common::*;
use verbena_capi::abi::*;
use verbena_capi::verbs::*;

/// The state of the port by `ibv_query_port`, and by its file.
fn port_state(side: &Side) -> (u32, u8, String) {
    // SAFETY: the structure has integers only, for which zeros are valid.
    let mut attr: ibv_port_attr = unsafe { core::mem::zeroed() };
    assert_eq!(
        call!(ibv_query_port(side.context, 1, (&raw mut attr).cast())),
        0
    );
    let mut text = [0u8; 32];
    let read = call!(ibv_read_sysfs_file(
        c"/sys/class/infiniband/verbena0/ports/1".as_ptr(),
        c"state".as_ptr(),
        text.as_mut_ptr().cast(),
        text.len()
    ));
    let text = &text[..usize::try_from(read).expect("the file exists")];
    (
        attr.state,
        attr.phys_state,
        String::from_utf8_lossy(text).into_owned(),
    )
}

#[test]
fn link_changes_are_port_events() {
    verbena_testing::own_network!(("VERBENA_DEVICE", "198.51.100.1"));
    ip("link set lo up");
    ip("link add near type veth peer name far");
    ip("address add 198.51.100.1/24 dev near");
    ip("link set near up");
    ip("link set far up");
    // The kernel reports the carrier later.
    verbena_testing::wait_until("the link is up", || {
        ip("-o link show near").contains("state UP")
    });
    let side = Side::new(SideParams::default());
    let active = (IBV_PORT_ACTIVE, 5, "4: ACTIVE".to_owned());
    assert_eq!(port_state(&side), active);
    for (end, event_type, state) in [
        (
            "down",
            IBV_EVENT_PORT_ERR,
            (IBV_PORT_DOWN, 3, "1: DOWN".to_owned()),
        ),
        ("up", IBV_EVENT_PORT_ACTIVE, active),
    ] {
        ip(&format!("link set far {end}"));
        let mut event = side.event();
        assert_eq!(event.event_type, event_type);
        // SAFETY: port events carry the port's number.
        assert_eq!(unsafe { event.element.port_num }, 1);
        assert_eq!(port_state(&side), state);
        call!(ibv_ack_async_event(&raw mut event));
    }
}
