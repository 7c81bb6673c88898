//! `verbena decode --plot`: sequence over time, a panel for each direction of a stream and a series for each kind of record. A level line is a
//! stall, a step back a repetition.
//! At most [`MAX_PANELS`] directions with `MAX_POINTS` points each are drawn: when there are more points, every second one is dropped and
//! from then on every second record is drawn, and so on; violations are always drawn.

use std::collections::BTreeMap;

use super::record::{Body, Dir, Record};
use crate::plot::{Axis, Mark, Panel, Scale, Series, svg};

/// Directions of streams that are drawn.
pub const MAX_PANELS: usize = 32;
/// Points of each.
const MAX_POINTS: usize = 8192;
/// Violations of each that are always drawn.
const MAX_VIOLATIONS: usize = 256;
/// Packet sequence numbers have 24 bits.
const PSN_BITS: u32 = 24;

/// Collects the records of a capture.
#[derive(Debug, Default)]
pub struct Plot {
    directions: BTreeMap<(usize, usize), Direction>,
    /// Directions that are not drawn.
    omitted: bool,
}

/// One direction of a stream.
#[derive(Debug, Default)]
struct Direction {
    is_roce: bool,
    /// The last packet sequence number, unwrapped.
    last: Option<i64>,
    /// Time, sequence and kind.
    points: Vec<(f64, f64, &'static str)>,
    violations: Vec<(f64, f64)>,
    seen: u64,
    /// Every record whose number is divisible by it is drawn.
    stride: u64,
}

impl Plot {
    /// Adds a record.
    pub fn add(&mut self, record: &Record) {
        let key = (record.stream, record.dir.index());
        if !self.directions.contains_key(&key) && self.directions.len() >= MAX_PANELS {
            self.omitted = true;
            return;
        }
        self.directions.entry(key).or_default().add(record);
    }

    /// The picture.
    pub fn svg(&self) -> String {
        let mut panels: Vec<Panel> = self
            .directions
            .iter()
            .map(|((stream, dir), direction)| direction.panel(*stream, *dir))
            .collect();
        if let (Some(last), true) = (panels.last_mut(), self.omitted) {
            last.title += "; further streams are not drawn, --stream N chooses one";
        }
        svg(&panels)
    }
}

impl Direction {
    fn add(&mut self, record: &Record) {
        let sequence = match &record.body {
            Body::Roce(_) => {
                self.is_roce = true;
                self.unwrap_psn(record.offset)
            }
            _ => record.offset as f64,
        };
        let time = record.time.as_secs_f64();
        if matches!(record.body, Body::Trouble { .. }) {
            if self.violations.len() < MAX_VIOLATIONS {
                self.violations.push((time, sequence));
            }
            return;
        }
        if self.points.len() >= MAX_POINTS {
            let mut index = 0;
            self.points.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.stride *= 2;
        }
        self.stride = self.stride.max(1);
        if self.seen.is_multiple_of(self.stride) {
            self.points.push((time, sequence, record.kind));
        }
        self.seen += 1;
    }

    /// The number that is nearest to the last one, of those with these low bits.
    fn unwrap_psn(&mut self, psn: u64) -> f64 {
        let modulus = 1_i64 << PSN_BITS;
        let psn = i64::try_from(psn).unwrap_or(0) % modulus;
        let unwrapped = match self.last {
            None => psn,
            Some(last) => {
                let ahead = (psn - last).rem_euclid(modulus);
                let nearest = if ahead >= modulus / 2 {
                    ahead - modulus
                } else {
                    ahead
                };
                last + nearest
            }
        };
        self.last = Some(unwrapped);
        unwrapped as f64
    }

    fn panel(&self, stream: usize, dir: usize) -> Panel {
        let from = [Dir::ToResponder, Dir::ToInitiator][dir.min(1)];
        let from = match from {
            Dir::ToResponder => "from the initiator",
            Dir::ToInitiator => "from the responder",
        };
        let mut title = format!("stream {stream}, {from}");
        if self.stride > 1 {
            title += &format!(", every {}th record", self.stride);
        }
        let mut kinds: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
        for (time, sequence, kind) in &self.points {
            kinds.entry(kind).or_default().push((*time, *sequence));
        }
        let dots = |(name, points): (&str, Vec<(f64, f64)>)| Series {
            name: name.to_owned(),
            points,
            mark: Mark::Dots,
        };
        let mut series: Vec<Series> = kinds.into_iter().map(dots).collect();
        if !self.violations.is_empty() {
            series.push(dots(("violations and losses", self.violations.clone())));
        }
        let y = match self.is_roce {
            true => "packet sequence number",
            false => "offset in the TCP stream (bytes)",
        };
        Panel {
            title,
            x: Axis {
                label: "seconds since the first packet".to_owned(),
                scale: Scale::Linear,
            },
            y: Axis {
                label: y.to_owned(),
                scale: Scale::Span,
            },
            series,
        }
    }
}

#[cfg(test)]
mod tests;
