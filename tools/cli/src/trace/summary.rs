//! Latencies of a trace, and their table: medians and 99th percentiles. They are counted in buckets of less than two percent, so that memory does not grow
//! with the trace.

use core::fmt::Write;

/// Buckets of each power of two.
const FINE: u32 = 6;
const BUCKETS: usize = (64 - FINE as usize + 1) << FINE;

/// Times between two points.
#[derive(Debug, Clone)]
pub struct Latencies {
    buckets: Vec<u64>,
    count: u64,
    most: u64,
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies {
            buckets: vec![0; BUCKETS],
            count: 0,
            most: 0,
        }
    }
}

fn bucket(nanos: u64) -> usize {
    let high = 63_u32.saturating_sub(nanos.leading_zeros());
    let shift = high.saturating_sub(FINE);
    ((shift as usize) << FINE) + (nanos >> shift) as usize
}

/// The largest time of a bucket.
fn end_of(bucket: usize) -> u64 {
    let shift = (bucket >> FINE).saturating_sub(1) as u32;
    let fine = (bucket - ((shift as usize) << FINE)) as u64;
    (fine << shift) + ((1 << shift) - 1)
}

impl Latencies {
    /// Counts one.
    pub fn add(&mut self, nanos: u64) {
        if let Some(count) = self.buckets.get_mut(bucket(nanos)) {
            *count += 1;
        }
        self.count += 1;
        self.most = self.most.max(nanos);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The time that this part of them, in thousandths, does not exceed.
    pub fn percentile(&self, thousandths: u64) -> u64 {
        let wanted = (self.count.saturating_mul(thousandths))
            .div_ceil(1000)
            .max(1);
        let mut seen = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return end_of(at).min(self.most);
            }
        }
        self.most
    }
}

/// The latencies of a trace.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// From a post until the last byte of its message was given to the connection.
    pub sent: Latencies,
    /// From there until the frame arrived that acknowledges or answers it.
    pub acknowledged: Latencies,
    /// From a post to its completion.
    pub completed: Latencies,
    /// From a completion until it was polled.
    pub polled: Latencies,
    /// From a post until its last byte arrived in the other process, if that is traced, too.
    pub delivered: Latencies,
}

fn time(nanos: u64) -> String {
    match nanos {
        0..10_000 => format!("{}.{:02} us", nanos / 1000, nanos % 1000 / 10),
        10_000..10_000_000 => format!("{}.{} us", nanos / 1000, nanos % 1000 / 100),
        _ => format!("{}.{} ms", nanos / 1_000_000, nanos % 1_000_000 / 100_000),
    }
}

impl Summary {
    /// The table.
    pub fn table(&self) -> String {
        let rows = [
            ("post -> sent", &self.sent),
            ("sent -> acknowledged", &self.acknowledged),
            ("post -> completion", &self.completed),
            ("completion -> polled", &self.polled),
            ("post -> delivered", &self.delivered),
        ];
        let mut text = format!(
            "{:<22}{:>10}{:>14}{:>14}{:>14}\n",
            "LATENCY", "COUNT", "MEDIAN", "P99", "MOST"
        );
        for (name, all) in rows {
            let shown = |nanos| match all.count {
                0 => "-".to_owned(),
                _ => time(nanos),
            };
            let (median, p99) = (all.percentile(500), all.percentile(990));
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{name:<22}{:>10}{:>14}{:>14}{:>14}",
                all.count,
                shown(median),
                shown(p99),
                shown(all.most)
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_narrow_and_in_order() {
        assert!((0..200_000).is_sorted_by_key(bucket));
        let powers = (0..64).map(|n| 1_u64 << n);
        for nanos in (0..200_000).chain(powers).chain([u64::MAX]) {
            let at = bucket(nanos);
            assert!(at < BUCKETS, "{nanos}");
            let end = end_of(at);
            assert!(end >= nanos && end - nanos <= nanos / 64, "{nanos} {end}");
        }
    }

    #[test]
    fn percentiles_of_known_times() {
        let mut all = Latencies::default();
        assert_eq!(all.percentile(500), 0);
        for nanos in 1..=1000 {
            all.add(nanos);
        }
        let close = |got: u64, want: u64| got >= want && got <= want + want / 50;
        assert!(close(all.percentile(500), 500), "{}", all.percentile(500));
        assert!(close(all.percentile(990), 990), "{}", all.percentile(990));
        assert_eq!(all.percentile(1000), 1000);
    }
}
