//! Checks of texts as the programs print them: each way to fail is recognized.

use super::super::case::Noise;
use super::*;

const LATENCY: &str = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]\n \
    2       1000          5.72           6029.91      1035.37  	       1326.34     	1434.27		4537.24 		6029.91\n----\n";
const BANDWIDTH: &str = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n \
    65536      1000             1210.00            1180.25		   0.018884\n";

#[test]
fn expected_end_has_no_findings() {
    let good = Side::new(["p"]).must_print("yes").must_not_print("no");
    assert!(side(&good, End::Code(0), "yes", "").is_empty());
}

#[test]
fn every_wrong_end_is_a_finding() {
    let ends = [
        End::Code(0),
        End::Code(1),
        End::Signal(9),
        End::Signal(11),
        End::TimedOut,
    ];
    let mut table = String::new();
    for wanted in [
        Ending::Success,
        Ending::Failure,
        Ending::Killed,
        Ending::FailureOrEndless,
        Ending::Endless,
    ] {
        let marks = ends.map(|end| {
            if ending(wanted, end).is_none() {
                "+"
            } else {
                "-"
            }
        });
        table += &format!("{wanted:?} {}\n", marks.concat());
    }
    assert_eq!(
        table,
        "Success +----\nFailure -+---\nKilled --+--\nFailureOrEndless -+--+\nEndless ----+\n"
    );
}

#[test]
fn missing_and_unwanted_text_are_findings() {
    let picky = Side::new(["p"]).must_print("yes").must_not_print("no");
    assert_eq!(side(&picky, End::Code(0), "no", "").len(), 2);
}

#[test]
fn unexcused_standard_error_is_a_finding() {
    let mut quiet = Side::new(["p"]);
    assert_eq!(side(&quiet, End::Code(0), "", "oh\n").len(), 1);
    let endless = quiet.clone().endless();
    assert_eq!(side(&endless, End::TimedOut, "", "oh\n").len(), 1);
    assert!(side(&endless, End::TimedOut, "", "").is_empty());
    quiet.noise.push(Noise {
        part: "oh",
        reason: "test",
    });
    assert!(side(&quiet, End::Code(0), "", "oh\n\n").is_empty());
    assert_eq!(side(&quiet, End::Code(0), "", "oh\nwell\n").len(), 1);
    // A side that must fail may print why.
    quiet.ending = Ending::Failure;
    assert!(side(&quiet, End::Code(1), "", "well\n").is_empty());
}

#[test]
fn figures_are_read_from_the_last_row() {
    assert_eq!(
        figure(Figure::Bandwidth, BANDWIDTH).unwrap(),
        "1180 MiB/s at 65536 B"
    );
    assert_eq!(
        figure(Figure::Latency(None), LATENCY).unwrap(),
        "1035.4 µs at 2 B"
    );
    assert!(figure(Figure::Latency(None), "nothing").is_err());
    let text = "10 iters in 0.44 seconds = 43.68 usec/iter\n";
    assert_eq!(figure(Figure::PerIteration, text).unwrap(), "43.68 µs");
}

#[test]
fn a_latency_above_its_limit_is_a_finding() {
    assert!(figure(Figure::Latency(Some(1000.0)), LATENCY).is_err());
    assert!(figure(Figure::Latency(Some(1100.0)), LATENCY).is_ok());
}
