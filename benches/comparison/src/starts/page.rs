//! The page: medians and how far they spread. It must not know who is measured.

use std::process::Command;

use crate::{Kind, Reading, Span};

/// The text around the figures.
const PAGE: &str = include_str!("page.md");
const HEAD: &str = "| | start | times Lockwheel's | end |\n|---|---:|---:|---:|\n";

/// Writes the page.
pub(crate) fn write(readings: &[Reading], rounds: u32) -> String {
    let page = PAGE.replace("{{machine}}", &machine());
    let page = page.replace("{{rounds}}", &rounds.to_string());
    let tables =
        [("{{process}}", Kind::Process), ("{{first}}", Kind::First), ("{{later}}", Kind::Later)];
    let fill = |page: String, (place, kind)| page.replace(place, &table(readings, kind));
    tables.into_iter().fold(page, fill)
}

fn table(readings: &[Reading], kind: Kind) -> String {
    let mut names: Vec<&str> = Vec::new();
    for reading in readings.iter().filter(|reading| reading.kind == kind) {
        if !names.contains(&reading.name.as_str()) {
            names.push(&reading.name);
        }
    }
    // Rounds go forth and back; in the first one Lockwheel comes first.
    let row = |name: &&str| {
        let all = of(readings, kind, name);
        let ours = of(readings, kind, names[0]);
        let start = all.iter().map(|(_, span)| span.start.as_secs_f64() * 1e3).collect();
        let stop = all.iter().map(|(_, span)| span.stop.as_secs_f64() * 1e3).collect();
        let times = all.iter().zip(&ours).map(|((round, span), (our_round, our))| {
            assert_eq!(round, our_round);
            span.start.as_secs_f64() / our.start.as_secs_f64()
        });
        let times = Spread::of(times.collect()).show();
        let (start, stop) = (Spread::of(start).show(), Spread::of(stop).show());
        let times = if *name == names[0] { String::new() } else { times };
        format!("| {name} | {start} | {times} | {stop} |\n")
    };
    HEAD.to_owned() + &names.iter().map(row).collect::<String>()
}

/// What was measured of one, by rounds.
fn of(readings: &[Reading], kind: Kind, name: &str) -> Vec<(u32, Span)> {
    let own = readings.iter().filter(|reading| reading.kind == kind && reading.name == name);
    own.map(|reading| (reading.round, reading.span)).collect()
}

/// A median, and where the middle of the values lies.
struct Spread {
    low: f64,
    median: f64,
    high: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Spread {
        values.sort_by(f64::total_cmp);
        let aside = values.len() / 8;
        let (low, high) = (values[aside], values[values.len() - 1 - aside]);
        Spread { low, median: median(values), high }
    }

    fn show(&self) -> String {
        let [median, low, high] = [self.median, self.low, self.high].map(number);
        format!("**{median}** ({low}..{high})")
    }
}

/// The value in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// With as many places as tell something.
fn number(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 0.1 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

/// The machine, in a line.
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
    use super::{Spread, number};

    #[test]
    fn the_middle_is_told_with_three_quarters_around_it() {
        let spread = Spread::of((0..=16).map(f64::from).collect());
        assert_eq!((spread.low, spread.median, spread.high), (2.0, 8.0, 14.0));
        assert_eq!([500.4, 12.34, 1.234, 0.0123].map(number), ["500", "12.3", "1.23", "0.012"]);
    }
}
