//! Draws the worst case as a picture in SVG: a lane for each client with the times in which it
//! could rely on the lock, and what happened to the servers meanwhile.
//!
//! Positions across are percentages, so that the picture fits a phone and its text keeps its size.

use std::fmt::Write;

use super::results::{Case, Report};
use super::words::{html, span};

/// Height of a row of marks of events.
const MARK_PX: usize = 22;
/// Height of the label of the overlap.
const LABEL_PX: usize = 24;
/// Height of a lane.
const LANE_PX: usize = 46;
/// Height of the axis.
const AXIS_PX: usize = 24;
/// Height of a bar, and its distance from the top of its lane.
const BAR_PX: usize = 18;
const BAR_TOP_PX: usize = 20;
/// The distance of two marks on one row, as a percentage of the width.
const MARK_DISTANCE: f64 = 8.0;
/// Rows of marks.
const MARK_ROWS_MAX: usize = 5;
/// The events of a picture; faults come before changes.
const EVENTS_MAX: usize = 24;
/// The intervals of the axis.
const INTERVALS_MAX: i64 = 4;

/// A picture with the events that it shows.
pub(super) struct Timeline {
    /// The picture.
    pub(super) svg: String,
    /// The events, in order.
    pub(super) events: Vec<Event>,
    /// The number of events for which it has no room.
    pub(super) hidden: usize,
}

/// A fault, or a change of a server.
pub(super) struct Event {
    /// Whether it is a fault.
    pub(super) is_fault: bool,
    /// Its number in the picture.
    pub(super) mark: usize,
    /// Its begin.
    pub(super) from_us: i64,
    until_us: i64,
    /// What happened.
    pub(super) text: String,
}

/// The time that the picture shows.
struct Scale {
    from_us: i64,
    until_us: i64,
}

impl Scale {
    fn of(case: &Case) -> Scale {
        let moments = || {
            let holds = case.holds.iter().flat_map(|hold| [hold.from_us, hold.until_us]);
            holds.chain(case.story.iter().map(|line| line.at_us)).chain([case.at_us])
        };
        let from_us = moments().min().unwrap_or(case.at_us);
        let until_us = moments().max().unwrap_or(case.at_us);
        let margin_us = (until_us.saturating_sub(from_us) / 50).max(1000);
        Scale {
            from_us: from_us.saturating_sub(margin_us),
            until_us: until_us.saturating_add(margin_us),
        }
    }

    fn span_us(&self) -> i64 {
        self.until_us.saturating_sub(self.from_us).max(1)
    }

    fn contains(&self, from_us: i64, until_us: i64) -> bool {
        from_us <= self.until_us && self.from_us <= until_us
    }

    /// The place of a moment, as a percentage of the width.
    fn place(&self, at_us: i64) -> f64 {
        let at_us = at_us.clamp(self.from_us, self.until_us);
        (at_us - self.from_us) as f64 * 100.0 / self.span_us() as f64
    }

    fn width(&self, from_us: i64, until_us: i64) -> f64 {
        (self.place(until_us) - self.place(from_us)).max(0.0)
    }

    /// The moments that have a label: multiples of a round interval on the clock.
    fn ticks(&self, report: &Report) -> Vec<i64> {
        let round = |exponent: u32| [1, 2, 5].map(|digit| digit * 10_i64.pow(exponent));
        let mut intervals = (0..18).flat_map(round);
        let interval_us = intervals.find(|it| self.span_us() / it < INTERVALS_MAX);
        let interval_us = interval_us.unwrap_or(i64::MAX);
        let zero_us = report.started_us.saturating_sub(report.started_wall_us % interval_us);
        let first = (self.from_us.saturating_sub(zero_us)).div_euclid(interval_us) + 1;
        let ticks = (first..first + INTERVALS_MAX)
            .map(|number| zero_us.saturating_add(number.saturating_mul(interval_us)));
        ticks.filter(|&at_us| self.contains(at_us, at_us)).collect()
    }
}

