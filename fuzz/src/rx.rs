//! The receive side of a stream on bytes, agreements, splits and answers of the fuzzer's choice (RFC 5040, 5041, 5044, docs/extensions.md).
//! It must never panic or stall, ask for more than the promised stage, or place a byte where no header and no claim allowed it;
//! after a violation it must say the answers it owes and one Terminate, and two splits of the same bytes must tell the same story.

mod bench;
mod config;
mod peer;
mod silence;

pub use peer::Peer;

use crate::source::Source;
use bench::Bench;
use config::Config;

/// Runs one input.
pub fn target(data: &[u8]) {
    let mut source = Source::new(data);
    let config = Config::read(&mut source);
    let mut peer = Peer::new(config.agreement.markers_rx, config.agreement.crc);
    let opening = config.opening(&mut peer);
    let bytes = if config.framed {
        peer.script(&mut source)
    } else {
        source.rest().to_vec()
    };
    let whole = run(&config, &opening, &bytes, usize::MAX, false);
    let split = run(&config, &opening, &bytes, config.chunk, config.direct);
    assert_eq!(whole, split, "the story depends on the split");
}

fn run(config: &Config, opening: &[u8], bytes: &[u8], chunk: usize, direct: bool) -> bench::Story {
    let mut bench = Bench::new(config, direct);
    bench.feed(opening, chunk);
    bench.ask();
    bench.feed(bytes, chunk);
    bench.end()
}
