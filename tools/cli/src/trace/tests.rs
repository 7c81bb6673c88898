//! Events that no honest program writes: the file stays JSON, memory stays bounded, and nothing reaches the terminal. Events that overtake each other find
//! together.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use verbena::Status;
use verbena::unstable::trace::record::{Frame, FrameKind, HEAD, What};
use verbena::unstable::{TraceEvent, WcOp};

use super::*;

/// A file of its own for each test.
struct File(PathBuf);

impl File {
    fn new() -> File {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("verbena-trace-{}-{count}.json", std::process::id());
        File(std::env::temp_dir().join(name))
    }

    fn output(&self, limit: u64) -> Output {
        Output::create(&self.0, limit).unwrap()
    }

    fn read(&self) -> Value {
        let text = std::fs::read_to_string(&self.0).unwrap();
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'));
        serde_json::from_str(&text).unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn random(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *state >> 11
}

#[test]
fn any_events_make_a_valid_file() {
    let file = File::new();
    let mut output = file.output(4 << 20);
    let (mut model, mut state, mut taken) = (Model::default(), 7, 0);
    while !output.is_full() {
        // Kinds, operations and states that exist, and small numbers, so that much is accepted and meets.
        let mut words: Words = core::array::from_fn(|_| {
            let (value, shape) = (random(&mut state), random(&mut state) % 4);
            if shape == 0 {
                (value << 11) | value
            } else {
                value % 5
            }
        });
        words[1] = (random(&mut state) % 15) | ((random(&mut state) % 3) << 8);
        words[1] |= ((random(&mut state) % 13) << 16) | ((random(&mut state) % 6) << 24);
        words[1] |= (random(&mut state) % 3) << 32;
        if let Some(record) = Record::parse(&words) {
            taken += 1;
            let source = (random(&mut state) % 2) as u32;
            model
                .add((source, source + 1), &record, &mut output)
                .unwrap();
        }
    }
    model.finish(&mut output).unwrap();
    output.finish("").unwrap();
    assert!(taken > 1000, "{taken}");
    let events = file.read()["traceEvents"].as_array().unwrap().len();
    assert!(events > 1000, "{events}");
    assert!(std::fs::metadata(&file.0).unwrap().len() <= 4 << 20);
}

#[test]
fn names_of_other_processes_are_escaped() {
    let file = File::new();
    let mut output = file.output(1 << 20);
    let hostile = "\x1b[31m\"},{\u{202e}\n\\".to_owned() + &"x".repeat(1000);
    output.metadata("process_name", 1, 1, &hostile).unwrap();
    output.flush().unwrap();
    let name = file.read()["traceEvents"][0]["args"]["name"].clone();
    let name = name.as_str().unwrap();
    assert!(
        name.starts_with("?[31m\"},{??\\xxx") && name.len() == 64,
        "{name}"
    );
}

#[test]
fn post_that_is_recorded_late_has_its_flow() {
    let file = File::new();
    let mut output = file.output(1 << 20);
    let mut model = Model::default();
    let (qp, number, id, op, len) = (2, 5, 6, WcOp::Send, 64);
    let mut head = [0; HEAD];
    // An FPDU of 100 bytes of ULPDU: 108 bytes.
    head[1] = 100;
    let fpdu = FrameKind::Fpdu {
        qp,
        connection: 1,
        position: 1000,
        markers: false,
    };
    let frame = |kind| {
        What::Frame(Frame {
            sent: true,
            kind,
            head,
        })
    };
    let events = [
        (
            20,
            1,
            What::Adapter(TraceEvent::Segmented {
                qp,
                number,
                end: 1108,
            }),
        ),
        (30, 1, frame(fpdu)),
        (
            10,
            2,
            What::Adapter(TraceEvent::PostSend {
                qp,
                wc_qpn: qp,
                number,
                id,
                op,
                len,
                signaled: true,
            }),
        ),
        (
            40,
            1,
            What::Adapter(TraceEvent::Ended {
                qp,
                number,
                id,
                op,
                status: Status::Success,
                len,
                entry: true,
            }),
        ),
        (
            41,
            1,
            What::Adapter(TraceEvent::Completion {
                cq: 1,
                position: 0,
                wc_qpn: qp,
                id,
                op,
                status: Status::Success,
                len,
            }),
        ),
    ];
    for (nanos, thread, what) in events {
        let record = Record {
            nanos,
            thread,
            what,
        };
        model.add((0, 1), &record, &mut output).unwrap();
    }
    model.finish(&mut output).unwrap();
    output.finish("").unwrap();
    let all = file.read();
    let phases = |phase: &str| {
        let events = all["traceEvents"].as_array().unwrap();
        let of = events.iter().filter(|event| event["ph"] == phase);
        of.map(|event| event["ts"].as_f64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (phases("s"), phases("t"), phases("f")),
        (vec![0.01], vec![0.03], vec![0.041])
    );
    assert_eq!(
        model.summary.sent.count(),
        0,
        "the post was not known when it was sent"
    );
    assert_eq!(model.summary.completed.percentile(500), 31);
}

#[test]
fn events_are_put_in_order_across_turns() {
    let mut waiting = Waiting::default();
    let event = |nanos| {
        let what = What::Woken {
            since: 0,
            place: verbena::unstable::trace::record::SleepPlace::Shard,
        };
        let thread = 1;
        (
            0,
            1,
            Record {
                nanos,
                thread,
                what,
            },
        )
    };
    let mut taken = Vec::new();
    for turn in [&[5, 1, 9][..], &[7, 8, 2], &[], &[12, 10], &[11]] {
        waiting.all.extend(turn.iter().map(|nanos| event(*nanos)));
        waiting.sort();
        while let Some((.., record)) = waiting.take(6) {
            taken.push(record.nanos);
        }
    }
    assert_eq!(taken, [1, 5, 2], "2 came when 5 had been written");
    while let Some((.., record)) = waiting.take(u64::MAX) {
        taken.push(record.nanos);
    }
    assert_eq!(taken[3..], [7, 8, 9, 10, 11, 12]);
    assert_eq!(waiting.len(), 0);
}
