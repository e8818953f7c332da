//! The steps of the measurement; each prints a line.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::{
    data::{Corpus, hash, is_right, mix},
    store::{self, Result, Store},
};

/// foyer takes all the room it may have at once, so it must be told how much that is.
const ENOUGH: u64 = 3 << 30;

pub fn corpus() -> Corpus {
    if std::env::var_os("TINY").is_some() {
        return Corpus::tiny();
    }
    Corpus::real(&blocks(), 16)
}

pub fn blocks() -> String {
    std::env::var("HOLDFAST_BLOCKS").expect("HOLDFAST_BLOCKS says where real blocks are; TINY=1 goes without")
}

/// Writes `count` blocks into a new directory and closes it.
pub fn write(name: &str, dir: &Path, count: u64, limit: u64) -> Result<()> {
    let _ = fs::remove_dir_all(dir);
    let corpus = corpus();
    let memory = memory();
    let opened = store::open(name, dir, limit.min(ENOUGH))?;
    let (cpu, written, start) = (cpu(), written(), Instant::now());
    let mut slowest = Duration::ZERO;
    for number in 0..count {
        let block = corpus.block(number);
        let put = Instant::now();
        opened.put(&block)?;
        slowest = slowest.max(put.elapsed());
    }
    opened.flush()?;
    let took = start.elapsed();
    let held = self::memory() - memory;
    let closing = Instant::now();
    drop(opened);
    let closed = closing.elapsed();
    let bytes = size(dir);
    println!(
        "{name} write n={count}: {:.0} blocks/s, {:.2} ms cpu/block, slowest {:.0} ms, close {:.0} ms, disk {:.1} kB/block, written {:.1} kB/block, memory {:.0} MB",
        count as f64 / took.as_secs_f64(),
        (self::cpu() - cpu) / count as f64,
        slowest.as_secs_f64() * 1e3,
        closed.as_secs_f64() * 1e3,
        bytes as f64 / count as f64 / 1e3,
        (self::written() - written) as f64 / count as f64 / 1e3,
        held as f64 / 1e6,
    );
    Ok(())
}

/// Appends blocks until killed, saying each number once it is put.
pub fn append(name: &str, dir: &Path, from: u64, limit: u64) -> Result<()> {
    let corpus = corpus();
    let store = store::open(name, dir, limit.min(ENOUGH))?;
    let mut out = std::io::stdout().lock();
    for number in from.. {
        store.put(&corpus.block(number))?;
        writeln!(out, "{number}")?;
    }
    Ok(())
}

/// Reads at random: `how` is `cold` or `warm`.
pub fn read(name: &str, dir: &Path, count: u64, threads: u64, how: &str) -> Result<()> {
    let corpus = corpus();
    let cold = how == "cold" && fs::write("/proc/sys/vm/drop_caches", "3").is_ok();
    if !cold {
        let mut files = Vec::new();
        list(dir, &mut files);
        for (path, _) in files {
            std::io::copy(&mut fs::File::open(path)?, &mut std::io::sink())?;
        }
    }
    let memory = memory();
    let start = Instant::now();
    let store = store::open(name, dir, ENOUGH)?;
    let opened = start.elapsed();
    let rounds = if cold { 1_000 } else { 4_000 };
    let ways: [(&str, &(dyn Fn(u64, u64) -> Result<bool> + Sync)); 2] = [
        ("block", &|number, _| {
            let hash = hash(number, u64::MAX);
            Ok(store.body(&hash)?.is_some_and(|value| is_right(&value, &hash)))
        }),
        ("transaction", &|number, index| {
            let Some((hash, _)) = store.place(&hash(number, index))? else { return Ok(false) };
            Ok(store.body(&hash)?.is_some_and(|value| is_right(&value, &hash)))
        }),
    ];
    for (nth, (way, read)) in ways.into_iter().enumerate() {
        if way == "transaction" && name == "foyer-blocks" {
            continue;
        }
        if cold {
            fs::write("/proc/sys/vm/drop_caches", "3")?;
        }
        let cpu = cpu();
        let corpus = &corpus;
        let turns: Vec<(Vec<Duration>, u64)> = std::thread::scope(|scope| {
            let reader = |thread: u64| {
                move || {
                    let mut took = Vec::new();
                    let mut misses = 0;
                    for round in 0..rounds / threads {
                        let seed = mix(round + thread * 1_000_003 + nth as u64 * 77_777_777);
                        let number = seed % count;
                        let start = Instant::now();
                        let found = read(number, mix(seed) % corpus.transactions(number));
                        took.push(start.elapsed());
                        misses += u64::from(!matches!(found, Ok(true)));
                    }
                    (took, misses)
                }
            };
            let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(reader(thread))).collect();
            threads.into_iter().map(|thread| thread.join().expect("a reader does not panic")).collect()
        });
        let misses: u64 = turns.iter().map(|(_, misses)| misses).sum();
        let mut took: Vec<Duration> = turns.into_iter().flat_map(|(took, _)| took).collect();
        took.sort_unstable();
        println!(
            "{name} read {} by {way} threads={threads}: p50 {:.0} us, p99 {:.0} us, cpu {:.0} us, misses {misses}, open {:.1} ms, memory {:.0} MB",
            if cold { "cold" } else { "warm" },
            took[took.len() / 2].as_secs_f64() * 1e6,
            took[took.len() * 99 / 100].as_secs_f64() * 1e6,
            (self::cpu() - cpu) * 1e3 / took.len() as f64,
            opened.as_secs_f64() * 1e3,
            (self::memory() - memory) as f64 / 1e6,
        );
    }
    Ok(())
}

