//! The build that users run, compared with a bare HTTP server (the limit) and other caches: `cargo bench --bench e2e`.
//!
//! Each server runs on one core, the load and the node on the other. In each round, the servers take turns. The main
//! result is the CPU time of a server per request, as a ratio to another server in the same round. `benches/setup`
//! installs the tools.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot continue should panic at that line")]

mod cases;
mod cold;
#[path = "../shared/docs.rs"]
mod docs;
mod growth;
#[path = "../shared/machine.rs"]
mod machine;
mod measure;
mod plot;
mod report;
mod servers;

use std::{
    fs,
    net::SocketAddr,
    path::PathBuf,
    process::{Command, exit},
};

use clap::Parser;
use holdfast::devchain::DevNode;

use self::{
    cases::{Asked, Case, Load, with_id},
    measure::Round,
    report::{CaseReport, Column, HOLDFAST, Report},
    servers::{Kind, Server},
};

#[derive(Debug, Parser)]
struct Arguments {
    /// Run only these cases (see --list)
    cases: Vec<String>,

    #[arg(long, default_value_t = 7)]
    rounds: u32,

    /// Seconds for one server in one round
    #[arg(long, default_value_t = 3)]
    seconds: u32,

    /// Three rounds of one second, as a smoke test
    #[arg(long)]
    quick: bool,

    /// Write tables and plots into docs
    #[arg(long)]
    save: bool,

    /// Measure growth with the number of cached blocks and connections instead
    #[arg(long)]
    growth: bool,

    /// Measure cache hits in parallel with proved cold reads instead
    #[arg(long)]
    cold: bool,

    /// List the cases and exit
    #[arg(long)]
    list: bool,

    /// Measure another build of Holdfast in the same rounds: NAME=PATH
    #[arg(long)]
    also: Vec<String>,

    /// Measure only Holdfast and the limit
    #[arg(long)]
    alone: bool,

    /// Core of the servers, 0 or 1; the load uses the other
    #[arg(long, default_value_t = 1)]
    core: usize,

    /// Run as the limit on this address
    #[arg(long, hide = true, requires = "body")]
    limit: Option<SocketAddr>,

    #[arg(long, hide = true)]
    body: Option<PathBuf>,

    /// Cargo passes this flag to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

/// One server in one case, and its load.
struct Entrant<'a> {
    name: String,
    server: &'a Server,
    load: &'a Load,
    rounds: Vec<Round>,
}

