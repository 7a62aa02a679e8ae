//! Writes the page `docs/start.md`: medians and their spread.

use lockwheel_comparison::Machine;

use crate::{Mode, StartReading, StartResults};

/// The text of the page, with placeholders for the tables.
const PAGE: &str = include_str!("page.md");
const HEAD: &str = "| | start | times Lockwheel's | end |\n|---|---:|---:|---:|\n";

/// Writes the page.
pub(crate) fn write(results: &StartResults) -> String {
    let page = PAGE.replace("{{machine}}", &machine(&results.machine));
    let page = page.replace("{{rounds}}", &results.rounds.to_string());
    let tables =
        [("{{process}}", Mode::Process), ("{{first}}", Mode::First), ("{{later}}", Mode::Later)];
    let fill = |page: String, (place, mode)| page.replace(place, &table(&results.readings, mode));
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
        let ratios = all.iter().zip(&ours).map(|(reading, our)| {
            assert_eq!(reading.round, our.round);
            reading.start_ms / our.start_ms
        });
        let ratios = MedianRange::of(ratios.collect()).show();
        let show = |of: fn(&StartReading) -> f64| {
            MedianRange::of(all.iter().map(|reading| of(reading)).collect()).show()
        };
        let (start, stop) = (show(|reading| reading.start_ms), show(|reading| reading.stop_ms));
        let ratios = if *name == names[0] { String::new() } else { ratios };
        format!("| {name} | {start} | {ratios} | {stop} |\n")
    };
    HEAD.to_owned() + &names.iter().map(row).collect::<String>()
}

/// The readings of one server, by rounds.
fn of<'a>(readings: &'a [StartReading], mode: Mode, name: &str) -> Vec<&'a StartReading> {
    readings.iter().filter(|reading| reading.mode == mode && reading.name == name).collect()
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
fn machine(machine: &Machine) -> String {
    let Machine { commit, processor, processors, kernel, date, load, .. } = machine;
    let load = load.join(" before, ");
    format!(
        "Commit {commit}; {processor}, {processors} processors, Linux {kernel}, {date}; \
         load {load} after"
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{MedianRange, number, write};
    use crate::read;

    #[test]
    fn page_is_generated_from_the_saved_results() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let results = read(&root.join("benches/results/starts.json")).expect("results");
        let written = std::fs::read_to_string(root.join("docs/start.md")).expect("a page");
        assert!(written == write(&results), "docs/start.md is outdated: it says how to write it");
    }

    #[test]
    fn median_is_shown_with_the_middle_three_quarters() {
        let spread = MedianRange::of((0..=16).map(f64::from).collect());
        assert_eq!((spread.low, spread.median, spread.high), (2.0, 8.0, 14.0));
        assert_eq!([500.4, 12.34, 1.234, 0.0123].map(number), ["500", "12.3", "1.23", "0.012"]);
    }
}