/// The picture of a case; `None` if no client held the lock.
pub(super) fn draw(report: &Report, case: &Case) -> Option<Timeline> {
    if case.holds.is_empty() {
        return None;
    }
    let scale = Scale::of(case);
    let mut events = events(report, &scale);
    let hidden = choose(&mut events);
    let mut clients: Vec<&str> = Vec::new();
    for hold in &case.holds {
        if !clients.contains(&&*hold.client) {
            clients.push(&hold.client);
        }
    }
    let rows = mark_rows(&events, &scale);
    let top = rows.iter().max().map_or(0, |row| (row + 1) * MARK_PX);
    let lanes_top = top + if case.overlap_us > 0 { LABEL_PX } else { 0 };
    let bottom = lanes_top + clients.len() * LANE_PX;
    let mut svg = String::new();
    let title = format!("Times in which clients could rely on the lock {}", case.lock);
    let _ = write!(
        svg,
        "<svg role=\"img\" aria-labelledby=\"picture-title picture-text\" width=\"100%\" \
         height=\"{}\"><title id=\"picture-title\">{}</title><desc id=\"picture-text\">{}</desc>",
        bottom + AXIS_PX,
        html(&title),
        html(&description(case, &clients)),
    );
    svg += "<defs><pattern id=\"stripes\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
        patternTransform=\"rotate(45)\"><rect width=\"2\" height=\"6\" class=\"stripe\"/></pattern>\
        </defs>\n";
    draw_axis(&mut svg, report, &scale, bottom);
    draw_events(&mut svg, &events, &rows, &scale, bottom);
    draw_overlap(&mut svg, case, &scale, [top, lanes_top, bottom]);
    for (number, client) in clients.iter().enumerate() {
        draw_lane(&mut svg, report, case, client, &scale, lanes_top + number * LANE_PX);
    }
    svg += "</svg>";
    Some(Timeline { svg, events, hidden })
}

/// The picture in words.
fn description(case: &Case, clients: &[&str]) -> String {
    let clients = clients.join(", ");
    let overlap = match case.overlap_us {
        0 => String::new(),
        overlap_us => format!(" Two of them could rely on it at once for {}.", span(overlap_us)),
    };
    format!("One lane for each of the clients {clients}.{overlap} The table below has the details.")
}

/// The faults and changes that happened within the picture.
fn events(report: &Report, scale: &Scale) -> Vec<Event> {
    let faults = report.faults.iter().map(|fault| Event {
        is_fault: true,
        mark: 0,
        from_us: fault.begin_us,
        until_us: fault.end_us.max(fault.begin_us),
        text: format!("fault: {}", fault.name),
    });
    let changes = report.observations.iter().map(|it| Event {
        is_fault: false,
        mark: 0,
        from_us: it.at_us,
        until_us: it.at_us,
        text: format!("{} {}", it.server, it.change),
    });
    let mut events: Vec<Event> = faults.chain(changes).collect();
    events.retain(|event| scale.contains(event.from_us, event.until_us));
    events
}

/// Keeps the events that have room, puts them in order and numbers them. Returns the number of the
/// others.
fn choose(events: &mut Vec<Event>) -> usize {
    let hidden = events.len().saturating_sub(EVENTS_MAX);
    events.truncate(EVENTS_MAX);
    events.sort_by_key(|event| event.from_us);
    for (number, event) in events.iter_mut().enumerate() {
        event.mark = number + 1;
    }
    hidden
}

/// The row of the mark of each event, such that marks do not cover each other if there is room.
fn mark_rows(events: &[Event], scale: &Scale) -> Vec<usize> {
    let mut last = [f64::NEG_INFINITY; MARK_ROWS_MAX];
    let row = |event: &Event| {
        let place = scale.place(event.from_us);
        let free = last.iter().position(|last| place - last >= MARK_DISTANCE);
        let oldest = || (0..last.len()).min_by(|one, other| last[*one].total_cmp(&last[*other]));
        let row = free.or_else(oldest).unwrap_or(0);
        last[row] = place;
        row
    };
    events.iter().map(row).collect()
}

fn draw_axis(svg: &mut String, report: &Report, scale: &Scale, bottom: usize) {
    let _ = writeln!(
        svg,
        "<line class=\"axis\" x1=\"0\" x2=\"100%\" y1=\"{bottom}\" y2=\"{bottom}\"/>"
    );
    for at_us in scale.ticks(report) {
        let place = scale.place(at_us);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{place:.2}%\" x2=\"{place:.2}%\" y1=\"0\" y2=\"{bottom}\"/>"
        );
        let time = report.time(at_us);
        let time = time.strip_suffix(".000").unwrap_or(&time);
        let y = bottom + 16;
        let anchor = anchor(place, time.len() as f64);
        let _ = writeln!(svg, "<text x=\"{place:.2}%\" y=\"{y}\"{anchor}>{time}</text>");
    }
}

