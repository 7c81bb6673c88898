//! What is measured, and the numbers of several rounds: their median, and their spread.
//! A round without a number is counted as lost and not as zero. Medians are used because one outlier must not change a figure.

use serde::Serialize;

use crate::median::median;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Measure {
    /// Half a round trip; a whole one for a read.
    Latency,
    Bandwidth,
    /// Messages per second.
    Rate,
    /// Bandwidth and memory of many connections; the size is their number.
    Connections,
    /// Wake-ups of an idle connection.
    Idle,
    /// Half a round trip over RoCEv2, TCP and plain UDP.
    RoceLatency,
    /// Bandwidth over RoCEv2, TCP and plain UDP.
    RoceBandwidth,
    /// Half a round trip through shared memory.
    ShmLatency,
    /// Bandwidth through shared memory.
    ShmBandwidth,
    /// Messages per second through shared memory.
    ShmRate,
}

impl Measure {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Measure::Latency => "latency",
            Measure::Bandwidth => "bandwidth",
            Measure::Rate => "rate",
            Measure::Connections => "connections",
            Measure::Idle => "idle",
            Measure::RoceLatency => "roce-latency",
            Measure::RoceBandwidth => "roce-bandwidth",
            Measure::ShmLatency => "shm-latency",
            Measure::ShmBandwidth => "shm-bandwidth",
            Measure::ShmRate => "shm-rate",
        }
    }

    /// Both sides are processes of one host that share memory.
    pub(crate) fn is_shared_memory(self) -> bool {
        matches!(
            self,
            Measure::ShmLatency | Measure::ShmBandwidth | Measure::ShmRate
        )
    }

    pub(crate) fn is_latency(self) -> bool {
        matches!(
            self,
            Measure::Latency | Measure::RoceLatency | Measure::ShmLatency
        )
    }

    pub(crate) fn is_rate(self) -> bool {
        matches!(self, Measure::Rate | Measure::ShmRate)
    }

    pub(crate) fn unit(self) -> &'static str {
        match self {
            Measure::Latency | Measure::RoceLatency | Measure::ShmLatency => "µs",
            Measure::Bandwidth
            | Measure::Connections
            | Measure::RoceBandwidth
            | Measure::ShmBandwidth => "GB/s",
            Measure::Rate | Measure::ShmRate => "M/s",
            Measure::Idle => "wake-ups",
        }
    }
}

/// The result of one run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Sample {
    /// In the measure's unit.
    pub(crate) value: f64,
    /// Processor seconds of both sides per gigabyte carried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu: Option<f64>,
    /// Bytes of resident memory per connection, on the side that needs more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory: Option<f64>,
}

impl Sample {
    pub(crate) fn of(value: f64) -> Sample {
        Sample {
            value,
            ..Sample::default()
        }
    }
}

/// The rounds of one case.
#[derive(Debug, Clone, Default)]
pub(crate) struct Series {
    pub(crate) samples: Vec<Sample>,
    /// Why rounds have no number.
    pub(crate) lost: Vec<String>,
}

impl Series {
    pub(crate) fn value(&self) -> Option<f64> {
        median(self.samples.iter().map(|sample| sample.value))
    }

    pub(crate) fn cpu(&self) -> Option<f64> {
        median(self.samples.iter().filter_map(|sample| sample.cpu))
    }

    pub(crate) fn memory(&self) -> Option<f64> {
        median(self.samples.iter().filter_map(|sample| sample.memory))
    }

    /// The smallest and the largest.
    pub(crate) fn spread(&self) -> Option<(f64, f64)> {
        let values = || self.samples.iter().map(|sample| sample.value);
        let least = values().min_by(f64::total_cmp)?;
        Some((least, values().max_by(f64::total_cmp)?))
    }
}

/// A number with about three digits.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 || v == 0.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_reports_median_and_spread() {
        let mut series = Series::default();
        assert_eq!((series.value(), series.spread()), (None, None));
        for value in [5.0, 4.0, 9.0] {
            let cpu = (value > 4.0).then_some(value / 10.0);
            series.samples.push(Sample {
                cpu,
                ..Sample::of(value)
            });
        }
        assert_eq!(series.value(), Some(5.0));
        assert_eq!(series.spread(), Some((4.0, 9.0)));
        assert_eq!(series.cpu(), Some(0.7));
        assert_eq!(series.memory(), None);
    }

    #[test]
    fn numbers_have_few_digits() {
        let said = [0.0, 0.01234, 0.5678, 12.345, 6789.1].map(number);
        assert_eq!(said, ["0", "0.0123", "0.57", "12.3", "6789"]);
    }
}
