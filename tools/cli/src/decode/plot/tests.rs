//! Tests of the plot of records: numbers that wrap, captures with more records than points, and streams that are not drawn.

use std::time::Duration;

use super::super::record::RoceFields;
use super::*;

fn record(number: u64, offset: u64, body: Body) -> Record {
    Record {
        time: Duration::from_millis(number),
        stream: 0,
        dir: Dir::ToResponder,
        kind: "Send",
        segments: 1,
        len: 1,
        offset,
        body,
    }
}

fn roce(psn: u32) -> Body {
    Body::Roce(Box::new(RoceFields {
        opcode: 4,
        qpn: "0x11".to_owned(),
        psn,
        words: String::new(),
        note: None,
        ack_request: false,
        icrc_ok: true,
        payload: None,
    }))
}

fn trouble() -> Body {
    Body::Trouble {
        message: "lost".to_owned(),
    }
}

#[test]
fn packet_numbers_go_on_past_their_end() {
    let mut direction = Direction::default();
    for (number, psn) in [0xff_fffe, 0xff_ffff, 0, 1, 0xff_ffff]
        .into_iter()
        .enumerate()
    {
        direction.add(&record(number as u64, psn, roce(psn as u32)));
    }
    let drawn: Vec<f64> = direction.points.iter().map(|point| point.1).collect();
    let first = f64::from(0xff_fffe);
    assert_eq!(drawn, [0.0, 1.0, 2.0, 3.0, 1.0].map(|ahead| first + ahead));
}

#[test]
fn long_captures_are_thinned_evenly() {
    let mut direction = Direction::default();
    let count = 10 * MAX_POINTS as u64 + 1;
    for number in 0..count {
        direction.add(&record(number, number, roce(0)));
    }
    assert!(direction.points.len() <= MAX_POINTS);
    assert!(direction.points.len() > MAX_POINTS / 3);
    let stride = direction.stride as f64 / 1000.0;
    let gaps = direction
        .points
        .windows(2)
        .map(|pair| pair[1].0 - pair[0].0);
    assert!(gaps.map(|gap| (gap - stride).abs()).all(|off| off < 1e-6));
}

#[test]
fn violations_are_drawn_among_many_records() {
    let mut plot = Plot::default();
    for number in 0..3 * MAX_POINTS as u64 {
        plot.add(&record(number, number, roce(0)));
    }
    plot.add(&record(5, 5, trouble()));
    assert!(plot.svg().contains(">violations and losses<"));
}

#[test]
fn panels_are_limited() {
    let mut plot = Plot::default();
    for stream in 0..2 * MAX_PANELS {
        plot.add(&Record {
            stream,
            ..record(0, 0, roce(0))
        });
    }
    let svg = plot.svg();
    assert_eq!(svg.matches("<g ").count(), MAX_PANELS);
    assert!(svg.contains("further streams are not drawn"));
}
