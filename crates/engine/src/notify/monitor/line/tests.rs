//! Tests of the lines: every cause has its own text, and none breaks the format.

use super::*;

#[test]
fn every_cause_has_its_own_well_formed_line() {
    let (cq, srq, qp, port) = (1, 2, 3, 4);
    let completion = |reason| Cause::Rdma(Event::Completion { cq, reason });
    let channel = |what| Cause::Channel {
        channel: 5,
        what,
        count: 6,
    };
    let memory = |internal| Cause::MemoryError { internal, bank: 7 };
    let mut causes = vec![
        completion(Reason::Next),
        completion(Reason::Solicited),
        completion(Reason::Failure),
        Cause::CommandDone { command: 9 },
        channel(ChannelEvent::BuffersLow),
        channel(ChannelEvent::Returned),
        channel(ChannelEvent::IllegalPost),
        memory(true),
        memory(false),
        Cause::Link { port, up: true },
        Cause::Link { port, up: false },
        Cause::GeneralPurpose { pin: 8 },
        Cause::Overflow { queue: 0 },
        Cause::Management { parameter: 10 },
    ];
    let rdma = [
        Event::CqOverflow { cq },
        Event::SrqLimit { srq },
        Event::SrqError { srq },
        Event::QpRequest { qp },
        Event::QpAccess { qp },
        Event::QpFatal { qp },
        Event::Established { qp },
        Event::SqDrained { qp },
        Event::LastWqe { qp },
        Event::Disconnected { qp },
        Event::Missed { count: 12 },
    ];
    causes.extend(rdma.map(Cause::Rdma));
    let mut seen = Vec::new();
    for line in causes.into_iter().map(event).chain([missed(11)]) {
        let line = line.strip_suffix('\n').expect("one line");
        let words: Vec<&str> = line.split(' ').collect();
        assert!(words[0].parse::<f64>().unwrap() > 1e9, "{line}");
        assert!(words.len() >= 4 && !line.contains('\n'), "{line}");
        for pair in &words[3..] {
            let (key, value) = pair.split_once('=').expect(line);
            assert!(!key.is_empty() && !value.is_empty(), "{line}");
        }
        seen.push(words[1..].join(" "));
    }
    assert!(seen.contains(&"rdma srq_limit srq=2".to_owned()));
    assert!(seen.contains(&"monitor missed count=11".to_owned()));
    let all = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), all, "no two causes have the same words");
}