/// Opens a directory and, if told how many blocks may be there, checks everything in it.
pub fn open(name: &str, dir: &Path, count: u64, limit: u64) -> Result<()> {
    let corpus = corpus();
    let memory = memory();
    let start = Instant::now();
    let store = store::open(name, dir, limit.min(ENOUGH))?;
    let took = start.elapsed();
    let found = check(&*store, &corpus, count);
    println!(
        "{name} open: {:.1} ms, {} of {count} whole, {} missed, {} wrong, oldest {:?}, newest {:?}, disk {:.0} MB, memory {:.0} MB",
        took.as_secs_f64() * 1e3,
        found.whole.len(),
        count - found.whole.len() as u64 - found.wrong.len() as u64,
        found.wrong.len(),
        found.whole.first(),
        found.whole.last(),
        size(dir) as f64 / 1e6,
        (self::memory() - memory) as f64 / 1e6,
    );
    match found.wrong.first() {
        None => Ok(()),
        Some((number, what)) => Err(format!("block {number}: {what}").into()),
    }
}

#[derive(Default)]
struct Found {
    whole: BTreeSet<u64>,
    wrong: Vec<(u64, String)>,
}

/// Every block below `count` is whole (values and indexes) or missed; anything else is wrong.
fn check(store: &dyn Store, corpus: &Corpus, count: u64) -> Found {
    let mut found = Found::default();
    let places = store.place(&hash(0, 0)).is_ok() && std::env::var_os("NO_PLACES").is_none();
    for number in 0..count {
        let block = hash(number, u64::MAX);
        let look = || -> Result<bool> {
            let values = [store.body(&block)?, store.receipts(&block)?];
            if values.iter().flatten().any(|value| !is_right(value, &block)) {
                return Err("a value is not what was stored".into());
            }
            let mut whole = values.iter().all(Option::is_some);
            if places {
                for index in [0, corpus.transactions(number) - 1] {
                    match store.place(&hash(number, index))? {
                        Some(place) if place == (block, index as u16) => {}
                        Some(_) => return Err("a transaction is elsewhere".into()),
                        None => whole = false,
                    }
                }
                whole &= store.hash(number)? == Some(block);
            }
            Ok(whole)
        };
        match look() {
            Ok(true) => drop(found.whole.insert(number)),
            Ok(false) => {}
            Err(error) => found.wrong.push((number, error.to_string())),
        }
    }
    found
}

/// Kills a writer once it has put `count` blocks, and times the opening.
pub fn killed(name: &str, dir: &Path, count: u64) -> Result<()> {
    let _ = fs::remove_dir_all(dir);
    let last = kill_writer(name, dir, 0, |number, _| number >= count)?;
    println!("{name} killed at {last}:");
    again(&["open", name, &dir.display().to_string(), "0"]);
    Ok(())
}

