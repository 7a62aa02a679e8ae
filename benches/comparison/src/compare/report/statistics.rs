//! The ratio of two servers, estimated from the ratios within each round, with its confidence
//! interval. Rounds are pairs: what slows down the machine in a round affects both servers.

use serde::Serialize;

/// How a [`Ratio`] is estimated, for the readers of tables.
pub(crate) const METHOD: &str = "the geometric mean of the ratios within each round; in \
    parentheses is its 95 % confidence interval, by Student's t on the logarithms of these ratios. \
    A ratio without an interval is that of a single round.";

/// The upper 97.5 % quantiles of Student's t with one, two and three degrees of freedom.
const T_QUANTILES: [f64; 3] = [12.706_205, 4.302_653, 3.182_446];
/// Quantile of the normal distribution for an interval of 95 %.
const NORMAL_QUANTILE: f64 = 1.959_964;

/// How many times as good a server is as another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Ratio {
    /// The geometric mean of the rounds.
    pub(crate) mean: f64,
    /// The bounds of the 95 % confidence interval, if there are several rounds.
    pub(crate) interval: Option<[f64; 2]>,
    pub(crate) rounds: usize,
}

impl Ratio {
    /// The ratio of these rounds. Ratios that are not positive numbers do not count.
    pub(crate) fn of(rounds: impl IntoIterator<Item = f64>) -> Option<Ratio> {
        let logarithms: Vec<f64> =
            rounds.into_iter().map(f64::ln).filter(|it| it.is_finite()).collect();
        let (rounds, count) = (logarithms.len(), logarithms.len() as f64);
        if rounds == 0 {
            return None;
        }
        let mean = logarithms.iter().sum::<f64>() / count;
        let squares: f64 = logarithms.iter().map(|it| (it - mean).powi(2)).sum();
        let interval = (rounds > 1).then(|| {
            let margin = t_quantile(rounds - 1) * (squares / (count - 1.0) / count).sqrt();
            [(mean - margin).exp(), (mean + margin).exp()]
        });
        Some(Ratio { mean: mean.exp(), interval, rounds })
    }

    /// Whether the server is better or worse, or the same as far as the interval shows.
    pub(crate) fn verdict(&self) -> Option<&'static str> {
        Some(match self.interval? {
            [low, _] if low > 1.0 => "better",
            [_, high] if high < 1.0 => "worse",
            _ => "same",
        })
    }
}

/// The upper 97.5 % quantile of Student's t: Fisher's expansion, which is exact to 0.04 % from four
/// degrees of freedom on.
fn t_quantile(degrees: usize) -> f64 {
    if let Some(quantile) = degrees.checked_sub(1).and_then(|index| T_QUANTILES.get(index)) {
        return *quantile;
    }
    let (z, n) = (NORMAL_QUANTILE, degrees as f64);
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + first / n + second / n.powi(2) + third / n.powi(3)
}

#[cfg(test)]
mod tests {
    use lockwheel_benches::Random;

    use super::{Ratio, t_quantile};

    fn ratio(rounds: &[f64]) -> Ratio {
        Ratio::of(rounds.iter().copied()).expect("a ratio")
    }

    #[test]
    fn quantiles_are_those_of_tables() {
        let table = [
            (1, 12.7062),
            (2, 4.3027),
            (3, 3.1824),
            (4, 2.7764),
            (5, 2.5706),
            (9, 2.2622),
            (19, 2.0930),
            (120, 1.9799),
        ];
        for (degrees, expected) in table {
            let quantile = t_quantile(degrees);
            assert!((quantile / expected - 1.0).abs() < 0.003, "{degrees}: {quantile}");
        }
    }

    #[test]
    fn interval_is_that_of_the_logarithms() {
        // Logarithms 0, 0.1 and 0.2: the standard error is 0.1 / sqrt(3), and t is 4.3027.
        let Ratio { mean, interval, rounds } = ratio(&[0.0, 0.1, 0.2].map(f64::exp));
        let [low, high] = interval.expect("an interval");
        let near = |value: f64, logarithm: f64| (value.ln() - logarithm).abs() < 1e-4;
        assert!(near(mean, 0.1) && near(low, -0.14841) && near(high, 0.34841), "{low} {high}");
        assert_eq!(rounds, 3);
    }

    #[test]
    fn interval_of_the_inverse_ratio_is_the_inverse() {
        let there = ratio(&[1.1, 1.3, 0.9, 1.2]);
        let back = ratio(&[1.1, 1.3, 0.9, 1.2].map(f64::recip));
        let ([low, high], [inverse_low, inverse_high]) =
            (there.interval.expect("an interval"), back.interval.expect("an interval"));
        assert!((low * inverse_high - 1.0).abs() < 1e-9 && (high * inverse_low - 1.0).abs() < 1e-9);
        assert!((there.mean * back.mean - 1.0).abs() < 1e-9);
    }

    #[test]
    fn verdict_needs_an_interval_without_one() {
        assert_eq!(ratio(&[1.10, 1.11, 1.12]).verdict(), Some("better"));
        assert_eq!(ratio(&[0.90, 0.89, 0.88]).verdict(), Some("worse"));
        assert_eq!(ratio(&[0.8, 1.1, 1.4]).verdict(), Some("same"));
        assert_eq!(ratio(&[1.0, 1.0]).verdict(), Some("same"));
        assert_eq!(ratio(&[2.0]).verdict(), None);
    }

    #[test]
    fn impossible_ratios_do_not_count() {
        assert_eq!(Ratio::of([f64::NAN, f64::INFINITY, 0.0, -1.0]), None);
        assert_eq!(ratio(&[f64::INFINITY, 2.0]).rounds, 1);
    }

    #[test]
    fn interval_contains_the_true_ratio_in_about_95_of_100_runs() {
        // Twelve uniform numbers in each logarithm are nearly normal; the seed is fixed.
        let mut random = Random::new();
        let mut logarithm = || {
            let sum: f64 = (0..12).map(|_| f64::from(random.below(1 << 30))).sum();
            (sum / f64::from(1 << 30) - 6.0) * 0.1
        };
        for rounds in [2, 3, 5, 10] {
            let contains_one = |_: &u32| {
                let ratio = Ratio::of((0..rounds).map(|_| logarithm().exp()));
                ratio.and_then(|it| it.verdict()) == Some("same")
            };
            let share = f64::from((0..4000).filter(contains_one).count() as u32) / 4000.0;
            assert!((0.94..0.96).contains(&share), "{rounds} rounds: {share}");
        }
    }
}
