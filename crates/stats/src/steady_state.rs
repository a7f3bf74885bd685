//! The figures of a job that ends when they no longer change (fio's `steadystate`).

use alloc::collections::VecDeque;

/// What a job's figures of each second are judged by, and the last of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SteadyState {
    /// Whether bandwidth is judged and not IOPS.
    pub of_bandwidth: bool,
    /// Whether the slope of a line through the figures is judged, and not the largest distance of
    /// one of them from their mean.
    pub by_slope: bool,
    /// What slope or distance must stay below: in percent of the mean, or in I/Os or bytes a
    /// second.
    pub limit: f64,
    /// Whether the limit is in percent of the mean.
    pub in_percent: bool,
    /// How many seconds are judged together.
    pub seconds: u32,
    /// Whether the figures met the limit, which ended the job.
    pub attained: bool,
    /// What is compared with the limit, with its sign; zero before there are enough figures.
    pub criterion: f64,
    /// The largest distance from the mean, in I/Os or bytes a second, where it is judged.
    pub max_deviation: f64,
    /// The slope in I/Os or bytes a second for each second, where it is judged.
    pub slope: f64,
    /// IOPS and bytes a second of the last seconds, the oldest first.
    pub figures: VecDeque<(u64, u64)>,
}

impl SteadyState {
    /// Takes in the figures of one more second, and returns whether they are steady now.
    pub fn add(&mut self, iops: u64, bandwidth_bytes: u64) -> bool {
        let seconds = self.seconds as usize;
        if self.figures.len() == seconds {
            self.figures.pop_front();
        }
        self.figures.push_back((iops, bandwidth_bytes));
        if self.figures.len() < seconds {
            return false;
        }
        let criterion = match self.by_slope {
            true => {
                self.slope = self.line_slope();
                self.slope
            }
            false => {
                self.max_deviation = self.largest_deviation();
                self.max_deviation
            }
        };
        self.criterion = match self.in_percent {
            true => 100.0 * criterion / self.mean(),
            false => criterion,
        };
        self.attained = self.criterion.abs() < self.limit;
        self.attained
    }

    /// fio's word for what is judged.
    pub fn measure(&self) -> &'static str {
        match self.of_bandwidth {
            true => "bw",
            false => "iops",
        }
    }

    /// The mean IOPS over [`SteadyState::seconds`]; seconds without a figure count as zero, as in
    /// fio.
    pub fn mean_iops(&self) -> u64 {
        let sum: u64 = self.figures.iter().map(|(iops, _)| iops).sum();
        sum / u64::from(self.seconds.max(1))
    }

    /// The mean bytes a second, likewise.
    pub fn mean_bandwidth_bytes(&self) -> u64 {
        let sum: u64 = self.figures.iter().map(|(_, bytes)| bytes).sum();
        sum / u64::from(self.seconds.max(1))
    }

    /// What is judged of each second.
    fn values(&self) -> impl Iterator<Item = f64> {
        let of_bandwidth = self.of_bandwidth;
        (self.figures.iter()).map(move |(iops, bytes)| match of_bandwidth {
            true => *bytes as f64,
            false => *iops as f64,
        })
    }

    fn mean(&self) -> f64 {
        self.values().sum::<f64>() / self.figures.len() as f64
    }

    fn largest_deviation(&self) -> f64 {
        let mean = self.mean();
        self.values().map(|y| (y - mean).abs()).fold(0.0, f64::max)
    }

    /// The slope of the line with the least squares; one figure alone has none (not a number).
    fn line_slope(&self) -> f64 {
        let n = self.figures.len() as f64;
        let (mut sum_x, mut sum_y, mut sum_xy, mut sum_xx) = (0.0, 0.0, 0.0, 0.0);
        for (x, y) in self.values().enumerate() {
            let x = x as f64;
            sum_x += x;
            sum_y += y;
            sum_xy += x * y;
            sum_xx += x * x;
        }
        (sum_xy - sum_x * sum_y / n) / (sum_xx - sum_x * sum_x / n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(by_slope: bool, limit: f64, in_percent: bool, seconds: u32) -> SteadyState {
        SteadyState {
            by_slope,
            limit,
            in_percent,
            seconds,
            ..SteadyState::default()
        }
    }

    /// After how many of these figures the job is steady.
    fn steady_after(mut watch: SteadyState, iops: &[u64]) -> Option<usize> {
        iops.iter().position(|&iops| watch.add(iops, 0))
    }

    #[test]
    fn every_figure_of_the_window_is_near_its_mean() {
        // 90 leaves the window with the sixth figure; 102 is 2 % from the mean of 100.
        let iops = [90, 100, 100, 100, 100, 98];
        assert_eq!(steady_after(watch(false, 5.0, true, 3), &iops), Some(3));
        assert_eq!(steady_after(watch(false, 5.0, true, 5), &iops), Some(5));
        assert_eq!(steady_after(watch(false, 7.0, false, 2), &iops), Some(1));
        // The limit itself is not below it.
        assert_eq!(steady_after(watch(false, 5.0, false, 2), &[90, 100]), None);
    }

    #[test]
    fn a_line_through_the_figures_hardly_rises_or_falls() {
        // 4 more each second are 2 % of a mean of 200.
        let falls = [204, 200, 196];
        assert_eq!(steady_after(watch(true, 2.1, true, 3), &falls), Some(2));
        assert_eq!(steady_after(watch(true, 1.9, true, 3), &falls), None);
        // It swings as much as it likes about a line that is flat.
        assert_eq!(
            steady_after(watch(true, 0.1, true, 3), &[100, 300, 100]),
            Some(2)
        );
        let mut one = watch(true, 50.0, true, 1);
        assert!(!one.add(100, 0), "one figure has no slope");
    }

    #[test]
    fn seconds_without_a_figure_count_as_zero_in_the_means() {
        let mut begun = watch(false, 1.0, true, 5);
        begun.add(998, 4_091_413);
        begun.add(1002, 4_104_192);
        assert_eq!(
            (begun.mean_iops(), begun.mean_bandwidth_bytes()),
            (400, 1_639_121)
        );
        assert!(!begun.attained && begun.criterion == 0.0);
    }
}