/// Kills a writer at a random moment of `longest` milliseconds, `rounds` times over the same directory, and checks all of it each time.
pub fn kill(name: &str, dir: &Path, rounds: u64, longest: u64) -> Result<()> {
    let _ = fs::remove_dir_all(dir);
    let corpus = corpus();
    let (mut next, mut lost, mut opening) = (0, Vec::new(), Vec::new());
    for round in 0..rounds {
        let wait = Duration::from_millis(20 + mix(round) % longest);
        let last = kill_writer(name, dir, next, |_, since| since > wait)?;
        let start = Instant::now();
        let store = store::open(name, dir, ENOUGH)?;
        opening.push(start.elapsed().as_secs_f64() * 1e3);
        let found = check(&*store, &corpus, last + 3);
        if let Some((number, what)) = found.wrong.first() {
            println!("{name} kill: round {round}: {} WRONG, block {number}: {what}", found.wrong.len());
        }
        // Said to be put and not there: of this round.
        lost.push((next..=last).filter(|number| !found.whole.contains(number)).count());
        next = last + 3;
    }
    opening.sort_by(f64::total_cmp);
    lost.sort_unstable();
    println!(
        "{name} kill: {rounds} rounds to block {next}, opening {:.1} ms ({:.1}-{:.1}), lost of the last round {} ({}-{}) blocks, {:.0} MB",
        opening[opening.len() / 2],
        opening[0],
        opening[opening.len() - 1],
        lost[lost.len() / 2],
        lost[0],
        lost[lost.len() - 1],
        size(dir) as f64 / 1e6
    );
    Ok(())
}

/// Runs `append` until `enough` says so; returns the last number it said.
fn kill_writer(name: &str, dir: &Path, from: u64, enough: impl Fn(u64, Duration) -> bool) -> Result<u64> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["append", name, &dir.display().to_string(), &from.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut first = None;
    let mut last = from;
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    while let Some(Ok(line)) = lines.next() {
        let Ok(number) = line.parse() else { return Err(line.into()) };
        last = number;
        if enough(number, first.get_or_insert_with(Instant::now).elapsed()) {
            child.kill()?;
            break;
        }
    }
    // What it still said before it died counts too.
    last = lines.map_while(|line| line.ok()?.parse().ok()).last().unwrap_or(last);
    child.wait()?;
    Ok(last)
}

/// Writes `megabytes` into a store that may keep `limit`.
pub fn limit(name: &str, dir: &Path, limit: u64, megabytes: u64) -> Result<()> {
    let _ = fs::remove_dir_all(dir);
    let corpus = corpus();
    let store = store::open(name, dir, limit * 1_000_000)?;
    let (mut bytes, mut number, mut largest) = (0, 0, 0);
    let (mut slowest, start, written) = (Duration::ZERO, Instant::now(), written());
    while bytes < megabytes * 1_000_000 {
        let block = corpus.block(number);
        let put = Instant::now();
        store.put(&block)?;
        slowest = slowest.max(put.elapsed());
        bytes += (block.body.len() + block.receipts.len()) as u64;
        number += 1;
        if number % 32 == 0 {
            largest = largest.max(size(dir));
        }
    }
    store.flush()?;
    let took = start.elapsed();
    let found = check(&*store, &corpus, number);
    let after = size(dir);
    std::thread::sleep(Duration::from_secs(5));
    println!(
        "{name} limit {limit} MB, written {megabytes} MB: {:.0} blocks/s, slowest {:.0} ms, at most {:.0} MB, at the end {:.0} MB, 5 s later {:.0} MB, written {:.0} MB, kept {} blocks of {number} ({:?} to {:?}), {} wrong",
        number as f64 / took.as_secs_f64(),
        slowest.as_secs_f64() * 1e3,
        largest as f64 / 1e6,
        after as f64 / 1e6,
        size(dir) as f64 / 1e6,
        (self::written() - written) as f64 / 1e6,
        found.whole.len(),
        found.whole.first(),
        found.whole.last(),
        found.wrong.len(),
    );
    Ok(())
}