fn draw_events(svg: &mut String, events: &[Event], rows: &[usize], scale: &Scale, bottom: usize) {
    for event in events.iter().filter(|event| event.is_fault) {
        let place = scale.place(event.from_us);
        let width = scale.width(event.from_us, event.until_us);
        let _ = writeln!(
            svg,
            "<rect class=\"fault\" x=\"{place:.2}%\" width=\"{width:.2}%\" y=\"0\" \
             height=\"{bottom}\"/>"
        );
    }
    for (event, row) in events.iter().zip(rows) {
        let class = if event.is_fault { "fault" } else { "change" };
        let place = scale.place(event.from_us);
        let y = row * MARK_PX + MARK_PX / 2;
        let text = html(&event.text);
        let _ = writeln!(
            svg,
            "<g class=\"{class}\"><title>{text}</title><line x1=\"{place:.2}%\" \
             x2=\"{place:.2}%\" y1=\"{y}\" y2=\"{bottom}\"/><circle cx=\"{place:.2}%\" \
             cy=\"{y}\" r=\"9\"/><text x=\"{place:.2}%\" y=\"{}\" text-anchor=\"middle\">{}\
             </text></g>",
            y + 4,
            event.mark,
        );
    }
}

/// The time in which two clients could rely on the lock. `tops` are those of its label, of the
/// lanes and of the axis.
fn draw_overlap(svg: &mut String, case: &Case, scale: &Scale, tops: [usize; 3]) {
    if case.overlap_us <= 0 {
        return;
    }
    let [top, lanes_top, bottom] = tops;
    let until_us = case.at_us.saturating_add(case.overlap_us);
    let (place, end) = (scale.place(case.at_us), scale.place(until_us));
    let middle = f64::midpoint(place, end);
    let _ = writeln!(
        svg,
        "<rect class=\"overlap\" x=\"{place:.2}%\" width=\"{:.2}%\" y=\"{lanes_top}\" \
         height=\"{}\"/><text class=\"overlap\" x=\"{middle:.2}%\" y=\"{}\"{}>held twice: {}\
         </text>",
        end - place,
        bottom - lanes_top,
        top + 16,
        anchor(middle, 20.0),
        span(case.overlap_us),
    );
}

fn draw_lane(
    svg: &mut String,
    report: &Report,
    case: &Case,
    client: &str,
    scale: &Scale,
    top: usize,
) {
    let name = html(client);
    let bar_top = top + BAR_TOP_PX;
    let _ = writeln!(svg, "<text class=\"client\" x=\"2\" y=\"{}\">{name}</text>", top + 14);
    let overlap_us = case.at_us..case.at_us.saturating_add(case.overlap_us);
    for hold in case.holds.iter().filter(|hold| hold.client == client) {
        let mut bar = |class: &str, from_us: i64, until_us: i64| {
            let _ = writeln!(
                svg,
                "<rect class=\"{class}\" x=\"{:.2}%\" width=\"{:.2}%\" y=\"{bar_top}\" \
                 height=\"{BAR_PX}\"><title>{name}: {} to {}</title></rect>",
                scale.place(from_us),
                scale.width(from_us, until_us),
                report.time(hold.from_us),
                report.time(hold.until_us),
            );
        };
        bar("hold", hold.from_us, hold.until_us);
        let from_us = hold.from_us.max(overlap_us.start);
        let until_us = hold.until_us.min(overlap_us.end);
        if from_us < until_us {
            bar("twice", from_us, until_us);
        }
    }
    for line in case.story.iter().filter(|line| line.is_proof && line.actor == client) {
        let place = scale.place(line.at_us);
        let y = bar_top + BAR_PX / 2;
        let text = html(&line.text);
        let _ = writeln!(
            svg,
            "<circle class=\"proof\" cx=\"{place:.2}%\" cy=\"{y}\" r=\"5\"><title>{text}</title>\
             </circle>"
        );
    }
}

/// Keeps a text within the picture: it begins, has its middle, or ends at its place. The margin is
/// half of its width on a phone, as a percentage.
fn anchor(place: f64, margin: f64) -> &'static str {
    match place {
        _ if place < margin => "",
        _ if place > 100.0 - margin => " text-anchor=\"end\"",
        _ => " text-anchor=\"middle\"",
    }
}
