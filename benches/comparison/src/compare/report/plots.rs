//! Plots of the figures as SVG.
//!
//! A page may be light or dark, so a plot has its own background. Servers differ by colour and by
//! mark; the colours are those of Okabe and Ito, suitable for colour-blind readers.

use std::ops::Range;

use lockwheel_comparison::Outcome;
use plotters::coord::ranged1d::{KeyPointHint, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use crate::measure::load::grouped;
use crate::report::figures::{Figures, Row, ServerInfo};

const PANEL: (u32, u32) = (440, 330);
const LEGEND_HEIGHT: u32 = 34;
const FONT: &str = "sans-serif";
const BACKGROUND: RGBColor = RGBColor(0xfb, 0xfb, 0xfa);
const FOREGROUND: RGBColor = RGBColor(0x2b, 0x2f, 0x36);
const GRID: RGBColor = RGBColor(0xdf, 0xe1, 0xe5);
const OURS: RGBColor = RGBColor(0x00, 0x72, 0xb2);
const OTHERS: [RGBColor; 4] = [
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
];
/// Factor by which the vertical axis exceeds the data on each side.
const MARGIN: f64 = 1.5;

/// A plot of panels side by side, one for each workload.
pub(crate) struct Plot {
    /// The file name without its extension.
    pub(crate) name: &'static str,
    pub(crate) svg: String,
}

/// A panel that has not been drawn.
struct Panel {
    title: String,
    curves: Vec<Curve>,
}

struct Curve {
    peer: String,
    points: Vec<(f64, f64)>,
}

/// The axes of all panels of a plot.
struct Axes {
    x: &'static str,
    y: String,
    /// The labels at 0, 1, 2... of the x axis.
    ticks: Vec<String>,
}

/// Draws all plots for which there are figures.
pub(crate) fn draw(figures: &Figures) -> Outcome<Vec<Plot>> {
    let wanted = [
        ("latency", by_quantile(figures, "Latency at a fixed rate", "until granted, ")),
        ("expiry", by_quantile(figures, "Expiry", "late, ")),
        ("expiry-others", by_quantile(figures, "Expiry", "GET, ")),
        ("scale", by_connections(figures, "Scale", "locks")),
    ];
    let mut plots = Vec::new();
    for (name, (axes, panels)) in wanted {
        if !panels.is_empty() {
            plots.push(Plot { name, svg: svg(figures, &axes, &panels)? });
        }
    }
    Ok(plots)
}

/// A panel for each of the group's parameters, with quantiles on the x axis: the metrics named
/// prefix and `p99`, for example.
fn by_quantile(figures: &Figures, group: &str, prefix: &str) -> (Axes, Vec<Panel>) {
    let rows = figures.rows(group);
    let quantile = |row: &Row<'_>| {
        let name = row.metric.name.strip_prefix(prefix)?;
        let named = name == "longest" || name.strip_prefix('p')?.parse::<f64>().is_ok();
        named.then(|| name.to_owned())
    };
    let mut axes = Axes { x: "percentile", y: String::new(), ticks: Vec::new() };
    let mut panels: Vec<Panel> = Vec::new();
    for row in &rows {
        let Some(name) = quantile(row) else { continue };
        axes.y = format!("{prefix}{}", row.metric.unit);
        let place = axes.ticks.iter().position(|tick| *tick == name).unwrap_or_else(|| {
            axes.ticks.push(name);
            axes.ticks.len() - 1
        });
        add(&mut panels, row.parameters, figures, row, place as f64);
    }
    (axes, panels)
}

/// A panel for each number of threads, with connections on the x axis.
fn by_connections(figures: &Figures, group: &str, metric: &str) -> (Axes, Vec<Panel>) {
    let mut axes = Axes { x: "connections", y: String::new(), ticks: Vec::new() };
    let mut panels: Vec<Panel> = Vec::new();
    let rows = figures.rows(group);
    for row in rows.iter().filter(|row| row.metric.name == metric) {
        let Some((threads, connections)) = row.parameters.split_once(", ") else { continue };
        let connections = connections.split(' ').next().unwrap_or_default().to_owned();
        axes.y = format!("{metric}, {}", row.metric.unit);
        let place = axes.ticks.iter().position(|tick| *tick == connections).unwrap_or_else(|| {
            axes.ticks.push(connections);
            axes.ticks.len() - 1
        });
        add(&mut panels, threads, figures, row, place as f64);
    }
    (axes, panels)
}