/// Returns the folder for bodies, logs and results.
fn folder() -> PathBuf {
    let folder = docs::results().join("e2e");
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn main() {
    let arguments = Arguments::parse();
    if let (Some(address), Some(body)) = (arguments.limit, &arguments.body) {
        return servers::serve_limit(address, body);
    }
    if arguments.list {
        return Asked::new().cases().iter().for_each(|case| println!("{:20} {}", case.name, case.title));
    }
    if arguments.cold {
        return read_cold(&arguments);
    }
    if Command::new("wrk").arg("--version").output().is_err() {
        eprintln!("LEFT OUT: everything: wrk is not installed; `benches/setup` installs it");
        exit(1);
    }
    let others = others(&arguments);
    let left_out: Vec<String> = (others.iter().filter(|kind| !kind.is_there()))
        .map(|kind| format!("{}: not installed; `benches/setup` installs it", kind.name()))
        .collect();
    left_out.iter().for_each(|line| eprintln!("LEFT OUT: {line}"));
    let holdfasts = holdfasts(&arguments);
    machine::pin(usize::from(arguments.core == 0));

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    if arguments.growth {
        return grow(&arguments, &holdfasts[0], &runtime);
    }
    let asked = Asked::new();
    let node = runtime.block_on(DevNode::start(asked.chain.clone(), ([127, 0, 0, 1], 0).into())).unwrap();
    let wanted =
        |case: &Case| arguments.cases.is_empty() || arguments.cases.iter().any(|name| case.name == name);
    let (rounds, seconds) = arguments.extent();
    let mut report = Report { machine: machine::description(), seconds, left_out, cases: Vec::new() };
    for case in asked.cases().into_iter().filter(wanted) {
        let kinds = holdfasts.iter().chain(others.iter().filter(|kind| kind.is_there() && case.takes(kind)));
        eprintln!("{}: {}", case.name, case.title);
        let kinds: Vec<_> = kinds.cloned().collect();
        report.cases.push(measure_case(&case, &kinds, &asked, &node, rounds, report.seconds, arguments.core));
    }
    let tables = report.tables();
    println!("{tables}");
    let json = serde_json::to_string_pretty(&report).unwrap();
    fs::write(docs::results().join("e2e.json"), &json).unwrap();
    let plot = plot::ratios(&report);
    if let Some(plot) = &plot {
        fs::write(docs::results().join("e2e.svg"), plot).unwrap();
    }
    if arguments.save {
        assert!(arguments.cases.is_empty() && !arguments.alone, "only a whole run is saved");
        let in_readme = "![CPU per request, as a multiple of a bare HTTP server](docs/performance/e2e.svg)";
        docs::refresh("README.md", "plot", in_readme);
        let picture = "![CPU per request, as a multiple of a bare HTTP server](performance/e2e.svg)";
        docs::refresh(docs::PAGE, "e2e", &format!("{picture}\n\n{tables}"));
        fs::create_dir_all(docs::at("docs/performance")).unwrap();
        fs::write(docs::at("docs/performance/e2e.json"), json).unwrap();
        fs::write(docs::at("docs/performance/e2e.svg"), plot.unwrap_or_default()).unwrap();
    }
}

fn grow(arguments: &Arguments, binary: &Kind, runtime: &tokio::runtime::Runtime) {
    let (rounds, seconds) = arguments.extent();
    let bench = growth::Bench { binary, core: arguments.core, rounds, seconds };
    let growth = bench.run(runtime, arguments.quick);
    let (tables, plot) = (growth.tables(), growth.plot());
    println!("{tables}");
    let json = serde_json::to_string_pretty(&growth).unwrap();
    fs::write(docs::results().join("growth.json"), &json).unwrap();
    fs::write(docs::results().join("growth.svg"), &plot).unwrap();
    if arguments.save {
        docs::refresh(docs::PAGE, "growth", &format!("![CPU for a hit](performance/growth.svg)\n\n{tables}"));
        fs::create_dir_all(docs::at("docs/performance")).unwrap();
        fs::write(docs::at("docs/performance/growth.json"), json).unwrap();
        fs::write(docs::at("docs/performance/growth.svg"), plot).unwrap();
    }
}

fn read_cold(arguments: &Arguments) {
    let builds = holdfasts(arguments);
    machine::pin(usize::from(arguments.core == 0));
    let (rounds, seconds) = arguments.extent();
    let cold = cold::Bench { builds: &builds, core: arguments.core, rounds, seconds }.run();
    let table = cold.table();
    println!("{table}");
    fs::write(docs::results().join("cold.json"), serde_json::to_string_pretty(&cold).unwrap()).unwrap();
    if arguments.save {
        docs::refresh(docs::PAGE, "cold", &table);
    }
}

fn others(arguments: &Arguments) -> Vec<Kind> {
    if arguments.alone { vec![Kind::Limit] } else { vec![Kind::Limit, Kind::NginxLua, Kind::NginxCache] }
}

/// Returns the build that users run, and other builds to compare with.
fn holdfasts(arguments: &Arguments) -> Vec<Kind> {
    let binary = machine::build(&folder());
    let mut all = vec![Kind::Holdfast { name: HOLDFAST.to_owned(), binary }];
    for other in &arguments.also {
        let (name, path) = other.split_once('=').unwrap_or_else(|| panic!("{other} is not NAME=PATH"));
        all.push(Kind::Holdfast { name: name.to_owned(), binary: PathBuf::from(path) });
    }
    all
}

fn measure_case(
    case: &Case,
    kinds: &[Kind],
    asked: &Asked,
    node: &DevNode,
    rounds: u32,
    seconds: u32,
    core: usize,
) -> CaseReport {
    let body = with_id(&case.load.bodies[0], 1_000_000_000);
    let truth = asked.truth(&body);
    let settings = servers::Settings { body: asked.typical(&case.load.bodies), ..case.settings.clone() };
    let servers: Vec<Server> = kinds.iter().map(|kind| kind.start(node.address(), core, &settings)).collect();
    for server in servers.iter().filter(|server| server.kind != Kind::Limit) {
        warm(case, server);
        let answer = server.connect().post(body.as_bytes());
        let right = answer == truth;
        assert!(right || !server.kind.is_holdfast(), "{} is wrong: {body}", server.kind.name());
        if !right {
            eprintln!("  {} answers wrongly", server.kind.name());
        }
    }
    case.load.write();
    let mut entrants: Vec<Entrant<'_>> = Vec::new();
    for server in &servers {
        let name = server.kind.name().to_owned();
        entrants.push(Entrant { name: name.clone(), server, load: &case.load, rounds: Vec::new() });
        if let Some((what, load)) = case.beside.as_ref().filter(|_| server.kind.is_holdfast()) {
            load.write();
            entrants.push(Entrant { name: format!("{name}, {what}"), server, load, rounds: Vec::new() });
        }
    }
    // Round 0 is a warm-up.
    for round in 0..=rounds {
        let count = entrants.len();
        // Rotates the order, so that no server always follows the same other server.
        entrants.rotate_left(1 % count);
        for entrant in &mut entrants {
            let seconds = if round == 0 { 1 } else { seconds };
            let measured = measure::round(entrant.server, entrant.load, seconds, round + 1, || {
                asked.chain.calls_total()
            });
            if round > 0 {
                entrant.rounds.push(measured);
            }
        }
    }
    let mut columns: Vec<Column> =
        entrants.into_iter().map(|it| Column { server: it.name, rounds: it.rounds }).collect();
    columns.sort_by_key(|column| match column.server.as_str() {
        HOLDFAST => 0,
        server if server.starts_with(HOLDFAST) => 1,
        report::LIMIT => 3,
        _ => 2,
    });
    CaseReport { name: case.name.to_owned(), title: case.title.to_owned(), columns }
}

/// Sends the warm-up requests once and, in cases with hits, also all bodies of the load. Then sends the first body
/// three times, so that every kind of cache stores the answer.
fn warm(case: &Case, server: &Server) {
    let mut connection = server.connect();
    let once = case.warm.iter().chain(if case.with_limit || !case.warm.is_empty() {
        &case.load.bodies[..]
    } else {
        &[]
    });
    for body in once {
        connection.post(with_id(body, 1).as_bytes());
    }
    for _ in 0..3 {
        connection.post(with_id(&case.load.bodies[0], 1).as_bytes());
    }
}

// === impl Arguments ===

impl Arguments {
    /// Returns the number of rounds and the seconds of each.
    fn extent(&self) -> (u32, u32) {
        if self.quick { (3, 1) } else { (self.rounds, self.seconds) }
    }
}

// === impl Case ===

impl Case {
    fn takes(&self, kind: &Kind) -> bool {
        match kind {
            Kind::Limit => self.with_limit,
            Kind::NginxCache => self.with_proxy_cache,
            _ => true,
        }
    }
}
