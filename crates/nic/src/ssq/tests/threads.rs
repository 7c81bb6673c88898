//! Many threads post and pump at once: everything posted completes once, and each thread's requests in order.

use std::sync::Mutex;

use super::*;

const POSTERS: u64 = 4;
const EACH: u64 = 300;

#[test]
fn concurrent_posters_lose_nothing_and_keep_order() {
    let wide = SsqLimits {
        requests: 32,
        ..limits()
    };
    let mut world = World::with(4, wide, Setup::default(), Limits::default());
    // Failed channels complete at once, so that no link is needed: every request is flushed in its turn.
    for (ours, _) in &world.pairs {
        ours.modify(QpState::Err, &mut world.out).unwrap();
    }
    let channels: Vec<u32> = (0..4).map(|at| world.channel(at)).collect();
    let (ssq, cq) = (&world.ssq, &world.cq);
    let seen = Mutex::new(Vec::new());
    let pump = || {
        let mut out = Outbox::new();
        ssq.pump(&mut |qp, out| qp.ring_doorbell(out), &mut out);
        while !out.take_woken().is_empty() {
            ssq.pump(&mut |qp, out| qp.ring_doorbell(out), &mut out);
        }
    };
    std::thread::scope(|scope| {
        for poster in 0..POSTERS {
            let (channels, seen, pump) = (&channels, &seen, &pump);
            scope.spawn(move || {
                for at in 0..EACH {
                    let channel = channels[((poster + at) % 4) as usize];
                    let wr = World::wr(poster << 32 | at, b"");
                    while let Err(error) = ssq.post(channel, &wr) {
                        assert_eq!(error, PostError::Full(32));
                        pump();
                    }
                    pump();
                    // Polled under the lock, so that the order of polling is the order seen.
                    let mut seen = seen.lock().unwrap();
                    seen.extend(poll(cq));
                }
            });
        }
    });
    pump();
    let mut seen = seen.into_inner().unwrap();
    seen.extend(poll(cq));
    assert_eq!(seen.len() as u64, POSTERS * EACH);
    let numbers = world.ssq.history(None);
    assert_eq!(numbers.last().unwrap().number, POSTERS * EACH - 1);
    for poster in 0..POSTERS {
        let own = seen.iter().filter(|wc| wc.id >> 32 == poster);
        let own: Vec<u64> = own.map(|wc| wc.id & 0xffff_ffff).collect();
        assert_eq!(
            own,
            Vec::from_iter(0..EACH),
            "each once, in its poster's order"
        );
    }
}
