//! Numbers that an outsider must not guess: initial sequence numbers, offsets of timestamps (RFC 6528), and SYN cookies (RFC 4987, 3.6).
//! All of them are keyed hashes of the connection's addresses, so nothing is remembered for those that never answer.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use hmac::{Hmac, Mac};
use sha2::Sha256;
use verbena_stream::Time;

use crate::tcp::Secrets;

/// A cookie is valid in the interval in which it was made and in the next one.
pub const COOKIE_INTERVAL: Duration = Duration::from_secs(64);
/// The segment sizes that a cookie can carry.
const SIZES: [u16; 8] = [536, 1220, 1300, 1400, 1440, 1460, 4312, 8940];
/// The step of the clock in initial sequence numbers.
const STEP: u64 = 4000;

/// Both ends of a connection: here, and there.
pub(crate) type Tuple = (SocketAddr, SocketAddr);

/// A random key.
#[derive(Clone)]
pub(crate) struct Key([u8; 32]);

impl core::fmt::Debug for Key {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    pub(crate) const fn new(random: [u8; 32]) -> Key {
        Key(random)
    }

    fn hash(&self, label: u8, tuple: &Tuple, extra: &[u8]) -> Option<[u8; 8]> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        mac.update(&[label]);
        for address in [tuple.0, tuple.1] {
            match address.ip() {
                IpAddr::V4(ip) => mac.update(&ip.to_ipv6_mapped().octets()),
                IpAddr::V6(ip) => mac.update(&ip.octets()),
            }
            mac.update(&address.port().to_be_bytes());
        }
        mac.update(extra);
        mac.finalize().into_bytes().first_chunk().copied()
    }

    /// The numbers of a new connection.
    pub(crate) fn secrets(&self, tuple: &Tuple, now: Time) -> Secrets {
        let [a, b, c, d, e, f, g, h] = self.hash(1, tuple, &[]).unwrap_or_default();
        let clock = (now.nanos() / STEP) as u32;
        Secrets {
            initial: u32::from_be_bytes([a, b, c, d]).wrapping_add(clock),
            timestamp_offset: u32::from_be_bytes([e, f, g, h]),
        }
    }

    /// The initial sequence number that stands for an answered SYN.
    pub(crate) fn cookie(&self, tuple: &Tuple, peer: u32, mss: u16, now: Time) -> u32 {
        let size = SIZES.iter().rposition(|&size| size <= mss).unwrap_or(0);
        self.cookie_at(tuple, peer, size, slot(now))
    }

    fn cookie_at(&self, tuple: &Tuple, peer: u32, size: usize, slot: u32) -> u32 {
        let size = size as u32 & 7;
        let [a, b, c, d] = peer.to_be_bytes();
        let extra = [a, b, c, d, (slot & 31) as u8, size as u8];
        let [e, f, g, ..] = self.hash(2, tuple, &extra).unwrap_or_default();
        (slot & 31) << 27 | size << 24 | u32::from_be_bytes([0, e, f, g])
    }

    /// The peer's segment size, if the acknowledged number is a cookie that is valid now.
    pub(crate) fn check(&self, tuple: &Tuple, peer: u32, cookie: u32, now: Time) -> Option<u16> {
        let size = (cookie >> 24 & 7) as usize;
        let slots = [slot(now), slot(now).wrapping_sub(1)];
        let is_valid = slots
            .iter()
            .any(|&slot| self.cookie_at(tuple, peer, size, slot) == cookie);
        SIZES.get(size).copied().filter(|_| is_valid)
    }
}

fn slot(now: Time) -> u32 {
    (now.nanos() / COOKIE_INTERVAL.as_nanos() as u64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(port: u16) -> Tuple {
        let here = SocketAddr::new("10.0.0.1".parse().unwrap(), 80);
        (here, SocketAddr::new("10.0.0.2".parse().unwrap(), port))
    }

    #[test]
    fn cookie_is_valid_for_its_connection_and_time() {
        let key = Key::new([7; 32]);
        let now = Time::ZERO + Duration::from_secs(100_000);
        for (mss, kept) in [(100, 536), (1460, 1460), (1448, 1440), (65535, 8940)] {
            let cookie = key.cookie(&tuple(1), 5, mss, now);
            let check = |port, peer, at| key.check(&tuple(port), peer, cookie, at);
            assert_eq!(check(1, 5, now), Some(kept));
            assert_eq!(check(1, 5, now + COOKIE_INTERVAL), Some(kept));
            assert_eq!(check(1, 5, now + 2 * COOKIE_INTERVAL), None);
            assert_eq!(check(2, 5, now), None);
            assert_eq!(check(1, 6, now), None);
            assert_eq!(Key::new([8; 32]).check(&tuple(1), 5, cookie, now), None);
        }
    }

    #[test]
    fn initial_numbers_differ_and_grow() {
        let key = Key::new([7; 32]);
        let now = Time::ZERO + Duration::from_secs(5);
        let first = key.secrets(&tuple(1), now);
        assert_ne!(first, key.secrets(&tuple(2), now));
        let later = key.secrets(&tuple(1), now + Duration::from_secs(1));
        assert_eq!(later.initial.wrapping_sub(first.initial), 250_000);
        assert_eq!(later.timestamp_offset, first.timestamp_offset);
    }
}
