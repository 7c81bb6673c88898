//! `verbena bench --plot`: the results as one panel for each metric, with a series for each operation and one for plain TCP.
//! Values are the medians that the table shows.

use super::case::{Case, Metric};
use super::report::Outcome;
use crate::plot::{Axis, Mark, Panel, Scale, Series, svg};

/// What the horizontal axis shows: the sizes, or the threads if they differ and sizes do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Abscissa {
    Size,
    Threads,
}

impl Abscissa {
    fn of(outcomes: &[Outcome]) -> Abscissa {
        let varies = |value: fn(&Case) -> u32| {
            let mut values = outcomes.iter().map(|outcome| value(&outcome.case));
            let first = values.next();
            values.any(|value| Some(value) != first)
        };
        match !varies(|case| case.size) && varies(|case| case.threads) {
            true => Abscissa::Threads,
            false => Abscissa::Size,
        }
    }

    fn value(self, case: &Case) -> f64 {
        match self {
            Abscissa::Size => case.size.max(1).into(),
            Abscissa::Threads => case.threads.into(),
        }
    }

    /// The name of a series: what the horizontal axis does not tell of a case.
    fn name(self, case: &Case) -> String {
        let name = case.op.name();
        match self {
            Abscissa::Size if case.threads > 1 => format!("{name}, {} threads", case.threads),
            _ => name.to_owned(),
        }
    }
}

/// The picture.
pub fn plot(outcomes: &[Outcome]) -> String {
    let metrics = [Metric::Latency, Metric::Bandwidth, Metric::Rate];
    let panels = metrics.into_iter().filter_map(|metric| {
        let of_metric = outcomes
            .iter()
            .filter(|outcome| outcome.case.metric == metric);
        let of_metric: Vec<&Outcome> = of_metric.collect();
        (!of_metric.is_empty()).then(|| panel(metric, &of_metric, Abscissa::of(outcomes)))
    });
    svg(&panels.collect::<Vec<Panel>>())
}

fn panel(metric: Metric, outcomes: &[&Outcome], abscissa: Abscissa) -> Panel {
    let mut series: Vec<Series> = Vec::new();
    let mut add =
        |name: String, mark, point| match series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => series.push(Series {
                name,
                points: vec![point],
                mark,
            }),
        };
    for outcome in outcomes {
        let (x, name) = (abscissa.value(&outcome.case), abscissa.name(&outcome.case));
        if let Some(baseline) = outcome.baseline {
            add(
                format!("{name} over plain TCP"),
                Mark::Dashes,
                (x, baseline),
            );
        }
        add(name, Mark::Line, (x, outcome.value));
    }
    for series in &mut series {
        series.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let x = match abscissa {
        Abscissa::Size => "bytes per message",
        Abscissa::Threads => "threads on each side",
    };
    Panel {
        title: format!("{} ({})", metric.name(), metric.unit()),
        x: Axis {
            label: x.to_owned(),
            scale: Scale::Doubling,
        },
        y: Axis {
            label: metric.unit().to_owned(),
            scale: Scale::Automatic,
        },
        series,
    }
}
