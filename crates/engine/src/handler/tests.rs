//! Tests of handlers and listeners alone: ids, their reuse, and the route of an event.

use super::*;

fn way(handlers: &Handlers) -> Way {
    handlers.add(&HandlerOptions::default()).unwrap().way()
}

/// Two threads remove the same handler, and a third registers a new one with its id in between.
#[test]
fn clearing_a_handler_leaves_its_heir_alone() {
    let handlers = Handlers::new(1);
    let old = handlers.add(&HandlerOptions::default()).unwrap();
    handlers.remove(&old);
    let heir = way(&handlers);
    handlers.remove(&old);
    assert!(handlers.on(heir).is_some());
}

#[test]
fn a_handler_is_not_taken_for_one_that_had_its_id_before() {
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
fn a_notification_goes_where_its_queue_says_or_is_kept() {
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
fn a_notification_for_nobody_is_kept() {
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