/// Adds the values of all servers at one x coordinate to the panel with this title.
fn add(panels: &mut Vec<Panel>, title: &str, figures: &Figures, row: &Row<'_>, x: f64) {
    if panels.last().is_none_or(|panel| panel.title != title) {
        panels.push(Panel { title: title.to_owned(), curves: Vec::new() });
    }
    let Some(Panel { curves, .. }) = panels.last_mut() else { return };
    for peer in &figures.peers {
        let Some(spread) = row.values(&peer.name) else { continue };
        let at = curves.iter().position(|curve| curve.peer == peer.name).unwrap_or_else(|| {
            curves.push(Curve { peer: peer.name.clone(), points: Vec::new() });
            curves.len() - 1
        });
        // A logarithmic axis has no zero; values below the clock's resolution are drawn at it.
        curves[at].points.push((x, spread.median.max(0.001)));
    }
}

fn svg(figures: &Figures, axes: &Axes, panels: &[Panel]) -> Outcome<String> {
    let size = (PANEL.0 * panels.len() as u32, PANEL.1 + LEGEND_HEIGHT);
    let mut out = String::new();
    {
        let root = SVGBackend::with_string(&mut out, size).into_drawing_area();
        root.fill(&BACKGROUND).map_err(text)?;
        let (above, below) = root.split_vertically(LEGEND_HEIGHT);
        legend(figures, panels, &above)?;
        let reach = reach(panels);
        for (panel, area) in panels.iter().zip(below.split_evenly((1, panels.len()))) {
            draw_panel(figures, axes, panel, reach.clone(), &area)?;
        }
        root.present().map_err(text)?;
    }
    Ok(out)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// Draws the colour and the mark of each server.
fn legend(figures: &Figures, panels: &[Panel], area: &Area<'_>) -> Outcome<()> {
    const LINE_WIDTH: i32 = 26;
    const GAP: i32 = 24;
    let y = LEGEND_HEIGHT as i32 / 2 + 2;
    let mut x = 20;
    let shown =
        |name: &str| panels.iter().any(|panel| panel.curves.iter().any(|curve| curve.peer == name));
    for peer in figures.peers.iter().filter(|peer| shown(&peer.name)) {
        let (color, number) = style_of(figures, &peer.name);
        let line = vec![(x, y), (x + LINE_WIDTH, y)];
        area.draw(&PathElement::new(line, color.stroke_width(2))).map_err(text)?;
        let at = EmptyElement::at((x + LINE_WIDTH / 2, y));
        area.draw(&(at + mark(number, color))).map_err(text)?;
        let style = (FONT, 14).into_font().color(&FOREGROUND);
        area.draw(&Text::new(peer.name.clone(), (x + LINE_WIDTH + 6, y - 8), style))
            .map_err(text)?;
        x += LINE_WIDTH + 6 + 8 * peer.name.len() as i32 + GAP;
    }
    Ok(())
}

fn draw_panel(
    figures: &Figures,
    axes: &Axes,
    panel: &Panel,
    reach: Range<f64>,
    area: &Area<'_>,
) -> Outcome<()> {
    let last = axes.ticks.len().saturating_sub(1) as f64;
    let axis = LabelledAxis { range: -0.3..last + 0.3, ticks: axes.ticks.clone() };
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, (FONT, 15).into_font().color(&FOREGROUND))
        .margin(10)
        .margin_right(18)
        .x_label_area_size(42)
        .y_label_area_size(68)
        .build_cartesian_2d(axis, reach.log_scale())
        .map_err(text)?;
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(FOREGROUND)
        .label_style((FONT, 13).into_font().color(&FOREGROUND))
        .axis_desc_style((FONT, 13).into_font().color(&FOREGROUND))
        .x_desc(axes.x)
        .y_desc(axes.y.as_str())
        .x_labels(axes.ticks.len())
        .y_label_formatter(&|value| decade(*value))
        .draw()
        .map_err(text)?;
    for curve in &panel.curves {
        let (color, number) = style_of(figures, &curve.peer);
        chart
            .draw_series(LineSeries::new(curve.points.iter().copied(), color.stroke_width(2)))
            .map_err(text)?;
        let marks = curve.points.iter().map(|&it| EmptyElement::at(it) + mark(number, color));
        chart.draw_series(marks).map_err(text)?;
    }
    Ok(())
}

/// The mark of a curve: a disc, a triangle, a square or a diamond.
fn mark(number: usize, color: RGBColor) -> Polygon<(i32, i32)> {
    let corners = match number % 4 {
        0 => vec![(-4, -2), (-2, -4), (2, -4), (4, -2), (4, 2), (2, 4), (-2, 4), (-4, 2)],
        1 => vec![(0, -6), (6, 5), (-6, 5)],
        2 => vec![(-4, -4), (4, -4), (4, 4), (-4, 4)],
        _ => vec![(0, -6), (6, 0), (0, 6), (-6, 0)],
    };
    Polygon::new(corners, color.filled())
}

