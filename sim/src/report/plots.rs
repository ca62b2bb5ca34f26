//! Figures of many runs as plots in SVG. The same figures give the same bytes.

use std::collections::BTreeMap;

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use super::Report;
use super::groups::{KEYS_BY, Key, Spread, bytes_per_pair_s, grouped, steady};
use super::table::by_faults;

const SIZE: (u32, u32) = (760, 420);
const COLOURS: [RGBColor; 4] =
    [RGBColor(31, 119, 180), RGBColor(214, 96, 20), RGBColor(44, 140, 60), RGBColor(120, 80, 160)];
/// Milliseconds of latency that are one point of a line.
const STEP_MS: u64 = 10;

/// Points of a line that shows how figures are spread.
const PARTS: usize = 200;

/// A plot: the name of its file, and what is in it.
pub type Plot = (String, String);

/// All plots of one tier's runs.
///
/// # Errors
/// When a plot cannot be drawn.
pub fn plots(tier: &str, runs: &[&Report]) -> anyhow::Result<Vec<Plot>> {
    let [well, troubled] = by_faults(runs).map(|part| part.1);
    let title = |what: &str| format!("{what} ({tier} tier)");
    let mut plots = Vec::new();
    for (name, when, runs) in [("", "without faults", &well), ("-faults", "with faults", &troubled)] {
        let what = title(&format!("Used beyond the limit, {when}"));
        let plot = bars(&what, "% of the limit", &overshoot_by_window(runs))?;
        plots.push((format!("{tier}-overshoot-window{name}.svg"), plot));
    }
    let what = title("Used beyond the limit against latency, without faults");
    let plot = lines(&what, "ms one way in the mean", "% of the limit, mean", Scale::Plain, &by_latency(&well))?;
    plots.push((format!("{tier}-overshoot-latency.svg"), plot));
    let what = title("Time until all know all");
    let plot = lines(&what, "ms", "% of runs", Scale::Logarithmic, &times(&well, &troubled))?;
    plots.push((format!("{tier}-converge.svg"), plot));
    let bytes = [("", &well), (", faults", &troubled)].into_iter().flat_map(|(name, runs)| bytes(runs, name));
    let plot = bars(&title("Bytes between nodes"), "a second and pair", &bytes.collect::<Vec<_>>())?;
    plots.push((format!("{tier}-bytes.svg"), plot));
    Ok(plots)
}

/// Figures of one group.
struct Bar {
    name: String,
    is: Spread,
    /// What was promised of the same.
    promised: Option<Spread>,
}

/// Points of one line.
type Line = (String, Vec<(f64, f64)>);

