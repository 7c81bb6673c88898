//! What holds for the models on any machine: the number of messages of each, and that every packet arrives.

use super::*;

fn rows(sizes: &[u32]) -> Vec<Row> {
    let plan = Plan {
        sizes: sizes.to_vec(),
        count: 120,
        rounds: 1,
    };
    run(&Config::default(), &plan, |_| ()).unwrap()
}

/// A Write and its Immediate Data are two messages, and elements are returned a quarter of a pool at a time.
#[test]
fn push_push_needs_the_fewest_messages() {
    for four in rows(&[64, 65_535]).chunks(4) {
        let of = |name: &str| four.iter().find(|row| row.model == name).unwrap();
        let push = of("push-push");
        assert!((2.0..2.3).contains(&push.messages), "{push:?}");
        assert!((2.4..2.7).contains(&of("push-pull").messages), "{four:?}");
        assert_eq!(of("pull-pull").messages, 3.0, "{four:?}");
        // Announcement, read request, read response, release.
        assert_eq!(of("read").messages, 4.0, "{four:?}");
        assert!(four.iter().all(|row| row.overhead > 0.0), "{four:?}");
    }
}

/// P7: one byte more, and the transfer is indicated by a message of its own.
#[test]
fn packets_beyond_indication_limit_are_delivered() {
    let four = rows(&[65_536]);
    let fewest = four.iter().map(|row| row.messages).fold(9.0, f64::min);
    assert_eq!(four[0].messages, fewest, "{four:?}");
    assert!((2.0..2.3).contains(&fewest), "{four:?}");
}

#[test]
fn packet_sizes_out_of_range_are_refused() {
    for size in [0, SHORTEST - 1, LONGEST + 1] {
        let plan = Plan {
            sizes: vec![64, size],
            count: 1,
            rounds: 1,
        };
        let error = run(&Config::default(), &plan, |_| ()).unwrap_err();
        assert!(error.to_string().contains(&size.to_string()), "{error}");
    }
    let plan = Plan {
        sizes: vec![SHORTEST],
        count: 0,
        rounds: 0,
    };
    assert_eq!(run(&Config::default(), &plan, |_| ()).unwrap().len(), 4);
}
