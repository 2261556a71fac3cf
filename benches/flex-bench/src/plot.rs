//! Plots, as SVG.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use plotters::coord::combinators::IntoLogRange;
use plotters::element::{Circle, PathElement, Rectangle, Text};
use plotters::prelude::{
    ChartBuilder, ChartContext, CoordTranslate, DrawingArea, IntoDrawingArea, RGBColor, SVGBackend, SeriesLabelPosition,
};
use plotters::series::{DashedLineSeries, LineSeries};
use plotters::style::{BLACK, Color, IntoFont, ShapeStyle, WHITE};

use crate::peers::Peer;

const SIZE: (u32, u32) = (800, 420);
const FONT: &str = "sans-serif";
/// The most steps of a curve: more are not visible, and make the file large.
const MOST_STEPS: usize = 250;
/// Colours that people with colour blindness can distinguish.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

/// Values by the size of a burst.
#[derive(Clone, Debug)]
pub struct Series {
    /// Their name.
    pub name: String,
    /// Size, and value.
    pub points: Vec<(f64, f64)>,
}

/// Plots how many were done since the first creation, and the rates of other provisioners.
///
/// # Errors
/// The file cannot be written.
pub fn done_over_time(file: &Path, title: &str, curves: &[(String, Vec<f64>)], peers: &[Peer]) -> Result<()> {
    let last = curves.iter().flat_map(|(_, times)| times).copied().fold(0.1, f64::max);
    let most = curves.iter().map(|(_, times)| times.len()).max().unwrap_or(1).max(1) as f64;
    let across = last * 1.05;
    // With space for the legend above.
    let high = most * (1.1 + 0.07 * (curves.len() + peers.len()) as f64);
    draw(file, |area| {
        let mut chart = framed(area, title, 55).build_cartesian_2d(0.0..across, 0.0..high).map_err(owned_error)?;
        chart
            .configure_mesh()
            .max_light_lines(1)
            .x_desc("seconds since the first was created")
            .y_desc("claims")
            .draw()
            .map_err(owned_error)?;
        for (n, (name, times)) in curves.iter().enumerate() {
            let colour = COLOURS[n % COLOURS.len()];
            chart
                .draw_series(LineSeries::new(steps(times), colour.stroke_width(2)))
                .map_err(owned_error)?
                .label(name.clone())
                .legend(line(colour.stroke_width(2)));
        }
        for (n, peer) in peers.iter().enumerate() {
            let colour = COLOURS[(curves.len() + n) % COLOURS.len()];
            let end = across.min(most / peer.per_second);
            let rate = [(0.0, 0.0), (end, end * peer.per_second)];
            chart
                .draw_series(DashedLineSeries::new(rate, 10, 6, colour.stroke_width(1)))
                .map_err(owned_error)?
                .label(format!("{}: {} a second", peer.name, peer.per_second))
                .legend(line(colour.stroke_width(1)));
        }
        legend(&mut chart)
    })
}

/// Returns a step for each that was done; of many, several share a step.
fn steps(times: &[f64]) -> Vec<(f64, f64)> {
    let stride = times.len().div_ceil(MOST_STEPS).max(1);
    let mut points = vec![(0.0, 0.0)];
    let mut done = 0.0;
    for part in times.chunks(stride) {
        let at = part[part.len() - 1];
        points.push((at, done));
        done += part.len() as f64;
        points.push((at, done));
    }
    points
}

/// Plots values by the size of a burst, on a logarithmic scale; `bound` is their target.
///
/// # Errors
/// The file cannot be written.
pub fn by_size(file: &Path, title: &str, unit: &str, series: &[Series], bound: Option<(&str, f64)>) -> Result<()> {
    let points = || series.iter().flat_map(|series| series.points.iter().copied());
    let (least, most) = points().fold((f64::MAX, 1.0), |(least, most), (size, _)| (size.min(least), size.max(most)));
    // With space for the legend above.
    let highest = points().map(|(_, value)| value).chain(bound.map(|(_, value)| value)).fold(0.1, f64::max) * 1.4;
    let (least, most) = (least.min(most) * 0.8, most * 1.25);
    draw(file, |area| {
        let mut chart =
            framed(area, title, 55).build_cartesian_2d((least..most).log_scale(), 0.0..highest).map_err(owned_error)?;
        chart
            .configure_mesh()
            .max_light_lines(1)
            .x_desc("claims at one time")
            .y_desc(unit)
            .x_label_formatter(&|size| format!("{size:.0}"))
            .draw()
            .map_err(owned_error)?;
        for (n, Series { name, points }) in series.iter().enumerate() {
            let colour = COLOURS[n % COLOURS.len()];
            chart
                .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))
                .map_err(owned_error)?
                .label(name.clone())
                .legend(line(colour.stroke_width(2)));
            chart.draw_series(points.iter().map(|at| Circle::new(*at, 3, colour.filled()))).map_err(owned_error)?;
        }
        if let Some((name, bound)) = bound {
            let level = [(least, bound), (most, bound)];
            chart
                .draw_series(DashedLineSeries::new(level, 10, 6, BLACK.stroke_width(1)))
                .map_err(owned_error)?
                .label(name)
                .legend(line(BLACK.stroke_width(1)));
        }
        legend(&mut chart)
    })
}

