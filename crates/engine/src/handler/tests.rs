//! Tests of handlers and listeners alone: ids, their reuse, and the route of an event.

use super::*;

fn way(handlers: &Handlers) -> Way {
    handlers.add(&HandlerOptions::default()).unwrap().way()
}

/// Two threads remove the same handler, and a third registers a new one with its id in between.
#[test]
fn removing_a_handler_twice_keeps_its_successor() {
    let handlers = Handlers::new(1);
    let old = handlers.add(&HandlerOptions::default()).unwrap();
    handlers.remove(&old);
    let heir = way(&handlers);
    handlers.remove(&old);
    assert!(handlers.on(heir).is_some());
}

#[test]
fn reused_handler_id_is_a_new_handler() {
    let handlers = Handlers::new(1);
    let old = way(&handlers);
    assert!(handlers.on(old).is_some());
    let handler = handlers.find(HandlerId(0)).unwrap();
    handlers.remove(&handler);
    assert!(handlers.on(old).is_none());
    let new = way(&handlers);
    assert!(new.column == old.column && new != old);
    assert!(handlers.on(old).is_none() && handlers.on(new).is_some());
    assert_eq!(Way::unpack(new.pack()), new);
}

#[test]
fn notification_is_routed_or_kept_until_attached() {
    let (handlers, listeners) = (Handlers::new(2), Listeners::default());
    let (one, two) = (way(&handlers), way(&handlers));
    assert_eq!(listeners.route(7, Reason::Next), None, "no such queue");
    listeners.add(7, Target::By(one));
    assert_eq!(listeners.route(7, Reason::Next), Some(one));
    assert_eq!(listeners.set_target(7, Target::By(two)), None);
    listeners.detach_all(one);
    assert_eq!(listeners.route(7, Reason::Next), Some(two));
    listeners.detach_all(two);
    assert_eq!(listeners.route(7, Reason::Failure), None);
    let owed = listeners.set_target(7, Target::By(one));
    assert_eq!(owed, Some(Reason::Failure));
    assert_eq!(listeners.set_target(7, Target::By(two)), None, "once");
}

/// A queue that gets a handler while that is being removed must not route its event in a loop.
#[test]
fn notification_for_a_removed_handler_is_kept() {
    let (handlers, listeners) = (Handlers::new(2), Listeners::default());
    let (gone, next) = (way(&handlers), way(&handlers));
    listeners.add(7, Target::By(gone));
    assert!(!listeners.reroute(7, gone, Reason::Next));
    assert_eq!(
        listeners.set_target(7, Target::By(next)),
        Some(Reason::Next)
    );
    assert!(
        listeners.reroute(7, gone, Reason::Next),
        "it goes elsewhere by now"
    );
    assert!(!listeners.reroute(8, gone, Reason::Next), "no such queue");
}
