//! All results, by case: medians, ratios between contenders, and the whole as JSON.
//! What was not measured is `None`, never zero. Targets are judged in `targets.rs`.

use serde::Serialize;

use super::case::{Case, Topology};
use super::series::{Measure, Sample, Series};

/// The cases with their rounds.
pub(crate) struct Results {
    pub(crate) rows: Vec<(Case, Series)>,
}

impl Results {
    pub(crate) fn new(cases: Vec<Case>) -> Results {
        let rows = cases.into_iter().map(|case| (case, Series::default()));
        Results {
            rows: rows.collect(),
        }
    }

    pub(crate) fn series(
        &self,
        place: Topology,
        measure: Measure,
        size: u32,
        name: &str,
    ) -> Option<&Series> {
        let row = self.rows.iter().find(|(case, _)| {
            (case.topology, case.measure, case.size) == (place, measure, size)
                && case.contender.name == name
        });
        row.map(|(_, series)| series)
    }

    /// The median.
    pub(crate) fn value(
        &self,
        place: Topology,
        measure: Measure,
        size: u32,
        name: &str,
    ) -> Option<f64> {
        self.series(place, measure, size, name)?.value()
    }

    /// The sizes that were measured, in order.
    pub(crate) fn sizes(&self, place: Topology, measure: Measure) -> Vec<u32> {
        let here = |case: &Case| (case.topology, case.measure) == (place, measure);
        let sizes = self.rows.iter().filter(|(case, _)| here(case));
        let mut sizes: Vec<u32> = sizes.map(|(case, _)| case.size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// The places and measures, in order.
    pub(crate) fn kinds(&self) -> Vec<(Topology, Measure)> {
        let mut kinds: Vec<(Topology, Measure)> = Vec::new();
        for (case, _) in &self.rows {
            if !kinds.contains(&(case.topology, case.measure)) {
                kinds.push((case.topology, case.measure));
            }
        }
        kinds
    }

    /// The contenders measured there, in order.
    pub(crate) fn names(&self, place: Topology, measure: Measure) -> Vec<&'static str> {
        let mut names = Vec::new();
        for (case, _) in &self.rows {
            let here = (case.topology, case.measure) == (place, measure);
            if here && !names.contains(&case.contender.name) {
                names.push(case.contender.name);
            }
        }
        names
    }

    pub(crate) fn rows_for_json(&self) -> Vec<Row<'_>> {
        let rows = self.rows.iter();
        rows.map(|(case, series)| Row::new(case, series)).collect()
    }
}

/// One case in the JSON file.
#[derive(Debug, Serialize)]
pub(crate) struct Row<'a> {
    place: String,
    measure: &'static str,
    size: u32,
    contender: &'static str,
    unit: &'static str,
    median: Option<f64>,
    least: Option<f64>,
    most: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_seconds_per_gb: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_per_connection: Option<f64>,
    samples: &'a [Sample],
    lost: &'a [String],
}

impl<'a> Row<'a> {
    fn new(case: &Case, series: &'a Series) -> Row<'a> {
        let (least, most) = series.spread().unzip();
        Row {
            place: case.topology.name(),
            measure: case.measure.name(),
            size: case.size,
            contender: case.contender.name,
            unit: case.measure.unit(),
            median: series.value(),
            least,
            most,
            cpu_seconds_per_gb: series.cpu(),
            bytes_per_connection: series.memory(),
            samples: &series.samples,
            lost: &series.lost,
        }
    }
}
