//! The receive side of a stream, with bytes, agreement, splits and answers from the input (RFC 5040, 5041, 5044, docs/extensions.md).
//! It must not panic or stall, ask for more bytes than the stage holds, or place a byte that no header and no claim allow. After a violation
//! it must send the responses it owes and one Terminate, and two splits of the same bytes must have the same events.

mod config;
mod harness;
mod output_rules;
mod peer;

pub use peer::Peer;

use crate::source::Source;
use config::Config;
use harness::Harness;

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
    assert_eq!(whole, split, "the result depends on the split");
}

fn run(
    config: &Config,
    opening: &[u8],
    bytes: &[u8],
    chunk: usize,
    direct: bool,
) -> harness::StepTrace {
    let mut bench = Harness::new(config, direct);
    bench.feed(opening, chunk);
    bench.send_reads();
    bench.feed(bytes, chunk);
    bench.end()
}
