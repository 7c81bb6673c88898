//! Tests of plots: places of points, labels of axes, and text.

use super::*;

fn panel(x: Scale, points: &[(f64, f64)]) -> Panel {
    let axis = |label: &str, scale| Axis {
        label: label.to_owned(),
        scale,
    };
    Panel {
        title: "a < b & c".to_owned(),
        x: axis("bytes", x),
        y: axis("µs", Scale::Automatic),
        series: vec![Series {
            name: "send".to_owned(),
            points: points.to_vec(),
            mark: Mark::Line,
        }],
    }
}

fn circles(svg: &str) -> Vec<(f64, f64)> {
    let points = svg.split("<circle cx=\"").skip(1);
    let found = points.filter(|text| text.contains("r=\"3\""));
    found
        .map(|text| {
            let mut numbers = text.split('"');
            let x = numbers.next().unwrap().parse().unwrap();
            (x, numbers.nth(1).unwrap().parse().unwrap())
        })
        .collect()
}

#[test]
fn extremes_lie_on_the_edges() {
    let svg = svg(&[panel(Scale::Linear, &[(0.0, 0.0), (10.0, 4.0)])]);
    let edges = [(LEFT, HEIGHT - BOTTOM), (WIDTH - RIGHT, TOP)];
    assert_eq!(circles(&svg), edges);
    assert!(svg.contains("a &lt; b &amp; c"));
}

#[test]
fn doubled_sizes_are_equally_far_apart() {
    let svg = svg(&[panel(
        Scale::Doubling,
        &[(8.0, 1.0), (4096.0, 1.0), (2_097_152.0, 1.0)],
    )]);
    let xs: Vec<f64> = circles(&svg).iter().map(|(x, _)| *x).collect();
    assert!((xs[1] - xs[0] - (xs[2] - xs[1])).abs() < 0.2, "{xs:?}");
    assert!(svg.contains(">8<") && svg.contains(">2Mi<"), "{svg}");
}

#[test]
fn values_far_apart_are_logarithmic() {
    let near = Range::of(Scale::Automatic, &[1.0, 40.0], 0.0, 1.0);
    let far = Range::of(Scale::Automatic, &[1.0, 1000.0], 0.0, 1.0);
    assert_eq!((near.base, far.base), (None, Some(10.0)));
    assert_eq!(far.labels(), [1.0, 10.0, 100.0, 1000.0]);
}

#[test]
fn labels_are_round_and_few() {
    for high in [0.003, 0.7, 1.0, 9.0, 64.0, 12_345.0, 3e9] {
        let range = Range::of(Scale::Linear, &[high], 0.0, 1.0);
        let labels = range.labels();
        assert!((3..=8).contains(&labels.len()), "{high}: {labels:?}");
        assert_eq!(labels[0], 0.0);
    }
    let axis = Axis {
        label: String::new(),
        scale: Scale::Linear,
    };
    assert_eq!(axis.number(0.1 + 0.2), "0.3");
}

#[test]
fn odd_values_break_nothing() {
    for points in [
        &[][..],
        &[(f64::NAN, 1.0)],
        &[(0.0, 0.0)],
        &[(5.0, f64::INFINITY), (0.0, -3.0)],
    ] {
        for scale in [
            Scale::Linear,
            Scale::Span,
            Scale::Doubling,
            Scale::Automatic,
        ] {
            let svg = svg(&[panel(scale, points)]);
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
