//! Destruction and migration of identifiers, channels and events. Events of a destroyed identifier are not delivered.

use core::ptr;
use core::time::Duration;
use std::sync::mpsc;

use verbena_capi::abi::*;
use verbena_capi::cm::calls::*;
use verbena_testing::{Tid, wait_blocked};

use crate::tcp::tcp_rows_at;

use super::begin;
use crate::common::streams::{Channel, Client, Id, Server, connected};
use crate::common::{call, errno};

const SOON: Duration = Duration::from_millis(100);

#[test]
fn destroy_id_waits_for_event_acknowledgement() {
    begin();
    let server = Server::new(0);
    let (client, child) = connected(&server);
    assert_eq!(client.id.disconnect(), 0);
    let event = server.channel.expect(RDMA_CM_EVENT_DISCONNECTED);
    let (done, over) = mpsc::channel();
    let destroyer = std::thread::spawn(move || {
        drop(child);
        done.send(()).unwrap();
    });
    assert!(
        over.recv_timeout(SOON).is_err(),
        "its event is still looked at"
    );
    drop(event);
    over.recv_timeout(Duration::from_secs(10)).unwrap();
    destroyer.join().unwrap();
    client.channel.expect(RDMA_CM_EVENT_DISCONNECTED);
}

#[test]
fn destroy_id_removes_only_its_own_events() {
    begin();
    let server = Server::new(0);
    let (one, first) = connected(&server);
    let (two, second) = connected(&server);
    assert_eq!(one.id.disconnect(), 0);
    super::streams::wait("its end waits", || {
        crate::common::readable(server.channel.fd(), Duration::ZERO)
    });
    assert_eq!(two.id.disconnect(), 0);
    // Both ends wait in the channel, or the second is on its way; the first identifier is destroyed without taking its event.
    drop(first);
    assert!(second.is(&server.channel.expect(RDMA_CM_EVENT_DISCONNECTED)));
    server.channel.expect_no_event(SOON);
    for client in [&one, &two] {
        client.channel.expect(RDMA_CM_EVENT_DISCONNECTED);
    }
}

#[test]
fn destroyed_listener_rejects_waiting_requests() {
    begin();
    let server = Server::new(8);
    let at = server.at;
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let client = Client::resolved_to(at);
            assert_eq!(client.id.connect(b""), 0);
            client
        })
        .collect();
    // One request was taken, and is answered after the listener was destroyed.
    let asked = server.channel.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    let child = asked.id();
    drop(asked);
    let Server { id, channel, .. } = server;
    super::streams::wait("all requests are read", || {
        let rows = tcp_rows_at(at);
        rows.len() == clients.len() && rows.iter().all(|row| row.unread == 0)
    });
    drop(id);
    child.make_qp();
    assert_eq!(child.accept(b""), 0, "{}", errno());
    assert!(child.is(&channel.expect(RDMA_CM_EVENT_ESTABLISHED)));
    channel.expect_no_event(SOON);
    let mut kinds: Vec<_> = clients
        .iter()
        .map(|client| client.channel.next().get().event)
        .collect();
    kinds.sort_unstable();
    let (no, yes) = (RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_ESTABLISHED);
    assert_eq!(kinds, [no, no, no, yes]);
    let late = Client::resolved_to(at);
    assert_eq!(late.id.connect(b""), 0);
    late.channel.expect(RDMA_CM_EVENT_REJECTED);
}

#[test]
fn migrated_identifier_takes_pending_events_along() {
    begin();
    let server = Server::new(0);
    let (client, child) = connected(&server);
    let own = Channel::new();
    assert_eq!(client.id.disconnect(), 0);
    super::streams::wait("its end waits", || {
        crate::common::readable(server.channel.fd(), Duration::ZERO)
    });
    assert_eq!(call!(rdma_migrate_id(child.0, own.0)), 0);
    assert_eq!(child.channel(), own.0);
    assert!(child.is(&own.expect(RDMA_CM_EVENT_DISCONNECTED)));
    server.channel.expect_no_event(SOON);
    drop(child);

    // Later events go there, too.
    let (second, child) = connected(&server);
    assert_eq!(call!(rdma_migrate_id(child.0, own.0)), 0);
    assert_eq!(second.id.disconnect(), 0);
    assert!(child.is(&own.expect(RDMA_CM_EVENT_DISCONNECTED)));
    server.channel.expect_no_event(SOON);
    // A listener that is migrated takes its waiting requests along.
    let third = Client::resolved_to(server.at);
    assert_eq!(third.id.connect(b""), 0);
    super::streams::wait("a request waits", || {
        crate::common::readable(server.channel.fd(), Duration::ZERO)
    });
    assert_eq!(call!(rdma_migrate_id(server.id.0, own.0)), 0);
    let asked = own.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    let child = asked.id();
    assert_eq!(child.channel(), own.0);
    drop(asked);
    drop(child);
    third.channel.expect(RDMA_CM_EVENT_REJECTED);
    drop(server);
}

