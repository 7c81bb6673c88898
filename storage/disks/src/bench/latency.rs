//! A latency histogram with buckets about three per cent wide: constant size, sufficient for percentiles. Minimum and maximum are exact.

use std::time::Duration;

/// Buckets per power of two.
const BUCKETS_PER_OCTAVE: u32 = 32;
const BUCKET_BITS: u32 = BUCKETS_PER_OCTAVE.trailing_zeros();
const BUCKETS: usize = ((64 - BUCKET_BITS + 1) * BUCKETS_PER_OCTAVE) as usize;

/// A latency histogram.
#[derive(Debug, Clone)]
pub struct Latency {
    buckets: Box<[u64; BUCKETS]>,
    count: u64,
    min: u64,
    max: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Latency::new()
    }
}

impl Latency {
    /// An empty histogram.
    pub fn new() -> Latency {
        Latency {
            buckets: Box::new([0; BUCKETS]),
            count: 0,
            min: u64::MAX,
            max: 0,
        }
    }

    /// Adds a value.
    pub fn add(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(nanos)] += 1;
        self.count += 1;
        self.min = self.min.min(nanos);
        self.max = self.max.max(nanos);
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The minimum; zero if empty.
    pub fn min(&self) -> Duration {
        Duration::from_nanos(if self.count == 0 { 0 } else { self.min })
    }

    /// The maximum; zero if empty.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }

    /// The quantile: 0.5 for the median. At most about three per cent too large.
    pub fn quantile(&self, share: f64) -> Duration {
        let rank = (share.clamp(0.0, 1.0) * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                let end = upper_bound(at).clamp(self.min, self.max);
                return Duration::from_nanos(end);
            }
        }
        self.max()
    }
}

fn bucket(nanos: u64) -> usize {
    if nanos < u64::from(BUCKETS_PER_OCTAVE) {
        return nanos as usize;
    }
    let power = 63 - nanos.leading_zeros();
    let inside = (nanos >> (power - BUCKET_BITS)) as u32 & (BUCKETS_PER_OCTAVE - 1);
    ((power - BUCKET_BITS + 1) * BUCKETS_PER_OCTAVE + inside) as usize
}

/// The upper bound of a bucket.
fn upper_bound(at: usize) -> u64 {
    let (row, inside) = (
        at as u32 / BUCKETS_PER_OCTAVE,
        u64::from(at as u32 % BUCKETS_PER_OCTAVE),
    );
    if row == 0 {
        return inside;
    }
    let shift = row - 1;
    let first = (u64::from(BUCKETS_PER_OCTAVE) + inside) << shift;
    first + ((1_u64 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_falls_into_its_bucket() {
        for shift in 0..64 {
            for nanos in [
                1_u64 << shift,
                (1 << shift) + 1,
                (1_u64 << shift) - 1,
                !0 >> shift,
            ] {
                let at = bucket(nanos);
                assert!(nanos <= upper_bound(at), "{nanos}");
                assert!(at == 0 || upper_bound(at - 1) < nanos, "{nanos}");
                let wide = upper_bound(at) - nanos;
                assert!(wide <= nanos / u64::from(BUCKETS_PER_OCTAVE), "{nanos}");
            }
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_within_four_percent() {
        let mut latency = Latency::new();
        for micro in (1..=100).rev() {
            latency.add(Duration::from_micros(micro));
        }
        let close = |share: f64, micro: u64| {
            let (got, exact) = (latency.quantile(share), Duration::from_micros(micro));
            assert!(
                got >= exact && got <= exact.mul_f64(1.04),
                "{share} {got:?}"
            );
        };
        close(0.5, 50);
        close(0.99, 99);
        close(0.0, 1);
        assert_eq!(latency.quantile(1.0), Duration::from_micros(100));
        assert_eq!(latency.min(), Duration::from_micros(1));
        assert_eq!(
            (latency.max(), latency.count()),
            (Duration::from_micros(100), 100)
        );
    }

    #[test]
    fn empty_histogram_reports_zero() {
        let none = Latency::new();
        assert_eq!(
            [none.min(), none.quantile(0.5), none.max()],
            [Duration::ZERO; 3]
        );
    }
}
