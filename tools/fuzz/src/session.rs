//! A messaging session (docs/push.md) with a peer that sends anything: a script of messages, immediates, packets and calls.
//! The session must not panic, write to memory that the peer did not lend, report an element as arrived while it is held, or queue outputs
//! without bound.

use verbena_push::{
    Arrangement, Channel, Event, IndicationMode, Limits, Output, Packet, Session, Settings,
};
use verbena_split_wire::push::{Operation, Pool, Status};
use verbena_wire::{Stag, To};

use crate::source::Source;

/// The pool that the session lends: reference, elements, bytes of each.
const OWN: (u32, u32, u32) = (1, 8, 300);
const LIMITS: Limits = Limits {
    pools: 4,
    elements: 2000,
    transactions: 3,
    outputs: 400,
};

#[derive(Default)]
struct Accounting {
    lent: Vec<Pool>,
    inflight: Vec<Packet>,
    held: Vec<(u32, u32)>,
}

/// Runs one input: arrangement and naming, then steps of a code and its operands.
pub fn target(data: &[u8]) {
    let mut source = Source::new(data);
    let arrangement = Arrangement::ALL[usize::from(source.byte() % 3)];
    let namings = [
        IndicationMode::Immediate,
        IndicationMode::Element,
        IndicationMode::Address,
    ];
    let settings = Settings {
        indication: namings[usize::from(source.byte() % 3)],
        frame: 256,
        messages: 16,
        limits: LIMITS,
        ..Settings::new(arrangement)
    };
    let mut session = Session::new(settings).expect("good settings");
    let (reference, count, size) = OWN;
    let own = Pool {
        reference,
        count,
        size,
        handle: Stag::new(1),
        at: To::new(4096),
        context: 0,
    };
    session.advertise(&[own]).expect("a good pool");
    let mut books = Accounting::default();
    while !source.is_empty() {
        step(&mut session, &mut source, &mut books);
    }
    poll(&mut session, &mut books);
}

fn step(session: &mut Session, source: &mut Source<'_>, books: &mut Accounting) {
    let before = session.counters().violations.total();
    let code = source.byte();
    let violated = match code % 10 {
        0..4 => {
            let len = usize::from(source.byte());
            let bytes = source.slice(len);
            session.handle_message(Channel::Control, bytes).is_err()
        }
        4 => session
            .handle_immediate(Channel::Data, source.u32())
            .is_err(),
        5 => session
            .handle_packet(Channel::Data, u32::from(source.u16()))
            .is_err(),
        6 => {
            books.inflight.extend(session.send(u32::from(source.u16())));
            false
        }
        7 => {
            if let Some(packet) = books.inflight.pop() {
                session.handle_written(packet).expect("under way");
            }
            false
        }
        8 => {
            call(session, source.byte(), books);
            false
        }
        _ => {
            poll(session, books);
            false
        }
    };
    assert!(!violated || session.counters().violations.total() > before);
}

fn call(session: &mut Session, code: u8, books: &mut Accounting) {
    match code % 6 {
        0 => drop(session.flush(&[OWN.0])),
        1 => drop(session.release(u32::from(code >> 4))),
        2 => drop(session.request(Operation::GetMac, b"")),
        3 => session.refresh(),
        4 => session.handle_lost(Channel::Data, u32::from(code >> 4)),
        _ => {
            if let Some((pool, element)) = books.held.pop() {
                session.give_back(pool, element).expect("held");
            }
        }
    }
}

fn poll(session: &mut Session, books: &mut Accounting) {
    let mut polled = 0;
    while let Some(output) = session.poll() {
        polled += 1;
        // Each step adds the outputs of one message, and a refresh those that are pending.
        assert!(polled <= 3 * LIMITS.outputs, "outputs without end");
        judge(session, output, books);
    }
}

fn judge(session: &mut Session, output: Output, books: &mut Accounting) {
    let (reference, count, size) = OWN;
    match output {
        Output::Send(bytes) => assert!(bytes.len() <= 256),
        Output::Write {
            handle, at, len, ..
        } => {
            let within = |pool: &Pool| {
                let bytes = u64::from(pool.count) * u64::from(pool.size);
                let offset = at.get().checked_sub(pool.at.get());
                let fits =
                    offset.is_some_and(|offset| offset.saturating_add(u64::from(len)) <= bytes);
                pool.handle == handle && fits
            };
            assert!(books.lent.iter().any(within), "outside of every pool");
        }
        Output::Store {
            pool, element, len, ..
        } => assert!(pool == reference && element < count && len <= size),
        Output::Event(Event::PoolLent(pool)) => books.lent.push(pool),
        Output::Event(Event::Arrived { pool, element, len }) => {
            assert!(pool == reference && element < count && len <= size);
            assert!(
                !books.held.contains(&(pool, element)),
                "an element was accepted twice"
            );
            books.held.push((pool, element));
        }
        Output::Event(Event::Request { context, data, .. }) => {
            let data = &data[..data.len().min(200)];
            session.reply(context, Status::Ok, data).expect("asked");
        }
        _ => {}
    }
}
