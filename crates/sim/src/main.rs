//! The command `verbena-sim`.
use verbena_sim::run::{run, Tally};
fn main() {
    let (a, b): (u64, u64) = (std::env::args().nth(1).unwrap().parse().unwrap(), std::env::args().nth(2).unwrap().parse().unwrap());
    let mut t = Tally::default(); let mut bad = 0;
    for s in a..a + b { match run(s, None) { Ok(x) => t.add(&x), Err(f) => { bad += 1; println!("{f}") } } }
    println!("{bad} failed; {t}");
}
