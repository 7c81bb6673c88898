//! The requests with which a host connects the channels of a link. A connectionless data channel is not connected: its number is in the
//! request for the control channel.

use crate::carrier::{Carrier, CarrierError};
use crate::channel_kinds::ChannelKinds;
use crate::hello::{Hello, MAX_NAME, connected_channels};
use crate::lane::Lane;
use crate::link::Link;
use crate::random;

/// Requests every channel of a link that is to be connected, as one new service connection. A name that is too long is shortened.
pub(crate) fn request_channels(
    carrier: &mut dyn Carrier,
    link: &Link,
    lane: Lane,
    name: &str,
) -> Result<(), CarrierError> {
    let mut name = name.to_owned();
    while name.len() > MAX_NAME {
        name.pop();
    }
    let options = link.options();
    let (arrangement, kinds) = (options.arrangement, options.kinds);
    let mut hello = Hello {
        service: random(),
        arrangement,
        channel: 0,
        lane,
        kinds: (kinds != ChannelKinds::of(arrangement)).then_some(kinds),
        data_pair: link.datagram_pair(),
        name,
    };
    for channel in 0..connected_channels(arrangement, kinds) {
        hello.channel = channel;
        if let Some(pair) = link.pair(channel) {
            carrier.connect(pair, &hello.to_bytes())?;
        }
    }
    Ok(())
}
