//! Lines over message sizes, as SVG: one picture per place and measure.
//! Both axes are logarithmic, the values are medians, and every contender's line has a name beside its colour.
//! With fewer than two sizes there is no picture.

use std::fmt::Write;

use super::case::{Topology, shown};
use super::results::Results;
use super::series::Measure;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 210.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;

/// Colours that differ on white, also with colour vision deficiency; the second half is drawn dashed.
const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000",
];

/// A line: its name, and its sizes with values.
type Line = (&'static str, Vec<(u32, f64)>);

/// The picture and its file name; none if there is too little to draw.
pub(crate) fn draw(
    results: &Results,
    place: Topology,
    measure: Measure,
) -> Option<(String, String)> {
    let sizes = results.sizes(place, measure);
    if sizes.len() < 2 || !matches!(measure, Measure::Latency | Measure::Bandwidth) {
        return None;
    }
    let line = |name: &'static str| -> Line {
        let value = |size: &u32| Some((*size, results.value(place, measure, *size, name)?));
        (name, sizes.iter().filter_map(value).collect())
    };
    let names = results.names(place, measure).into_iter();
    let lines: Vec<Line> = names.map(line).filter(|(_, at)| !at.is_empty()).collect();
    let title = format!("{}, {} ({})", measure.name(), place.name(), measure.unit());
    let file = format!("{}-{}.svg", place.name(), measure.name());
    Some((file, picture(&title, &sizes, &lines)?))
}

/// The ranges of both axes.
struct Frame {
    sizes: (f64, f64),
    values: (f64, f64),
}

impl Frame {
    fn around(sizes: &[u32], lines: &[Line]) -> Option<Frame> {
        let values = || lines.iter().flat_map(|(_, at)| at).map(|(_, value)| *value);
        let positive = || values().filter(|value| *value > 0.0);
        let least = positive().min_by(f64::total_cmp)?.log10().floor();
        let most = positive().max_by(f64::total_cmp)?.log10().ceil();
        let (first, last) = (f64::from(*sizes.first()?), f64::from(*sizes.last()?));
        Some(Frame {
            sizes: (first.log2(), last.log2()),
            values: (least, most.max(least + 1.0)),
        })
    }

    fn x(&self, size: u32) -> f64 {
        let (first, last) = self.sizes;
        LEFT + (f64::from(size).log2() - first) / (last - first) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        let (least, most) = self.values;
        let part = (value.log10() - least) / (most - least);
        HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)
    }
}

fn picture(title: &str, sizes: &[u32], lines: &[Line]) -> Option<String> {
    let frame = Frame::around(sizes, lines)?;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"16\">{title}</text>\n"
    );
    axes(&mut svg, &frame, sizes);
    for (at, (name, points)) in lines.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let dash = ["", " stroke-dasharray=\"6 4\"", " stroke-dasharray=\"2 3\""];
        let dash = dash[(at / COLOURS.len()).min(dash.len() - 1)];
        let positive = points.iter().filter(|(_, value)| *value > 0.0);
        let mut path = String::new();
        for (size, value) in positive {
            let (x, y) = (frame.x(*size), frame.y(*value));
            put(&mut path, format_args!("{x:.1},{y:.1} "));
            put(
                &mut svg,
                format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{colour}\"/>\n"),
            );
        }
        let path = path.trim_end();
        let (x, y) = (WIDTH - RIGHT + 16.0, TOP + 12.0 + 18.0 * at as f64);
        put(
            &mut svg,
            format_args!(
                "<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"{dash}/>\n\
                 <line x1=\"{x}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>\n\
                 <text x=\"{}\" y=\"{}\">{name}</text>\n",
                x + 24.0,
                x + 30.0,
                y + 4.0
            ),
        );
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

fn axes(svg: &mut String, frame: &Frame, sizes: &[u32]) {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for size in sizes {
        let x = frame.x(*size);
        put(
            svg,
            format_args!(
                "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#ddd\"/>\n\
                 <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                bottom + 18.0,
                shown(*size)
            ),
        );
    }
    let (least, most) = frame.values;
    for power in least as i32..=most as i32 {
        let value = 10_f64.powi(power);
        let y = frame.y(value);
        put(
            svg,
            format_args!(
                "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\n\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>\n",
                LEFT - 8.0,
                y + 4.0
            ),
        );
    }
    put(
        svg,
        format_args!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">bytes per message</text>\n",
            f64::midpoint(LEFT, right),
            HEIGHT - 10.0
        ),
    );
}

fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = text.write_fmt(what);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plot_draws_named_lines_within_the_frame() {
        let lines: Vec<Line> = vec![
            ("one", vec![(8, 3.0), (4096, 40.0)]),
            ("two", vec![(8, 0.5)]),
        ];
        let svg = picture("title", &[8, 4096], &lines).unwrap();
        assert_eq!(svg.matches("<circle").count(), 3);
        assert_eq!(svg.matches("<polyline").count(), 2);
        for part in ["title", ">one<", ">two<", ">4Ki<", ">0.1<", ">100<"] {
            assert!(svg.contains(part), "{part}");
        }
        let frame = Frame::around(&[8, 4096], &lines).unwrap();
        assert!((frame.x(8) - LEFT).abs() < 1e-9);
        assert!((frame.x(4096) - (WIDTH - RIGHT)).abs() < 1e-9);
        assert!(frame.y(40.0) > TOP && frame.y(40.0) < frame.y(0.5));
    }

    #[test]
    fn empty_plot_is_omitted() {
        assert!(picture("title", &[8, 64], &[]).is_none());
    }
}