fn overshoot_by_window(runs: &[&Report]) -> Vec<Bar> {
    let by = KEYS_BY.iter().find(|by| by.0 == "algorithm, window").expect("one of the groupings").1;
    let bar = |(name, keys): (String, Vec<_>)| {
        let worst = Spread::of(keys.iter().map(|(_, key): &Key<'_>| key.worst_pct))?;
        let promised = Spread::of(keys.iter().map(|(_, key)| key.promised_pct))?;
        Some(Bar { name, is: worst, promised: Some(promised) })
    };
    grouped(steady(runs), |key| by(*key)).into_iter().filter_map(bar).collect()
}

fn by_latency(runs: &[&Report]) -> Vec<Line> {
    let algorithms = grouped(steady(runs), |key| key.1.algorithm.clone());
    let of = |(algorithm, keys): (String, Vec<Key<'_>>)| {
        let mut steps: BTreeMap<u64, Vec<(f64, f64)>> = BTreeMap::new();
        for (run, key) in keys {
            let step = steps.entry(run.mean_one_way_ms / STEP_MS).or_default();
            step.push((key.worst_pct, key.promised_pct));
        }
        let line = |pick: fn(&(f64, f64)) -> f64| {
            let mean = |all: &Vec<(f64, f64)>| all.iter().map(pick).sum::<f64>() / all.len() as f64;
            steps.iter().map(|(step, all)| ((step * STEP_MS + STEP_MS / 2) as f64, mean(all))).collect::<Vec<_>>()
        };
        [(format!("{algorithm}: measured"), line(|one| one.0)), (format!("{algorithm}: promised"), line(|one| one.1))]
    };
    algorithms.into_iter().flat_map(of).collect()
}

fn times(well: &[&Report], troubled: &[&Report]) -> Vec<Line> {
    let share = |runs: &[&Report], of: fn(&Report) -> Option<u64>| {
        // A run that takes no time at all has no place on a logarithmic axis.
        let mut all: Vec<f64> = runs.iter().filter_map(|run| of(run)).map(|ms| ms.max(1) as f64).collect();
        all.sort_by(f64::total_cmp);
        let at = |part: usize| {
            all.get((all.len().max(1) - 1) * part / PARTS).map(|ms| (*ms, 100.0 * part as f64 / PARTS as f64))
        };
        (0..=PARTS).filter_map(at).collect()
    };
    vec![
        ("after the load, without faults".to_owned(), share(well, |run| run.converge_ms)),
        ("after the load, with faults".to_owned(), share(troubled, |run| run.converge_ms)),
        ("after the last fault".to_owned(), share(troubled, |run| run.heal_ms)),
    ]
}

fn bytes(runs: &[&Report], name: &str) -> Vec<Bar> {
    let bar = |(nodes, runs): (String, Vec<&Report>)| {
        let is = Spread::of(runs.iter().filter_map(|run| bytes_per_pair_s(run)))?;
        Some(Bar { name: format!("{nodes} nodes{name}"), is, promised: None })
    };
    grouped(runs.iter().copied(), |run| run.nodes.to_string()).into_iter().filter_map(bar).collect()
}

/// A bar for each mean with a mark at 95 %, what was promised beside what was measured. The largest figures stand in the
/// tables: they would dwarf all else.
fn bars(title: &str, unit: &str, bars: &[Bar]) -> anyhow::Result<String> {
    let both =
        |bar: &Bar| [Some(bar.is), bar.promised].into_iter().flatten().map(|one| one.p95.max(one.mean)).collect();
    let most = bars.iter().flat_map(|bar| -> Vec<f64> { both(bar) }).fold(1.0, f64::max);
    let promised = bars.iter().any(|bar| bar.promised.is_some());
    draw(|area| {
        let mut chart = ChartBuilder::on(area)
            .caption(title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(70)
            .build_cartesian_2d(0.0..bars.len().max(1) as f64, 0.0..most * 1.1)?;
        chart.configure_mesh().disable_x_mesh().disable_x_axis().light_line_style(TRANSPARENT).y_desc(unit).draw()?;
        for (at, bar) in bars.iter().enumerate() {
            let of = [("measured: mean and 95 %", Some(bar.is)), ("promised: mean and 95 %", bar.promised)];
            for (which, (name, spread)) in of.into_iter().enumerate() {
                let Some(Spread { mean, p95, .. }) = spread else { continue };
                let (left, colour) =
                    (at as f64 + if promised { 0.15 + 0.35 * which as f64 } else { 0.3 }, COLOURS[which]);
                let right = left + if promised { 0.33 } else { 0.4 };
                let drawn =
                    chart.draw_series([Rectangle::new([(left, 0.0), (right, mean)], colour.mix(0.7).filled())])?;
                if at == 0 && promised {
                    let mark = move |(x, y)| Rectangle::new([(x, y - 5), (x + 18, y + 5)], colour.mix(0.7).filled());
                    drawn.label(name).legend(mark);
                }
                let mark = vec![(left, p95), (right, p95)];
                chart.draw_series([PathElement::new(mark, colour.stroke_width(3))])?;
            }
            // Two lines of a name: what there is, and how much of it.
            let (above, below) = bar.name.split_once(", ").unwrap_or((&bar.name, ""));
            let size = ("sans-serif", 12).into_font();
            let x = chart.backend_coord(&(at as f64 + 0.1, 0.0)).0;
            area.draw(&Text::new(above.to_owned(), (x, SIZE.1 as i32 - 46), size.clone()))?;
            area.draw(&Text::new(below.to_owned(), (x, SIZE.1 as i32 - 32), size))?;
        }
        labels(&mut chart)
    })
}

/// How an x axis is divided.
#[derive(Clone, Copy)]
enum Scale {
    Plain,
    Logarithmic,
}

fn lines(title: &str, x: &str, y: &str, scale: Scale, lines: &[Line]) -> anyhow::Result<String> {
    let points = || lines.iter().flat_map(|line| &line.1);
    let (from, until) = points().fold((f64::MAX, 1.0), |(from, until), point| (point.0.min(from), point.0.max(until)));
    let from = from.min(until - 1.0).max(0.0);
    let most = points().map(|point| point.1).fold(1.0, f64::max) * 1.05;
    draw(|area| match scale {
        Scale::Plain => lines_on(area, title, (x, y), from..until, most, lines),
        Scale::Logarithmic => lines_on(area, title, (x, y), (from.max(1.0)..until.max(2.0)).log_scale(), most, lines),
    })
}

fn lines_on<X>(
    area: &Area<'_>,
    title: &str,
    (x, y): (&str, &str),
    xs: X,
    most: f64,
    lines: &[Line],
) -> Result<(), Wrong>
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64> + Ranged<ValueType = f64>,
{
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(60)
        .build_cartesian_2d::<X, std::ops::Range<f64>>(xs, 0.0..most)?;
    chart.configure_mesh().x_desc(x).y_desc(y).light_line_style(TRANSPARENT).draw()?;
    for (at, (name, points)) in lines.iter().enumerate() {
        // Measured and promised of one thing have one colour; what is promised is the thin one.
        let (colour, width) = match lines.iter().any(|line| line.0.ends_with(": promised")) {
            true => (COLOURS[at / 2 % COLOURS.len()], if at % 2 == 0 { 3 } else { 1 }),
            false => (COLOURS[at % COLOURS.len()], 2),
        };
        let style = colour.stroke_width(width);
        chart
            .draw_series(LineSeries::new(points.iter().copied(), style))?
            .label(name)
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], style));
    }
    labels(&mut chart)
}

