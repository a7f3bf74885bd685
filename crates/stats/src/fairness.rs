//! How evenly processes are served.
/// Jain's index of values that should be equal: 1 where they are, `1/n` where
/// one has all. Zero without values, or with nothing but zeros.
///
/// R. Jain, D. Chiu and W. Hawe, "A quantitative measure of fairness", DEC
/// TR-301, 1984. Weighted: of values divided by their weights.
pub fn jain_index(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|v| v * v).sum();
    if squares == 0.0 {
        return 0.0;
    }
    sum * sum / (values.len() as f64 * squares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_s_index_is_between_one_and_the_share_of_one() {
        assert_eq!(jain_index(&[]), 0.0);
        assert_eq!(jain_index(&[0.0, 0.0]), 0.0);
        assert!((jain_index(&[5.0, 5.0, 5.0]) - 1.0).abs() < 1e-12);
        assert!((jain_index(&[7.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
        // (1 + 3)^2 / (2 * (1 + 9))
        assert!((jain_index(&[1.0, 3.0]) - 0.8).abs() < 1e-12);
    }
}
