//! Tables of the results.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::measure::Round;

/// All results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    pub machine: String,
    pub seconds: u32,
    /// Servers that are not installed.
    pub left_out: Vec<String>,
    pub cases: Vec<CaseReport>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CaseReport {
    pub name: String,
    pub title: String,
    pub columns: Vec<Column>,
}

/// Results of one server. The rounds of all columns of a case correspond to each other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Column {
    pub server: String,
    pub rounds: Vec<Round>,
}

/// A median and its spread.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

/// Target for the CPU ratio of a case.
struct Target {
    what: &'static str,
    case: &'static str,
    /// Column of the same case that Holdfast is divided by.
    by: &'static str,
    target: f64,
    at_worst: f64,
}

pub const LIMIT: &str = "limit (bare hyper)";
pub const HOLDFAST: &str = "Holdfast";

const TARGETS: [Target; 6] = [
    Target { what: "transaction / limit", case: "txs", by: LIMIT, target: 1.3, at_worst: 1.5 },
    Target { what: "receipt / limit", case: "receipts", by: LIMIT, target: 1.3, at_worst: 1.5 },
    Target { what: "full block / limit", case: "block", by: LIMIT, target: 1.2, at_worst: 1.35 },
    Target {
        what: "batch of 100 / one hit",
        case: "batch",
        by: "Holdfast, one transaction",
        target: 12.0,
        at_worst: 18.0,
    },
    Target {
        what: "gzip block / plain block",
        case: "gzip",
        by: "Holdfast, not compressed",
        target: 0.6,
        at_worst: 1.0,
    },
    // reqwest prepares each request for redirects, retries and proxies.
    Target { what: "miss / nginx + lua", case: "miss", by: "nginx + lua", target: 1.7, at_worst: 2.0 },
];

// === impl Spread ===

impl Spread {
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        Some(Self { median, least, most })
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}–{})", short(self.median), short(self.least), short(self.most))
    }
}

/// Formats a number with three significant digits.
pub fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

// === impl Column ===

impl Column {
    /// Returns the spread over the undisturbed rounds, or over all rounds if at least half were disturbed.
    pub fn spread(&self, value: impl Fn(&Round) -> f64) -> Option<Spread> {
        let calm = self.rounds.iter().filter(|round| !round.is_disturbed());
        if calm.clone().count() * 2 > self.rounds.len() {
            return Spread::of(calm.map(value));
        }
        Spread::of(self.rounds.iter().map(value))
    }

    fn disturbed(&self) -> usize {
        self.rounds.iter().filter(|round| round.is_disturbed()).count()
    }
}

// === impl CaseReport ===

impl CaseReport {
    pub fn column(&self, server: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.server == server)
    }

    /// Returns the ratio of the CPU time per request of two servers, round by round.
    pub fn ratio(&self, server: &str, by: &str) -> Option<Spread> {
        let (one, other) = (self.column(server)?, self.column(by)?);
        let pairs: Vec<(&Round, &Round)> = one.rounds.iter().zip(&other.rounds).collect();
        let ratio = |&(one, other): &(&Round, &Round)| one.cpu_us / other.cpu_us;
        let calm: Vec<_> = pairs
            .iter()
            .filter(|(one, other)| !one.is_disturbed() && !other.is_disturbed())
            .map(ratio)
            .collect();
        if calm.len() * 2 > pairs.len() { Spread::of(calm) } else { Spread::of(pairs.iter().map(ratio)) }
    }
}

// === impl Report ===

impl Report {
    /// Returns the tables as Markdown.
    pub fn tables(&self) -> String {
        let mut out = format!("{}\n\n", self.machine);
        for left_out in &self.left_out {
            out += &format!("**Left out:** {left_out}\n\n");
        }
        let rounds = self.cases.first().and_then(|case| case.columns.first()).map_or(0, |it| it.rounds.len());
        out += &format!(
            "{rounds} rounds of {} s each, in turn. Values are the median (least–most). The last column counts \
             rounds in which other processes took more than 4 % of the server's core. If most rounds were calm, the \
             values leave these rounds out.\n\n",
            self.seconds
        );
        out += "| case | server | CPU µs/request | CPU ÷ limit | requests/s | p50 µs | p99 µs | RSS MiB | upstream calls /1000 | bytes | marked |\n";
        out += "|---|---|---|---|---|---|---|---|---|---|---|\n";
        for case in &self.cases {
            for column in &case.columns {
                let show = |value: fn(&Round) -> f64| {
                    column.spread(value).map_or("–".to_owned(), |spread| short(spread.median))
                };
                let cpu =
                    column.spread(|round| round.cpu_us).map_or("–".to_owned(), |spread| spread.to_string());
                // The limit is only comparable with the load of the case itself.
                let by_limit = if column.server.starts_with("Holdfast, ") {
                    None
                } else {
                    case.ratio(&column.server, LIMIT)
                };
                let ratio = by_limit.map_or("–".to_owned(), |spread| spread.to_string());
                let failed: u64 = column.rounds.iter().map(|round| round.failed).sum();
                let failed = if failed > 0 { format!(", {failed} requests failed") } else { String::new() };
                out += &format!(
                    "| {} | {} | {cpu} | {ratio} | {} | {} | {} | {} | {} | {} | {}{failed} |\n",
                    case.title,
                    column.server,
                    show(|round| round.requests_per_second),
                    show(|round| round.p50_us),
                    show(|round| round.p99_us),
                    show(|round| round.rss_mib),
                    show(|round| round.upstream_per_1000),
                    show(|round| round.bytes_per_response),
                    column.disturbed(),
                );
            }
        }
        out + "\n" + &self.targets()
    }

    fn targets(&self) -> String {
        let mut out = "| CPU ratio | measured | target | at worst | |\n|---|---|---|---|---|\n".to_owned();
        for Target { what, case, by, target, at_worst } in TARGETS {
            let case = self.cases.iter().find(|it| it.name == case);
            let Some(ratio) = case.and_then(|case| case.ratio(HOLDFAST, by)) else {
                continue;
            };
            let verdict = match ratio.median {
                it if it <= target => "met",
                it if it <= at_worst => "within the worst allowed",
                _ => "**missed**",
            };
            out += &format!("| {what} | {ratio} | ≤ {target} | {at_worst} | {verdict} |\n");
        }
        out
    }
}