/// The colour and the mark of a server.
fn style_of(figures: &Figures, name: &str) -> (RGBColor, usize) {
    let peers = || figures.peers.iter();
    let is_ours = |ours| move |peer: &&ServerInfo| peer.ours == ours;
    match peers().filter(is_ours(false)).position(|peer| peer.name == name) {
        Some(place) => (OTHERS[place % OTHERS.len()], 1 + place),
        None if peers().find(is_ours(true)).is_some_and(|peer| peer.name == name) => (OURS, 0),
        None => (RGBColor(0x56, 0xb4, 0xe9), 2),
    }
}

/// The range of the vertical axis: that of the values, with a margin.
fn reach(panels: &[Panel]) -> Range<f64> {
    let curves = panels.iter().flat_map(|panel| &panel.curves);
    let values = || curves.clone().flat_map(|curve| &curve.points).map(|&(_, y)| y);
    let (least, most) = (values().fold(f64::MAX, f64::min), values().fold(0.0, f64::max));
    least / MARGIN..most * MARGIN
}

/// The label of a power of ten.
fn decade(value: f64) -> String {
    if value >= 1.0 { grouped(value.round() as u32) } else { format!("{value}") }
}

/// An axis with labels at 0, 1, 2...
#[derive(Clone)]
struct LabelledAxis {
    range: Range<f64>,
    ticks: Vec<String>,
}

impl Ranged for LabelledAxis {
    type FormatOption = plotters::coord::ranged1d::NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        RangedCoordf64::from(self.range.clone()).map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        (0..self.ticks.len()).map(|place| place as f64).collect()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for LabelledAxis {
    fn format_ext(&self, value: &f64) -> String {
        self.ticks.get(value.round() as usize).cloned().unwrap_or_default()
    }
}

/// Converts an error to a text, because drawing errors borrow the drawing.
fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::{decade, draw};
    use crate::report::figures::Figures;
    use crate::report::figures::tests::figures;

    /// Figures of two servers for each metric.
    fn of(group: &'static str, parameters: &str, metrics: &[&str]) -> Figures {
        let mut all = figures("");
        for (place, metric) in metrics.iter().enumerate() {
            let value = 10_u32.pow(place as u32);
            let mut more = figures(&format!("cost theirs 0 {value}\ncost ours 0 {}", value * 2));
            for figure in &mut more.figures {
                figure.group = group.into();
                figure.parameters = parameters.to_owned();
                figure.metric.name = (*metric).to_owned();
            }
            all.figures.append(&mut more.figures);
        }
        all
    }

    #[test]
    fn panel_shows_every_quantile_of_every_server() {
        let metrics = ["late, p50", "late, p99.9", "late, longest", "server CPU"];
        let plots = draw(&of("Expiry", "many leases", &metrics)).expect("plots");
        assert_eq!(plots.iter().map(|plot| plot.name).collect::<Vec<_>>(), ["expiry"]);
        let svg = &plots[0].svg;
        for text in ["many leases", "theirs", "ours", "p50", "p99.9", "longest", "late, us"] {
            assert!(svg.contains(text), "{text} is not in {svg}");
        }
        assert!(!svg.contains("server CPU"), "{svg}");
        for color in ["#0072B2", "#D55E00"] {
            let lines = svg.lines().filter(|line| line.contains("<polyline"));
            let drawn = lines.filter(|line| line.contains(color)).count();
            assert_eq!(drawn, 2, "a curve and a line in the legend: {color} in {svg}");
        }
    }

    #[test]
    fn connections_are_labels_of_the_axis() {
        let mut all = of("Scale", "1 thread, 1 connection", &["locks"]);
        all.figures.append(&mut of("Scale", "1 thread, 1,000 connections", &["locks"]).figures);
        let plots = draw(&all).expect("plots");
        assert_eq!(plots[0].name, "scale");
        assert!(plots[0].svg.contains("\n1,000\n"), "{}", plots[0].svg);
    }

    #[test]
    fn no_figures_make_no_plots() {
        assert!(draw(&figures("")).expect("no plots").is_empty());
    }

    #[test]
    fn powers_of_ten_are_written_out() {
        assert_eq!([0.01, 1.0, 10_000.0].map(decade), ["0.01", "1", "10,000"]);
    }
}
