//! Pictures of `verbena bench --plot` and `verbena decode --plot`: which panels and series they have, and files that cannot be written.

use std::path::PathBuf;
use std::process::{Command, Output};

const VERBENA: &str = env!("CARGO_BIN_EXE_verbena");

/// A file of this test's own, removed when it is dropped.
struct Picture(PathBuf);

impl Picture {
    fn new(name: &str) -> Picture {
        let name = format!("verbena-plot-{}-{name}.svg", std::process::id());
        Picture(std::env::temp_dir().join(name))
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap()
    }
}

impl Drop for Picture {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn capture(name: &str) -> String {
    format!("{}/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn verbena(args: &[&str]) -> Output {
    Command::new(VERBENA).args(args).output().unwrap()
}

#[test]
fn capture_is_drawn_for_each_direction() {
    let picture = Picture::new("decode");
    let file = picture.0.to_str().unwrap();
    let run = verbena(&["decode", &capture("11_perftest_send.pcap"), "--plot", file]);
    assert!(run.status.success(), "{run:?}");
    let svg = picture.text();
    let title = |from: &str| format!("stream 0, from the {from}");
    assert!(svg.contains(&title("initiator")) && svg.contains(&title("responder")));
    assert!(svg.contains(">Send</text>"), "{svg}");
    assert!(
        svg.matches("r=\"1.5\"").count() > 10,
        "one point per record"
    );
}

#[test]
fn bench_is_drawn_beside_plain_tcp() {
    let picture = Picture::new("bench");
    let file = picture.0.to_str().unwrap();
    let load = ["send", "--metric", "latency", "--size", "8,4k", "-n", "50"];
    let mut args = vec!["bench", "--rounds", "1", "--baseline", "--plot", file];
    args.extend(load);
    let run = verbena(&args);
    assert!(run.status.success(), "{run:?}");
    let svg = picture.text();
    for text in ["latency (us)", ">send<", ">send over plain TCP<", ">4Ki<"] {
        assert!(svg.contains(text), "{text}: {svg}");
    }
    assert_eq!(svg.matches("<polyline").count(), 2);
}

#[test]
fn picture_that_cannot_be_written_is_an_error() {
    let nowhere = "/nonexistent/folder/picture.svg";
    let run = verbena(&[
        "decode",
        &capture("11_perftest_send.pcap"),
        "--plot",
        nowhere,
    ]);
    assert_eq!(run.status.code(), Some(2), "{run:?}");
    let said = String::from_utf8(run.stderr).unwrap();
    assert!(said.contains(&format!("cannot write {nowhere}")), "{said}");
}