#[test]
fn identifier_destroyed_while_connecting_gets_no_event() {
    begin();
    let server = Server::new(64);
    for _ in 0..20 {
        let Client { id, channel } = Client::resolved_to(server.at);
        assert_eq!(id.connect(b""), 0);
        drop(id);
        channel.expect_no_event(Duration::from_millis(5));
    }
    // Some of them were taken, and are destroyed.
    while let Some(asked) = server.channel.try_next() {
        let child = asked.id();
        child.make_qp();
        let answered = child.accept(b"");
        drop(asked);
        if answered == 0 {
            // Told of the beginning and the end, or that there was none; requests that arrived meanwhile come before.
            let own = Channel::new();
            assert_eq!(call!(rdma_migrate_id(child.0, own.0)), 0);
            let first = own.next();
            assert!(child.is(&first));
            let kind = first.get().event;
            drop(first);
            if kind == RDMA_CM_EVENT_ESTABLISHED {
                own.expect(RDMA_CM_EVENT_DISCONNECTED);
            } else {
                assert_eq!(kind, RDMA_CM_EVENT_CONNECT_ERROR);
            }
            drop(child);
        }
    }
    drop(connected(&server));
}

#[test]
fn null_arguments_and_second_listen_are_refused() {
    begin();
    // SAFETY: all pointers are null, which each function checks before it dereferences them.
    unsafe {
        let none = ptr::null_mut();
        assert_eq!(rdma_ack_cm_event(ptr::null_mut()), -1);
        assert_eq!(rdma_destroy_id(ptr::null_mut()), -1);
        assert_eq!(rdma_get_cm_event(ptr::null_mut(), ptr::null_mut()), -1);
        rdma_destroy_event_channel(none);
        assert_eq!(rdma_connect(ptr::null_mut(), ptr::null_mut()), -1);
        assert_eq!(rdma_listen(ptr::null_mut(), 1), -1);
        assert_eq!(errno(), libc::EINVAL);
    }
    let channel = Channel::new();
    let id = Id::new(&channel);
    id.listen("127.0.0.1:0", 1);
    assert_eq!(call!(rdma_listen(id.0, 1)), -1, "twice");
    // A non-blocking channel without events.
    assert!(channel.try_next().is_none());
    assert_eq!(errno(), libc::EAGAIN);
}

/// InfiniBand's manager reports the end of the time wait, and some programs (tgtd) free a connection only then;
/// iWARP's does not.
#[test]
fn timewait_exit_is_raised_for_roce_only() {
    begin();
    let roce = crate::personality() == "roce";
    let server = Server::new(0);
    let (client, child) = connected(&server);
    assert_eq!(client.id.disconnect(), 0);
    for (id, channel) in [(&client.id, &client.channel), (&child, &server.channel)] {
        assert!(id.is(&channel.expect(RDMA_CM_EVENT_DISCONNECTED)));
    }
    if !roce {
        return client.channel.expect_no_event(Duration::from_secs(1));
    }
    for (id, channel) in [(&client.id, &client.channel), (&child, &server.channel)] {
        let event = channel.expect(RDMA_CM_EVENT_TIMEWAIT_EXIT);
        assert!(id.is(&event));
        assert_eq!(event.get().status, 0);
        channel.expect_no_event(SOON);
    }
    // No event for a destroyed identifier.
    let (client, child) = connected(&server);
    assert_eq!(client.id.disconnect(), 0);
    assert!(child.is(&server.channel.expect(RDMA_CM_EVENT_DISCONNECTED)));
    drop(child);
    client.channel.expect(RDMA_CM_EVENT_DISCONNECTED);
    client.channel.expect(RDMA_CM_EVENT_TIMEWAIT_EXIT);
    server.channel.expect_no_event(SOON);
}

/// rping destroys its channel while a thread waits on it, and ends with a failure if that thread's call returns one. The kernel's never does.
#[test]
fn thread_that_waits_on_a_destroyed_channel_waits_on() {
    begin();
    const ROUNDS: usize = 20;
    let (returned, codes) = mpsc::channel();
    for _ in 0..ROUNDS {
        let channel = Channel::new();
        let (waits, raw) = (returned.clone(), channel.0.expose_provenance());
        let (tell, started) = mpsc::channel();
        // Not joined: it waits until the process ends.
        std::thread::spawn(move || {
            let channel: *mut rdma_event_channel = ptr::with_exposed_provenance_mut(raw);
            let mut event = ptr::null_mut();
            tell.send(Tid::current()).unwrap();
            let code = call!(rdma_get_cm_event(channel, &raw mut event));
            let _ = waits.send((code, errno()));
        });
        // A channel that is destroyed before the call is no channel.
        wait_blocked(started.recv().unwrap());
        // The thread is woken as for an event that is then removed with its identifier.
        let one = 1_u64.to_ne_bytes();
        // SAFETY: the eight bytes are local, and the descriptor is the channel's.
        let written = unsafe { libc::write(channel.fd(), one.as_ptr().cast(), one.len()) };
        assert_eq!(written, 8);
        drop(channel);
    }
    assert_eq!(
        codes.recv_timeout(SOON),
        Err(mpsc::RecvTimeoutError::Timeout)
    );
}
