//! One thing to measure: an operation, a size, and what of it counts.
//! It promises that both sides mean the same: a case travels in the private data of the connection that measures it.
//! It refuses numbers that no side could mean.

/// An operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Op {
    /// Send to a posted receive.
    Send,
    /// RDMA Write.
    Write,
    /// RDMA Read.
    Read,
    /// Fetch-and-add of eight bytes.
    Atomic,
}

/// What counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Metric {
    /// Time: half a round trip for Send and Write, a whole one for Read and Atomic.
    Latency,
    /// Bytes per second.
    Bandwidth,
    /// Messages per second.
    Rate,
}

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// What is done.
    pub op: Op,
    /// What counts.
    pub metric: Metric,
    /// Bytes per message.
    pub size: u32,
    /// Messages.
    pub count: u32,
    /// Messages under way at once.
    pub depth: u32,
}

const OPS: [Op; 4] = [Op::Send, Op::Write, Op::Read, Op::Atomic];
const METRICS: [Metric; 3] = [Metric::Latency, Metric::Bandwidth, Metric::Rate];

/// Largest message measured.
const MAX_SIZE: u32 = 64 << 20;

impl Op {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Op::Send => "send",
            Op::Write => "write",
            Op::Read => "read",
            Op::Atomic => "atomic",
        }
    }
}

impl Metric {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Latency => "latency",
            Metric::Bandwidth => "bandwidth",
            Metric::Rate => "rate",
        }
    }

    /// Its unit.
    pub fn unit(self) -> &'static str {
        match self {
            Metric::Latency => "us",
            Metric::Bandwidth => "GB/s",
            Metric::Rate => "M/s",
        }
    }
}

impl Case {
    /// Bytes in private data.
    pub const BYTES: usize = 14;

    /// The case as private data.
    pub fn to_bytes(self) -> [u8; Case::BYTES] {
        let mut bytes = [0; Case::BYTES];
        bytes[0] = OPS.iter().position(|op| *op == self.op).unwrap_or(0) as u8;
        bytes[1] = METRICS.iter().position(|m| *m == self.metric).unwrap_or(0) as u8;
        for (at, number) in [self.size, self.count, self.depth].into_iter().enumerate() {
            bytes[2 + 4 * at..6 + 4 * at].copy_from_slice(&number.to_be_bytes());
        }
        bytes
    }

    /// Reads a case; none if nobody can mean it.
    pub fn from_bytes(bytes: &[u8]) -> Option<Case> {
        let bytes: &[u8; Case::BYTES] = bytes.get(..Case::BYTES)?.try_into().ok()?;
        let number = |at: usize| {
            let field = &bytes[2 + 4 * at..6 + 4 * at];
            u32::from_be_bytes([field[0], field[1], field[2], field[3]])
        };
        let case = Case {
            op: *OPS.get(usize::from(bytes[0]))?,
            metric: *METRICS.get(usize::from(bytes[1]))?,
            size: number(0),
            count: number(1),
            depth: number(2),
        };
        let sane = case.size <= MAX_SIZE && case.count > 0 && (1..=4096).contains(&case.depth);
        sane.then_some(case)
    }
}

#[cfg(test)]
mod tests {
    //! A case both ways, and what is no case.

    use super::*;

    #[test]
    fn a_case_travels() {
        for op in OPS {
            for metric in METRICS {
                let case = Case {
                    op,
                    metric,
                    size: 1 << 20,
                    count: 77,
                    depth: 32,
                };
                assert_eq!(Case::from_bytes(&case.to_bytes()), Some(case));
            }
        }
    }

    #[test]
    fn nonsense_is_no_case() {
        let good = Case {
            op: Op::Send,
            metric: Metric::Rate,
            size: 64,
            count: 1,
            depth: 1,
        };
        assert_eq!(Case::from_bytes(&good.to_bytes()[..13]), None);
        for (at, byte) in [(0, 4), (1, 3), (2, 0xff), (10, 0xff)] {
            let mut bytes = good.to_bytes();
            bytes[at] = byte;
            assert_eq!(Case::from_bytes(&bytes), None, "byte {at}");
        }
    }
}
