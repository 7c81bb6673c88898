//! What a completion says of a datagram's first 40 bytes.
//! It promises the numbers that UCX looks for.
//! It needs no adapter.

use super::*;

#[test]
fn the_service_level_tells_the_header_of_a_datagram() {
    let mut wc = Wc::BLANK;
    assert_eq!((of(&wc).sl, of(&wc).wc_flags), (0, 0));
    wc.grh = true;
    assert_eq!((of(&wc).sl, of(&wc).wc_flags), (0b1001, IBV_WC_GRH));
    wc.ipv4 = true;
    assert_eq!(of(&wc).sl, 0b1010);
}
