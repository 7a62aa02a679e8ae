//! Times of the day and dates, in UTC. Those of a history are not known.

use super::results::Report;
use super::words::number;

const SECOND_US: i64 = 1_000_000;
const DAY_US: i64 = 86_400 * SECOND_US;
const MONTH_DAYS: [i64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

impl Report {
    /// The time of the day, such as `13:05:09.250`; in a history, the microseconds since its start.
    pub(super) fn time(&self, at_us: i64) -> String {
        if self.is_of_history() {
            let passed_us = at_us.saturating_sub(self.started_us);
            return number(passed_us.try_into().unwrap_or(0));
        }
        let ms = self.wall_us(at_us) % DAY_US / 1000;
        let (hours, minutes, seconds) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
        format!("{hours:02}:{minutes:02}:{seconds:02}.{:03}", ms % 1000)
    }

    /// What the times of a table mean.
    pub(super) fn times_note(&self, at_us: i64) -> String {
        if self.is_of_history() {
            return "Times are in microseconds since the first request.".to_owned();
        }
        format!("Times are in UTC on {}.", self.date(at_us))
    }

    /// The date, such as `2026-11-30`.
    pub(super) fn date(&self, at_us: i64) -> String {
        let mut day = self.wall_us(at_us) / DAY_US;
        let mut year = 1970;
        while day >= 365 + leap_day(year) {
            day -= 365 + leap_day(year);
            year += 1;
        }
        let mut month = 0;
        while day >= month_days(year, month) {
            day -= month_days(year, month);
            month += 1;
        }
        format!("{year}-{:02}-{:02}", month + 1, day + 1)
    }

    /// Microseconds since 1970.
    fn wall_us(&self, at_us: i64) -> i64 {
        let passed_us = at_us.saturating_sub(self.started_us);
        self.started_wall_us.saturating_add(passed_us).max(0)
    }
}

fn leap_day(year: i64) -> i64 {
    i64::from(year % 4 == 0 && year % 100 != 0 || year % 400 == 0)
}

/// The days of a month, counted from 0.
fn month_days(year: i64, month: usize) -> i64 {
    MONTH_DAYS[month] + if month == 1 { leap_day(year) } else { 0 }
}

#[cfg(test)]
mod tests {
    use crate::report::sample;

    #[test]
    fn days_have_dates() {
        let mut report = sample::green();
        for (wall_s, expected) in [
            (0, "1970-01-01 00:00:00.000"),
            (951_782_399, "2000-02-28 23:59:59.000"),
            (951_782_400, "2000-02-29 00:00:00.000"),
            (1_735_689_599, "2024-12-31 23:59:59.000"),
            (1_772_323_200, "2026-03-01 00:00:00.000"),
            (4_107_542_400, "2100-03-01 00:00:00.000"),
        ] {
            report.started_wall_us = wall_s * 1_000_000;
            let at_us = report.started_us;
            assert_eq!(format!("{} {}", report.date(at_us), report.time(at_us)), expected);
            assert_eq!(report.time(at_us + 1_250)[9..], *"001");
        }
    }
}
