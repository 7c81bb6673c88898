//! Plots as SVG: panels one below the other, each with two axes, series of points and a legend. No script, no font and no file besides
//! the one that is written, so that a browser shows it anywhere.
//! Every text of a plot is escaped, and the caller bounds the number of points.

use core::fmt::Write;

/// The size of a panel, and of the place for points in it.
const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 180.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
/// Colours that people with any colour vision tell apart (Okabe and Ito).
const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000",
];
/// About this many labels on an axis.
const LABELS: f64 = 6.0;
/// Values that are further apart are drawn on a logarithmic axis.
const LINEAR_RATIO: f64 = 50.0;

/// One diagram.
#[derive(Debug, Clone)]
pub struct Panel {
    /// Above it.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// What is drawn.
    pub series: Vec<Series>,
}

/// An axis.
#[derive(Debug, Clone)]
pub struct Axis {
    /// The quantity and its unit.
    pub label: String,
    /// How values are spread over it.
    pub scale: Scale,
}

/// How values are spread over an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Evenly, from zero.
    Linear,
    /// Evenly, from the lowest value to the highest.
    Span,
    /// By powers of two; values are at least 1.
    Doubling,
    /// Evenly, or by powers of ten if the values are far apart.
    Automatic,
}

/// Points with one colour.
#[derive(Debug, Clone)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// Horizontal and vertical value.
    pub points: Vec<(f64, f64)>,
    /// How they are drawn.
    pub mark: Mark,
}

/// How points are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Joined by a line, in the order of the points.
    Line,
    /// Joined by a dashed line.
    Dashes,
    /// Each by itself.
    Dots,
}

/// The picture. A panel whose series have no points says so.
pub fn svg(panels: &[Panel]) -> String {
    let height = HEIGHT * panels.len().max(1) as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    for (index, panel) in panels.iter().enumerate() {
        let _ = writeln!(
            out,
            "<g transform=\"translate(0 {})\">",
            HEIGHT * index as f64
        );
        panel.draw(&mut out);
        out.push_str("</g>\n");
    }
    out.push_str("</svg>\n");
    out
}

impl Panel {
    fn draw(&self, out: &mut String) {
        let title = escape(&self.title);
        let _ = writeln!(
            out,
            "<text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{title}</text>"
        );
        let points = || self.series.iter().flat_map(|series| &series.points);
        let finite = |point: &&(f64, f64)| point.0.is_finite() && point.1.is_finite();
        let (xs, ys): (Vec<f64>, Vec<f64>) = points().filter(finite).copied().unzip();
        if xs.is_empty() {
            let _ = writeln!(
                out,
                "<text x=\"{LEFT}\" y=\"{}\">no points</text>",
                HEIGHT / 2.0
            );
            return;
        }
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let x = Range::of(self.x.scale, &xs, LEFT, right);
        let y = Range::of(self.y.scale, &ys, bottom, TOP);
        for value in x.labels() {
            let at = x.place(value);
            let _ = writeln!(
                out,
                "<line x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{bottom}\" stroke=\"#e0e0e0\"/>\
                 <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                bottom + 16.0,
                self.x.number(value)
            );
        }
        for value in y.labels() {
            let at = y.place(value);
            let _ = writeln!(
                out,
                "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\" stroke=\"#e0e0e0\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                at + 4.0,
                self.y.number(value)
            );
        }
        let middle = (TOP + bottom) / 2.0;
        let _ = writeln!(
            out,
            "<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"#616161\"/>\n\
             <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n\
             <text transform=\"translate(18 {middle}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            (LEFT + right) / 2.0,
            bottom + 36.0,
            escape(&self.x.label),
            escape(&self.y.label)
        );
        for (index, series) in self.series.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            series.draw(out, colour, (x, y));
            let at = TOP + 10.0 + 18.0 * index as f64;
            let _ = writeln!(
                out,
                "<circle cx=\"{}\" cy=\"{}\" r=\"4\" fill=\"{colour}\"/><text x=\"{}\" y=\"{at}\">{}</text>",
                right + 14.0,
                at - 4.0,
                right + 24.0,
                escape(&series.name)
            );
        }
    }
}

