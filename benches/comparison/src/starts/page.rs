//! Writes the page `docs/start.md`: medians and their spread.

use std::process::Command;

use lockwheel_benches::git_commit;

use crate::{Mode, StartReading, Times};

/// The text of the page, with placeholders for the tables.
const PAGE: &str = include_str!("page.md");
const HEAD: &str = "| | start | times Lockwheel's | end |\n|---|---:|---:|---:|\n";

/// Writes the page.
pub(crate) fn write(readings: &[StartReading], rounds: u32) -> String {
    let page = PAGE.replace("{{machine}}", &machine()).replace("{{commit}}", &git_commit());
    let page = page.replace("{{rounds}}", &rounds.to_string());
    let tables =
        [("{{process}}", Mode::Process), ("{{first}}", Mode::First), ("{{later}}", Mode::Later)];
    let fill = |page: String, (place, mode)| page.replace(place, &table(readings, mode));
    tables.into_iter().fold(page, fill)
}

fn table(readings: &[StartReading], mode: Mode) -> String {
    let mut names: Vec<&str> = Vec::new();
    for reading in readings.iter().filter(|reading| reading.mode == mode) {
        if !names.contains(&reading.name.as_str()) {
            names.push(&reading.name);
        }
    }
    // In the first round, Lockwheel comes first.
    let row = |name: &&str| {
        let all = of(readings, mode, name);
        let ours = of(readings, mode, names[0]);
        let start = all.iter().map(|(_, times)| times.start.as_secs_f64() * 1e3).collect();
        let stop = all.iter().map(|(_, times)| times.stop.as_secs_f64() * 1e3).collect();
        let ratios = all.iter().zip(&ours).map(|((round, times), (our_round, our))| {
            assert_eq!(round, our_round);
            times.start.as_secs_f64() / our.start.as_secs_f64()
        });
        let ratios = MedianRange::of(ratios.collect()).show();
        let (start, stop) = (MedianRange::of(start).show(), MedianRange::of(stop).show());
        let ratios = if *name == names[0] { String::new() } else { ratios };
        format!("| {name} | {start} | {ratios} | {stop} |\n")
    };
    HEAD.to_owned() + &names.iter().map(row).collect::<String>()
}

/// The times of one server, by rounds.
fn of(readings: &[StartReading], mode: Mode, name: &str) -> Vec<(u32, Times)> {
    let own = readings.iter().filter(|reading| reading.mode == mode && reading.name == name);
    own.map(|reading| (reading.round, reading.times)).collect()
}

/// The median, and the range of the middle three quarters of the values.
struct MedianRange {
    low: f64,
    median: f64,
    high: f64,
}

impl MedianRange {
    fn of(mut values: Vec<f64>) -> MedianRange {
        values.sort_by(f64::total_cmp);
        let excluded = values.len() / 8;
        let (low, high) = (values[excluded], values[values.len() - 1 - excluded]);
        MedianRange { low, median: median(values), high }
    }

    fn show(&self) -> String {
        let [median, low, high] = [self.median, self.low, self.high].map(number);
        format!("**{median}** ({low}..{high})")
    }
}

/// The median.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A number with two or three significant digits.
fn number(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 0.1 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

/// A description of the machine in one line.
fn machine() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("?", |(_, model)| model.trim()).to_owned();
    let processors = cpu.lines().filter(|line| line.starts_with("processor")).count();
    let date = Command::new("date").args(["--utc", "+%F"]).output();
    let date = date.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let load = read("/proc/loadavg");
    format!(
        "{model}, {processors} processors, Linux {}, {}; load {} at the end",
        read("/proc/sys/kernel/osrelease").trim(),
        date.unwrap_or_default(),
        load.split(' ').next().unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::{MedianRange, number};

    #[test]
    fn median_is_shown_with_the_middle_three_quarters() {
        let spread = MedianRange::of((0..=16).map(f64::from).collect());
        assert_eq!((spread.low, spread.median, spread.high), (2.0, 8.0, 14.0));
        assert_eq!([500.4, 12.34, 1.234, 0.0123].map(number), ["500", "12.3", "1.23", "0.012"]);
    }
}
