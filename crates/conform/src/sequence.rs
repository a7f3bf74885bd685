//! What two sequences have in common.

/// Pairs of places at which two sequences of these lengths have the same, in order,
/// as many as there can be.
pub(crate) fn longest_common(
    kernel: usize,
    ours: usize,
    same: impl Fn(usize, usize) -> bool,
) -> Vec<(usize, usize)> {
    let shorter = kernel.min(ours);
    let head = (0..shorter).take_while(|&n| same(n, n)).count();
    let (rows, columns) = (kernel - head, ours - head);
    let mut best = vec![vec![0_u32; columns + 1]; rows + 1];
    for k in (0..rows).rev() {
        for o in (0..columns).rev() {
            best[k][o] = match same(head + k, head + o) {
                true => best[k + 1][o + 1] + 1,
                false => best[k + 1][o].max(best[k][o + 1]),
            };
        }
    }
    let mut pairs: Vec<(usize, usize)> = (0..head).map(|n| (n, n)).collect();
    let (mut k, mut o) = (0, 0);
    while k < rows && o < columns {
        if same(head + k, head + o) {
            pairs.push((head + k, head + o));
            (k, o) = (k + 1, o + 1);
        } else if best[k + 1][o] >= best[k][o + 1] {
            k += 1;
        } else {
            o += 1;
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_one_side_has_is_left_out() {
        let (kernel, ours) = ("abxcd", "abcyd");
        let same = |k: usize, o: usize| kernel.as_bytes()[k] == ours.as_bytes()[o];
        let pairs = longest_common(kernel.len(), ours.len(), same);
        assert_eq!(pairs, [(0, 0), (1, 1), (3, 2), (4, 4)]);
    }
}
