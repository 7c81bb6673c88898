//! One measurement: an operation, a size, and a metric. Both sides use the same case, since it is sent in the private data of the
//! connections; values outside the limits are rejected.

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
    /// The operation.
    pub op: Op,
    /// The metric.
    pub metric: Metric,
    /// Bytes per message.
    pub size: u32,
    /// Messages.
    pub count: u32,
    /// Messages outstanding on each connection.
    pub depth: u32,
    /// Connections that the messages are spread over; with several threads, connections of each thread.
    pub qps: u32,
    /// Threads that poll, on each side.
    pub threads: u32,
    /// All threads of a side poll one completion queue; otherwise each has its own.
    pub one_cq: bool,
    /// Arrivals of writes are detected in memory only: the completion queue is polled only for several completions together.
    pub poll_memory: bool,
}

const OPS: [Op; 4] = [Op::Send, Op::Write, Op::Read, Op::Atomic];
const METRICS: [Metric; 3] = [Metric::Latency, Metric::Bandwidth, Metric::Rate];

/// Largest message measured.
const MAX_SIZE: u32 = 64 << 20;

/// Most connections at once.
pub const MAX_QPS: u32 = 1024;

/// Most polling threads on each side.
pub const MAX_THREADS: u32 = 256;

/// Most messages outstanding on all connections together.
pub const MAX_OUTSTANDING: u32 = 1 << 16;

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
    /// Bytes of its encoding.
    pub const BYTES: usize = 23;

    /// Its encoding as private data.
    pub fn to_bytes(self) -> [u8; Case::BYTES] {
        let mut bytes = [0; Case::BYTES];
        bytes[0] = OPS.iter().position(|op| *op == self.op).unwrap_or(0) as u8;
        bytes[1] = METRICS.iter().position(|m| *m == self.metric).unwrap_or(0) as u8;
        bytes[2] = u8::from(self.one_cq) | u8::from(self.poll_memory) << 1;
        let numbers = [self.size, self.count, self.depth, self.qps, self.threads];
        for (at, number) in numbers.into_iter().enumerate() {
            bytes[3 + 4 * at..7 + 4 * at].copy_from_slice(&number.to_be_bytes());
        }
        bytes
    }

    /// Parses a case; `None` if a value is outside its limits.
    pub fn from_bytes(bytes: &[u8]) -> Option<Case> {
        let bytes: &[u8; Case::BYTES] = bytes.get(..Case::BYTES)?.try_into().ok()?;
        let number = |at: usize| {
            let field = &bytes[3 + 4 * at..7 + 4 * at];
            u32::from_be_bytes([field[0], field[1], field[2], field[3]])
        };
        let case = Case {
            op: *OPS.get(usize::from(bytes[0]))?,
            metric: *METRICS.get(usize::from(bytes[1]))?,
            size: number(0),
            count: number(1),
            depth: number(2),
            qps: number(3),
            threads: number(4),
            one_cq: bytes[2] & 1 != 0,
            poll_memory: bytes[2] & 2 != 0,
        };
        let sane = case.size <= MAX_SIZE
            && case.count > 0
            && (1..=4096).contains(&case.depth)
            && bytes[2] <= 3
            && (1..=MAX_QPS).contains(&case.qps)
            && (1..=MAX_THREADS).contains(&case.threads)
            && case.connections() <= MAX_QPS
            && case.depth * case.connections() <= MAX_OUTSTANDING
            && !(case.one_cq && case.metric == Metric::Latency);
        sane.then_some(case)
    }

    /// Connections of all threads.
    pub fn connections(self) -> u32 {
        self.qps * self.threads
    }

    /// The case of each completion queue of a side: a part of the messages for each thread, or all of them together.
    pub fn per_cq(self) -> Vec<Case> {
        let one = Case { threads: 1, ..self };
        if self.one_cq {
            let qps = self.connections();
            return vec![Case { qps, ..one }];
        }
        let (count, threads) = (self.count, self.threads);
        let part = |at| count / threads + u32::from(at < count % threads);
        let parts = (0..threads).map(|at| Case {
            count: part(at).max(1),
            ..one
        });
        parts.collect()
    }

    /// The number of messages of a connection, counted from 0.
    pub fn share(self, at: usize) -> usize {
        let (count, qps) = (self.count as usize, self.qps as usize);
        count / qps + usize::from(at < count % qps)
    }
}

#[cfg(test)]
mod tests {
    //! A case in both directions, and invalid ones.

    use super::*;

    #[test]
    fn case_survives_encoding() {
        for op in OPS {
            for metric in METRICS {
                let case = Case {
                    op,
                    metric,
                    size: 1 << 20,
                    count: 77,
                    depth: 32,
                    qps: 3,
                    threads: 5,
                    one_cq: metric != Metric::Latency,
                    poll_memory: op == Op::Write,
                };
                assert_eq!(Case::from_bytes(&case.to_bytes()), Some(case));
            }
        }
    }

    #[test]
    fn shares_sum_to_count_and_are_even() {
        for (count, qps) in [(1, 1), (7, 3), (2, 5), (1000, 64)] {
            let case = Case {
                op: Op::Send,
                metric: Metric::Rate,
                size: 1,
                count,
                depth: 1,
                qps,
                threads: 1,
                one_cq: false,
                poll_memory: false,
            };
            let shares: Vec<usize> = (0..qps as usize).map(|at| case.share(at)).collect();
            assert_eq!(shares.iter().sum::<usize>(), count as usize);
            let (most, least) = (shares.iter().max(), shares.iter().min());
            assert!(most.unwrap() - least.unwrap() <= 1, "{shares:?}");
        }
    }

    #[test]
    fn invalid_encoded_cases_are_refused() {
        let good = Case {
            op: Op::Send,
            metric: Metric::Rate,
            size: 64,
            count: 1,
            depth: 1,
            qps: 1,
            threads: 1,
            one_cq: false,
            poll_memory: false,
        };
        assert_eq!(Case::from_bytes(&good.to_bytes()[..22]), None);
        let wrong = [
            (0, 4),
            (1, 3),
            (2, 4),
            (3, 0xff),
            (11, 0xff),
            (15, 0xff),
            (17, 4),
            (21, 2),
        ];
        for (at, byte) in wrong {
            let mut bytes = good.to_bytes();
            bytes[at] = byte;
            assert_eq!(Case::from_bytes(&bytes), None, "byte {at}");
        }
    }

    #[test]
    fn threads_divide_messages_between_completion_queues() {
        let case = Case {
            op: Op::Send,
            metric: Metric::Rate,
            size: 1,
            count: 10,
            depth: 1,
            qps: 2,
            threads: 4,
            one_cq: false,
            poll_memory: false,
        };
        let counts = |case: Case| case.per_cq().iter().map(|c| (c.count, c.qps)).collect();
        let apart: Vec<_> = counts(case);
        assert_eq!(apart, [(3, 2), (3, 2), (2, 2), (2, 2)]);
        let together: Vec<_> = counts(Case {
            one_cq: true,
            ..case
        });
        assert_eq!(together, [(10, 8)]);
    }
}
