//! Tests of handlers and listeners alone: ids, their reuse, and the route of an event.

use super::*;

fn new_route(handlers: &Handlers) -> HandlerRoute {
    handlers.add(&HandlerOptions::default()).unwrap().route()
}

/// Two threads remove the same handler, and a third registers a new one with its id in between.
#[test]
fn removing_a_handler_twice_keeps_its_successor() {
    let handlers = Handlers::new(1);
    let old = handlers.add(&HandlerOptions::default()).unwrap();
    handlers.remove(&old);
    let heir = new_route(&handlers);
    handlers.remove(&old);
    assert!(handlers.find_by_route(heir).is_some());
}

#[test]
fn reused_handler_id_is_a_new_handler() {
    let handlers = Handlers::new(1);
    let old = new_route(&handlers);
    assert!(handlers.find_by_route(old).is_some());
    let handler = handlers.find(HandlerId(0)).unwrap();
    handlers.remove(&handler);
    assert!(handlers.find_by_route(old).is_none());
    let new = new_route(&handlers);
    assert!(new.column == old.column && new != old);
    assert!(handlers.find_by_route(old).is_none() && handlers.find_by_route(new).is_some());
    assert_eq!(HandlerRoute::unpack(new.pack()), new);
}

#[test]
fn notification_is_routed_or_kept_until_attached() {
    let (handlers, listeners) = (Handlers::new(2), CqNotifications::default());
    let (one, two) = (new_route(&handlers), new_route(&handlers));
    assert_eq!(listeners.route(7, Reason::Next), None, "no such queue");
    listeners.add(7, Target::Attached(one));
    assert_eq!(listeners.route(7, Reason::Next), Some(one));
    assert_eq!(listeners.set_target(7, Target::Attached(two)), None);
    listeners.detach_all(one);
    assert_eq!(listeners.route(7, Reason::Next), Some(two));
    listeners.detach_all(two);
    assert_eq!(listeners.route(7, Reason::Failure), None);
    let owed = listeners.set_target(7, Target::Attached(one));
    assert_eq!(owed, Some(Reason::Failure));
    assert_eq!(listeners.set_target(7, Target::Attached(two)), None, "once");
}

/// A queue that gets a handler while that is being removed must not route its event in a loop.
#[test]
fn notification_for_a_removed_handler_is_kept() {
    let (handlers, listeners) = (Handlers::new(2), CqNotifications::default());
    let (gone, next) = (new_route(&handlers), new_route(&handlers));
    listeners.add(7, Target::Attached(gone));
    assert!(!listeners.reroute(7, gone, Reason::Next));
    assert_eq!(
        listeners.set_target(7, Target::Attached(next)),
        Some(Reason::Next)
    );
    assert!(
        listeners.reroute(7, gone, Reason::Next),
        "it goes elsewhere by now"
    );
    assert!(!listeners.reroute(8, gone, Reason::Next), "no such queue");
}
