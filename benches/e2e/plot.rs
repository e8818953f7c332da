//! Plots for light and dark pages.

use crate::report::{CaseReport, HOLDFAST, LIMIT, Report, short};

const WIDTH: f64 = 860.0;
const LABELS: f64 = 230.0;
const BAR: f64 = 13.0;
const COLORS: [&str; 4] = ["#2f81f7", "#d29922", "#a371f7", "#8b949e"];

/// Returns the start of an SVG: transparent, with text colours for light and dark pages.
pub fn begin(width: f64, height: f64) -> String {
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="system-ui, sans-serif" font-size="12">
<style>
text {{ fill: #1f2328 }} .soft {{ fill: #656d76 }} .line {{ stroke: #d0d7de }} .strong {{ stroke: #1f2328 }}
@media (prefers-color-scheme: dark) {{ text {{ fill: #e6edf3 }} .soft {{ fill: #8b949e }} .line {{ stroke: #30363d }} .strong {{ stroke: #e6edf3 }} }}
</style>
"##
    )
}

pub fn text(x: f64, y: f64, anchor: &str, class: &str, text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{text}</text>\n")
}

/// Plots the CPU per request of each server as a multiple of the limit, for all cases with a limit.
pub fn ratios(report: &Report) -> Option<String> {
    let cases: Vec<_> = report.cases.iter().filter(|case| case.column(LIMIT).is_some()).collect();
    let mut servers: Vec<&str> = Vec::new();
    for column in cases.iter().flat_map(|case| &case.columns) {
        let beside = column.server.starts_with("Holdfast, ") || column.server == LIMIT;
        if !beside && !servers.contains(&column.server.as_str()) {
            servers.push(&column.server);
        }
    }
    servers.sort_by_key(|&server| server != HOLDFAST);
    let ratios =
        |case: &CaseReport| -> Vec<_> { servers.iter().map(|server| case.ratio(server, LIMIT)).collect() };
    let most =
        cases.iter().flat_map(|case| ratios(case)).flatten().map(|spread| spread.median).fold(2.0, f64::max);
    // The scale is logarithmic, in doublings.
    let doublings = (most * 1.2).log2().ceil();
    let room = WIDTH - LABELS - 70.0;
    let x = |ratio: f64| {
        LABELS + ratio.max(0.5).log2().mul_add(room / (doublings + 1.0), room / (doublings + 1.0))
    };

    let mut bars = String::new();
    let mut y = 56.0;
    let top = y - 6.0;
    for case in &cases {
        let shown: Vec<_> =
            ratios(case).into_iter().enumerate().filter_map(|(at, ratio)| Some((at, ratio?))).collect();
        let height = shown.len() as f64 * BAR;
        bars += &text(LABELS - 10.0, y + height / 2.0 + 4.0, "end", "", &case.title);
        for (at, ratio) in shown {
            let (from, to) = (x(0.5), x(ratio.median));
            bars += &format!(
                "<rect x=\"{from:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"2\" fill=\"{}\"/>\n",
                to - from,
                BAR - 2.0,
                COLORS[at % COLORS.len()]
            );
            let (least, most, middle) = (x(ratio.least), x(ratio.most), y + (BAR - 2.0) / 2.0);
            bars += &format!(
                "<line x1=\"{least:.1}\" x2=\"{most:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\" class=\"strong\" stroke-opacity=\"0.6\"/>\n"
            );
            bars += &text(most.max(to) + 5.0, y + BAR - 3.0, "start", "soft", &short(ratio.median));
            y += BAR;
        }
        y += 9.0;
    }
    (!cases.is_empty()).then(|| {
        let mut out = begin(WIDTH, y + 26.0);
        out += &text(
            8.0,
            18.0,
            "start",
            "",
            "CPU per request, as a multiple of a bare HTTP server that returns the same bytes",
        );
        let mut at = 8.0;
        for (server, color) in servers.iter().zip(COLORS.iter().cycle()) {
            out += &format!(
                "<rect x=\"{at}\" y=\"28\" width=\"11\" height=\"11\" rx=\"2\" fill=\"{color}\"/>\n"
            );
            out += &text(at + 16.0, 38.0, "start", "soft", server);
            at += 40.0 + server.len() as f64 * 6.5;
        }
        for doubling in 0..=doublings as i32 {
            let ratio = 2f64.powi(doubling);
            let class = if doubling == 0 { "strong" } else { "line" };
            out += &format!(
                "<line x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{top:.1}\" y2=\"{y:.1}\" class=\"{class}\"/>\n",
                x(ratio)
            );
            out += &text(x(ratio), y + 14.0, "middle", "soft", &format!("{ratio}×"));
        }
        out + &bars + "</svg>\n"
    })
}