/// Plots a bar for each value, with its name and the value beside it. Bars of other provisioners are grey.
///
/// # Errors
/// The file cannot be written.
pub fn bars(file: &Path, title: &str, unit: &str, values: &[(String, f64, bool)]) -> Result<()> {
    let highest = values.iter().map(|(_, value, _)| *value).fold(0.1, f64::max) * 1.15;
    let count = values.len().max(1) as f64;
    draw(file, |area| {
        let mut chart = framed(area, title, 310).build_cartesian_2d(0.0..highest, 0.0..count).map_err(owned_error)?;
        chart.configure_mesh().disable_mesh().disable_y_axis().x_desc(unit).draw().map_err(owned_error)?;
        for (n, (_, value, own)) in values.iter().enumerate() {
            let low = count - 1.0 - n as f64;
            let colour = if *own { COLOURS[0] } else { RGBColor(150, 150, 150) };
            let bar = Rectangle::new([(0.0, low + 0.18), (*value, low + 0.82)], colour.filled());
            chart.draw_series([bar]).map_err(owned_error)?;
        }
        // The names are where the axis would be: they are longer than its space.
        for (n, (name, value, _)) in values.iter().enumerate() {
            let low = count - 1.0 - n as f64;
            let (x, y) = chart.backend_coord(&(*value, low + 0.5));
            area.draw(&Text::new(format!("{value:.1}"), (x + 6, y - 7), (FONT, 14).into_font()))
                .map_err(owned_error)?;
            area.draw(&Text::new(name.clone(), (16, y - 7), (FONT, 14).into_font())).map_err(owned_error)?;
        }
        Ok(())
    })
}

/// Returns a chart with its title, and with this much space at the left for names.
fn framed<'a, 'b>(area: &'a Area<'b>, title: &str, remaining: u32) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut chart = ChartBuilder::on(area);
    chart.caption(title, (FONT, 18)).margin(12).x_label_area_size(40).y_label_area_size(remaining);
    chart
}

/// Draws the names of all series, above them.
fn legend<'a, C: CoordTranslate>(chart: &mut ChartContext<'a, SVGBackend<'a>, C>) -> Result<()> {
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .label_font((FONT, 13))
        .draw()
        .map_err(owned_error)
}

/// Draws the sample of a line beside its name.
fn line(style: ShapeStyle) -> impl Fn((i32, i32)) -> PathElement<(i32, i32)> {
    move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw(file: &Path, plot: impl FnOnce(&Area) -> Result<()>) -> Result<()> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(owned_error)?;
        plot(&area).with_context(|| format!("plot {}", file.display()))?;
        area.present().map_err(owned_error)?;
    }
    fs::write(file, text).with_context(|| format!("write {}", file.display()))
}

/// Returns an error of the drawing without its references to the drawing area.
fn owned_error(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("{error}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::PEERS;

    #[test]
    fn plots_are_written_with_the_names_of_their_series() {
        let directory = tempfile::tempdir().unwrap();
        let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
        let path = |name: &str| directory.path().join(name);
        let curve = ("claims <of a class>".to_owned(), (1..=50).map(|n| f64::from(n) / 10.0).collect());
        done_over_time(&path("a.svg"), "A burst", &[curve], &PEERS).unwrap();
        assert!(
            read("a.svg").contains("claims &lt;of a class&gt;") && read("a.svg").contains("local-path-provisioner")
        );
        let series = Series { name: "in batches".into(), points: vec![(10.0, 1.0), (10_000.0, 1.4)] };
        by_size(&path("b.svg"), "Cost", "ms", &[series], Some(("target", 2.0))).unwrap();
        assert!(read("b.svg").contains("in batches") && read("b.svg").contains("10000"));
        bars(&path("c.svg"), "Rates", "a second", &[("ours".into(), 9.5, true), ("theirs".into(), 4.0, false)])
            .unwrap();
        assert!(read("c.svg").contains("theirs") && read("c.svg").contains("9.5"));
        assert_eq!(steps(&[1.0, 2.0]), [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (2.0, 1.0), (2.0, 2.0)]);
        let many: Vec<f64> = (0..1_000).map(f64::from).collect();
        assert_eq!((steps(&many).len(), steps(&many)[500]), (501, (999.0, 1_000.0)));
        // Without measurements there is still a plot, and no panic.
        done_over_time(&path("d.svg"), "None", &[], &[]).unwrap();
        by_size(&path("e.svg"), "None", "ms", &[], None).unwrap();
    }
}