/// Which colour is what.
fn labels<'a, X, Y>(chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>) -> Result<(), Wrong>
where
    X: Ranged,
    Y: Ranged,
{
    let labels = &mut chart.configure_series_labels();
    let labels = labels.position(SeriesLabelPosition::UpperLeft).background_style(WHITE.mix(0.8));
    labels.label_font(("sans-serif", 12)).draw()
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Wrong = DrawingAreaErrorKind<std::io::Error>;

fn draw(what: impl FnOnce(&Area<'_>) -> Result<(), Wrong>) -> anyhow::Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let drawn = area.fill(&WHITE).and_then(|()| what(&area)).and_then(|()| area.present());
        drawn.map_err(|error| anyhow::anyhow!("a plot cannot be drawn: {error}"))?;
    }
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Kind;
    use crate::report::groups::tests::{key, run};

    #[test]
    fn the_same_figures_give_the_same_plots_and_others_do_not() {
        let drawn = |worst: f64| {
            let far = Report { mean_one_way_ms: 120, converge_ms: Some(150), ..run(&[], vec![key(2.0 * worst, 90.0)]) };
            let runs = [run(&[], vec![key(worst, 40.0)]), far, run(&[Kind::Cut], vec![key(3.0 * worst, 100.0)])];
            plots("protocol", &runs.iter().collect::<Vec<_>>()).expect("plots")
        };
        assert_eq!(drawn(20.0), drawn(20.0));
        assert_ne!(drawn(20.0), drawn(21.0));
        for (name, svg) in drawn(20.0) {
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{name}");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{name}");
        }
    }

    #[test]
    fn nothing_to_show_is_no_reason_to_fail() {
        assert_eq!(plots("node", &[]).expect("empty plots").len(), 5);
    }
}
