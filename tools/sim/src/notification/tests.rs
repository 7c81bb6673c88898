//! Tests of the simulations of notification: seeds pass and are reproducible, and the checks detect errors.

use super::*;

#[test]
fn notification_seeds_pass_and_repeat() {
    let mut all = RunCounters::default();
    for seed in 0..500 {
        let one = run(seed).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(run(seed).unwrap(), one, "seed {seed}");
        all.add(&one);
    }
    assert!(all.events["notifications"] > 10_000, "{all}");
    assert!(all.events["disturbances"] > 10_000, "{all}");
}

#[test]
fn doubled_and_lost_notifications_are_found() {
    let world = World::new(1).unwrap();
    let reason = verbena_nic::Reason::Next;
    let cause = Cause::Rdma(Event::Completion { cq: 2, reason });
    let origin = Origin::new(At::Processor(0)).with_duty(Duty::Rdma);
    let _ = world.interrupts.raise(cause, origin, Time::ZERO).unwrap();
    assert_eq!(world.run().unwrap_err(), "queue 2 got a second event");
    let mut world = World::new(1).unwrap();
    world.consumers[3].expected = 1;
    assert_eq!(world.run().unwrap_err(), "1 notifications were lost");
}