impl Series {
    fn draw(&self, out: &mut String, colour: &str, (x, y): (Range, Range)) {
        let finite = self
            .points
            .iter()
            .filter(|(a, b)| a.is_finite() && b.is_finite());
        let places: Vec<(f64, f64)> = finite.map(|(a, b)| (x.place(*a), y.place(*b))).collect();
        if self.mark != Mark::Dots {
            let dashes = if self.mark == Mark::Dashes {
                "6 4"
            } else {
                "none"
            };
            let path: Vec<String> = places
                .iter()
                .map(|(a, b)| format!("{a:.1} {b:.1}"))
                .collect();
            let _ = writeln!(
                out,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"/>",
                path.join(" ")
            );
        }
        let radius = if self.mark == Mark::Dots { 1.5 } else { 3.0 };
        for (a, b) in places {
            let _ = writeln!(
                out,
                "<circle cx=\"{a:.1}\" cy=\"{b:.1}\" r=\"{radius}\" fill=\"{colour}\"/>"
            );
        }
    }
}

impl Axis {
    /// A value as its label.
    fn number(&self, value: f64) -> String {
        if self.scale != Scale::Doubling {
            // Without the digits that a sum of binary fractions leaves.
            return format!("{}", (value * 1e9).round() / 1e9);
        }
        let units = [("Mi", 1_048_576.0), ("Ki", 1024.0)];
        match units.iter().find(|(_, unit)| value >= *unit) {
            Some((name, unit)) => format!("{}{name}", value / unit),
            None => format!("{value}"),
        }
    }
}

/// The values of an axis and their place.
#[derive(Debug, Clone, Copy)]
struct Range {
    /// The base of the powers, if it is not linear.
    base: Option<f64>,
    low: f64,
    high: f64,
    start: f64,
    end: f64,
}

impl Range {
    fn of(scale: Scale, values: &[f64], start: f64, end: f64) -> Range {
        let high = values.iter().copied().fold(f64::MIN, f64::max);
        let low = values.iter().copied().fold(f64::MAX, f64::min);
        let base = match scale {
            Scale::Linear | Scale::Span => None,
            Scale::Doubling => Some(2.0),
            Scale::Automatic => (low > 0.0 && high / low > LINEAR_RATIO).then_some(10.0),
        };
        let (low, high) = match base {
            None if scale == Scale::Span => (low, if high > low { high } else { low + 1.0 }),
            None => (low.min(0.0), if high > 0.0 { high } else { 1.0 }),
            Some(base) => {
                let low = low.max(f64::MIN_POSITIVE).log(base).floor();
                (
                    low,
                    high.max(f64::MIN_POSITIVE).log(base).ceil().max(low + 1.0),
                )
            }
        };
        Range {
            base,
            low,
            high,
            start,
            end,
        }
    }

    fn place(&self, value: f64) -> f64 {
        let value = match self.base {
            None => value,
            Some(base) => value.max(f64::MIN_POSITIVE).log(base),
        };
        self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)
    }

    /// Values with a label: round ones, few enough to be read.
    fn labels(&self) -> Vec<f64> {
        let span = self.high - self.low;
        let step = match self.base {
            Some(_) => (span / LABELS).ceil().max(1.0),
            None => round_step(span / LABELS),
        };
        let first = (self.low / step).ceil();
        let count = ((self.high / step).floor() - first) as usize;
        let values = (0..=count).map(|index| (first + index as f64) * step);
        match self.base {
            None => values.collect(),
            Some(base) => values.map(|exponent| base.powf(exponent)).collect(),
        }
    }
}

/// The next of 1, 2 and 5 with a power of ten.
fn round_step(at_least: f64) -> f64 {
    let power = 10_f64.powf(at_least.log10().floor());
    let factors = [1.0, 2.0, 5.0];
    let found = factors.iter().find(|factor| **factor * power >= at_least);
    found.map_or(10.0 * power, |factor| factor * power)
}

/// Text within an element.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests;
