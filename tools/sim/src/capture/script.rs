//! The contents of the capture: three short connections that together use every kind of message.
//! There is one RNR, READY, RESUME episode and one Terminate for an invalid STag. The links have no faults.

use core::time::Duration;

use verbena_stream::Terms;
use verbena_wire::mpa::enhanced::RtrKinds;

use crate::link::LinkOptions;
use crate::peer::Profile;
use crate::plan::{Builder, Gate, Plan};
use crate::rng::Rng;
use crate::session::Session;

/// Latency of a packet.
const LATENCY: Duration = Duration::from_micros(40);

pub(super) fn sessions(rng: &mut Rng) -> Vec<Session> {
    let ours = Profile::default();
    let standard = Profile {
        terms: Terms {
            extensions: false,
            rtr: RtrKinds {
                send: false,
                write: true,
                read: true,
            },
            ..Terms::default()
        },
        ..Profile::default()
    };
    vec![
        session(rng, &ours, "everything two Verbena adapters say", full),
        session(rng, &ours, "a write to nowhere", refused),
        session(rng, &standard, "a standard peer", plain),
    ]
}

fn session(rng: &mut Rng, profile: &Profile, topic: &str, plan: impl Fn(&mut Builder)) -> Session {
    let mut builder = Builder::new(rng.fork(), 8_000);
    plan(&mut builder);
    let link = LinkOptions {
        latency: (LATENCY, LATENCY),
        ..LinkOptions::without_faults()
    };
    let says = |who: &str| Profile {
        private_data: format!("{who}: {topic}").into_bytes(),
        ..profile.clone()
    };
    Session {
        profiles: [says("initiator"), says("responder")],
        links: [link.clone(), link],
        reset_after: None,
        plan: supplied(builder),
    }
}

/// Posts all receives at once, but for the seventh, which is posted after it was missed.
fn supplied(builder: Builder) -> Plan {
    builder.supply(|_, k| match k {
        6 => (Gate::Refused(1), Duration::from_micros(300)),
        _ => (Gate::Open, Duration::ZERO),
    })
}

fn full(b: &mut Builder) {
    b.depth(0, 4);
    b.send_as(0, 64, false, false, false);
    b.send_as(0, 300, true, false, false);
    b.send_as(0, 20, false, true, false);
    b.send_as(0, 21, true, true, false);
    b.send_as(0, 2000, true, false, true);
    b.write(0, 5000);
    b.write_imm(0, 700);
    b.read(0, 3000, false);
    b.read(0, 2000, true);
    b.atomic(0);
    b.atomic(0);
    // The seventh receive is missing: this Send and what follows must be sent twice.
    b.send_as(0, 100, false, false, false);
    b.write(0, 900);
    b.after(Gate::Received(1), Duration::ZERO);
    b.send_as(0, 10, false, false, false);
    b.after(Gate::Received(3), Duration::ZERO);
    b.send_as(1, 40, false, false, false);
    b.write(1, 1200);
    b.read(1, 100, false);
}

fn refused(b: &mut Builder) {
    b.send_as(0, 30, false, false, false);
    b.write_unregistered(0);
    b.after(Gate::Received(1), Duration::ZERO);
    b.send_as(1, 31, false, false, false);
}

fn plain(b: &mut Builder) {
    b.send_as(0, 64, false, false, false);
    b.send_as(0, 65, true, true, false);
    b.write(0, 4000);
    b.write_imm(0, 50);
    b.read(0, 2500, false);
    b.atomic(0);
    b.after(Gate::Received(2), Duration::ZERO);
    b.send_as(1, 1000, false, false, false);
    b.write(1, 128);
    b.read(1, 16, false);
}