/// Writes until the disk is full, goes on trying, then opens again.
pub fn full(name: &str, dir: &Path) -> Result<()> {
    let corpus = corpus();
    let mut number = 0;
    {
        let store = store::open(name, dir, 1 << 30)?;
        let mut errors = Vec::new();
        while errors.len() < 20 && number < 1500 {
            if let Err(error) = store.put(&corpus.block(number)) {
                errors.push(format!("block {number}: {error}"));
            }
            number += 1;
        }
        println!(
            "{name} full: {} errors; first {:?}, last {:?}",
            errors.len(),
            errors.first(),
            errors.last()
        );
        println!("{name} full: flush {:?}", store.flush().map_err(|error| error.to_string()));
        let found = check(&*store, &corpus, number);
        println!(
            "{name} full: {} of {number} whole, {} wrong {:?}",
            found.whole.len(),
            found.wrong.len(),
            found.wrong.first()
        );
    }
    again(&["open", name, &dir.display().to_string(), &number.to_string(), "1073741824"]);
    Ok(())
}

/// Opens the same directory from a second process.
pub fn lock(name: &str, dir: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(dir);
    let _store = store::open(name, dir, 256 << 20)?;
    again(&["open", name, &dir.display().to_string(), "0", "268435456"]);
    Ok(())
}

/// Writes `count` blocks, spoils `spoiled` bytes of the files, and looks at what is served then.
pub fn rot(name: &str, dir: &Path, count: u64, spoiled: u64) -> Result<()> {
    use std::os::unix::fs::FileExt;
    write(name, dir, count, u64::MAX >> 24)?;
    let mut files = Vec::new();
    list(dir, &mut files);
    let bytes: u64 = files.iter().map(|(_, length)| length).sum();
    for nth in 0..spoiled {
        let mut at = mix(nth) % bytes;
        let mut file = files.iter();
        let path = loop {
            let (path, length) = file.next().expect("less than all bytes");
            if at < *length {
                break path;
            }
            at -= length;
        };
        let file = fs::OpenOptions::new().read(true).write(true).open(path)?;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at)?;
        file.write_all_at(&[!byte[0]], at)?;
    }
    again(&["open", name, &dir.display().to_string(), &count.to_string()]);
    Ok(())
}

fn list(dir: &Path, files: &mut Vec<(std::path::PathBuf, u64)>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => list(&entry.path(), files),
            Ok(metadata) if metadata.len() > 0 => files.push((entry.path(), metadata.len())),
            _ => {}
        }
    }
}

/// Everything, the stores taking turns: three rounds of what is timed, one of what is only true or false.
pub fn all(dir: &Path) -> Result<()> {
    let path = |name: &str| dir.join(name).display().to_string();
    // foyer keeps an index of transactions only with 4 KiB an entry: its 10,000 blocks go without.
    let stores = [
        ("segments", "10000"),
        ("fjall", "10000"),
        ("redb", "10000"),
        ("foyer-blocks", "10000"),
        ("foyer", "2500"),
    ];
    for _ in 0..3 {
        for (name, count) in stores {
            again(&["write", name, &path(name), count]);
        }
        for (name, count) in stores {
            for threads in ["1", "2"] {
                again(&["read", name, &path(name), count, threads, "cold"]);
                again(&["read", name, &path(name), count, threads, "warm"]);
            }
        }
        for (name, _) in stores {
            again(&["open", name, &path(name), "0"]);
            again(&["killed", name, &path("killed"), "1000"]);
            again(&["limit", name, &path("limit")]);
        }
    }
    for (name, _) in stores {
        again(&["lock", name, &path("lock")]);
        again(&["kill", name, &path("kill")]);
        again(&["rot", name, &path("rot"), "1000"]);
    }
    again(&["zstd"]);
    Ok(())
}

fn again(args: &[&str]) {
    let exe = std::env::current_exe().expect("this program has a path");
    let status = Command::new(exe).args(args).status().expect("this program starts");
    if !status.success() {
        println!("  ended with {status}");
    }
}

/// Bytes of the blocks of disk under `dir`: holes count as nothing.
pub fn size(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let bytes = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        Err(_) => 0,
    };
    entries.flatten().map(bytes).sum()
}

/// Milliseconds of processor time this process has used.
fn cpu() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = stat.rsplit(')').next().unwrap_or_default();
    after.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>()
        * 10.0
}

fn written() -> u64 {
    field("/proc/self/io", "write_bytes:")
}

/// Bytes of memory that are this process's own: no page of a file.
fn memory() -> i64 {
    field("/proc/self/status", "RssAnon:") as i64 * 1024
}

fn field(path: &str, name: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    value.split_whitespace().next().and_then(|value| value.parse().ok()).unwrap_or(0)
}
