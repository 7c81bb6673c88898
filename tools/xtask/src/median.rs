//! The median of several measurements: a single outlier does not change a figure.
//! Values that are not finite are ignored.

/// The median of some numbers; of an even count, the mean of the two in the middle.
pub(crate) fn median(numbers: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = numbers.into_iter().filter(|n| n.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_ignores_order_and_nonfinite_values() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median([7.0]), Some(7.0));
        assert_eq!(median([]), None);
        // One outlier changes nothing, and what is not finite is ignored.
        assert_eq!(median([1.0, 1.0, 1e9]), Some(1.0));
        assert_eq!(median([f64::NAN, 5.0, f64::INFINITY]), Some(5.0));
    }
}
