//! Runs random programs, reports how to repeat a failed program, and checks that the programs cover each event.
//!
//! Each program has a seed of its own. The first program has the seed of the run, so the seed of a failed program repeats
//! that program first, regardless of the number of programs.

use std::{
    fmt::Debug,
    fs,
    io::{self, Write},
    path::Path,
    thread,
};

use alloy_primitives::keccak256;
use holdfast::blocking;
use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::{Config as Runs, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner},
};
use tokio::runtime::Builder;

use crate::support::{in_memory::transcript, seed, times, variable};

/// Number of programs of all settings together, in the gate.
const GATE: u64 = 400;

/// Sum of the numbers of programs that the tests name. Each test runs its share of the whole.
const SHARES: u64 = 6_100;

/// An event of one in `n` programs must have happened after this many times `n` programs. The chance that it has not
/// happened by then is e⁻¹⁴, less than one in a million.
const PATIENCE: u32 = 14;

/// Programs that ran, with which a test checks that they covered an event.
#[derive(Clone, Copy, Debug)]
pub struct ProgramCount(pub u32);

/// Runs a share of the programs. `MODEL_PROGRAMS`, if set, replaces the number of all programs. `HOLDFAST_SEED`, if set, is
/// the seed.
pub fn check_programs<S: Debug + Clone>(
    share: u32,
    program: &impl Strategy<Value = Vec<S>>,
    setting: &dyn Debug,
    run: impl Fn(&[S]) -> Result<(), String>,
) -> ProgramCount {
    let all = variable("MODEL_PROGRAMS").unwrap_or(GATE);
    let programs = u32::try_from(all * u64::from(share) / SHARES).unwrap().max(1);
    let first = seed();
    for number in 0..programs {
        let seed = seed_of(first, number);
        match runner(seed).run(program, |steps| run(&steps).map_err(TestCaseError::fail)) {
            Ok(()) => {}
            Err(TestError::Fail(reason, steps)) => {
                let test = thread::current().name().unwrap_or("model::").to_owned();
                let text = failure(reason.message(), &test, seed, setting, &steps);
                save(&text, &test, seed);
                panic!("{text}");
            }
            Err(TestError::Abort(reason)) => panic!("{reason}"),
        }
    }
    // Not with `println!`, which the test harness hides: `tests/run` adds these numbers up.
    let _ = io::stderr().write_all(format!("MODEL {programs} programs: {setting:?}\n").as_bytes());
    ProgramCount(programs)
}

/// Runs a program on this thread, with a paused clock. The random choices of the proxy depend on the program alone, so that
/// a program gives the same run every time.
pub fn run_in_memory<T>(steps: &[impl Debug], program: impl Future<Output = T>) -> T {
    let mixed = keccak256(format!("{steps:?}"));
    fastrand::seed(u64::from_be_bytes(mixed[..8].try_into().unwrap()));
    blocking::wait_on_this_thread();
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime
        .enable_time()
        .start_paused(true)
        .on_thread_start(blocking::wait_on_this_thread)
        .build()
        .unwrap();
    runtime.block_on(program)
}

/// Checks that programs give the same answers, calls and times when they run again: on other threads, in another order, and
/// at the same time as others.
///
/// Settings with a small cache do not repeat on a busy machine: moka evicts entries by the real clock.
pub fn assert_repeats<S: Debug + Sync>(
    setting: &(dyn Debug + Sync),
    program: &impl Strategy<Value = Vec<S>>,
    run: impl Fn(&[S]) -> Result<(), String> + Sync,
) {
    let seed = variable("HOLDFAST_SEED").unwrap_or(1);
    let mut programs: Vec<_> = (0..times(3, 20))
        .map(|number| {
            let steps = program.new_tree(&mut runner(seed_of(seed, number))).unwrap().current();
            let first = transcript::of(|| run(&steps));
            (steps, first)
        })
        .collect();
    programs.reverse();
    let repeat = |programs: &[(Vec<S>, _)]| {
        for (steps, first) in programs {
            let again = transcript::of(|| run(steps));
            if *first != again {
                return Err(difference(setting, steps, first, &again));
            }
        }
        Ok(())
    };
    let (half, other) = programs.split_at(programs.len() / 2);
    let results = thread::scope(|scope| {
        [half, other].map(|part| scope.spawn(|| repeat(part))).map(|thread| thread.join().unwrap())
    });
    for result in results {
        result.unwrap_or_else(|difference| panic!("{difference}"));
    }
}

/// A result with its transcript.
type RecordedRun = (Result<(), String>, Vec<String>);

/// Describes the first line in which two runs of a program differ.
fn difference(setting: &dyn Debug, steps: &[impl Debug], first: &RecordedRun, again: &RecordedRun) -> String {
    let line =
        |run: &RecordedRun, at: usize| run.1.get(at).cloned().unwrap_or_else(|| format!("{:?}", run.0));
    let at = first.1.iter().zip(&again.1).take_while(|(one, other)| one == other).count();
    let before = first.1[at.saturating_sub(5)..at].join("\n  ");
    let steps: String = steps.iter().map(|step| format!("    {step:?},\n")).collect();
    format!(
        "two runs of a program differ in line {at}\n\
         setting: {setting:?}\n\
         program:\n{steps}\
         before:\n  {before}\n\
         first run:\n  {}\n\
         second run:\n  {}",
        line(first, at),
        line(again, at)
    )
}

/// Returns the seed of a program. Runs with neighbouring seeds have no other programs in common.
fn seed_of(first: u64, number: u32) -> u64 {
    if number == 0 {
        return first;
    }
    let mixed = keccak256([&first.to_be_bytes()[..], &number.to_be_bytes()].concat());
    u64::from_be_bytes(mixed[..8].try_into().unwrap())
}

/// Returns a runner of the one program with this seed.
pub fn runner(seed: u64) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let runs = Runs {
        cases: 1,
        failure_persistence: None,
        max_shrink_iters: 3_000,
        max_shrink_time: 180_000,
        ..Runs::default()
    };
    TestRunner::new_with_rng(runs, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

fn failure(reason: &str, test: &str, seed: u64, setting: &dyn Debug, steps: &[impl Debug]) -> String {
    let steps: String = steps.iter().map(|step| format!("    {step:?},\n")).collect();
    format!(
        "{reason}\n\
         again: tests/run --seed {seed} {test}\n\
         or: HOLDFAST_SEED={seed} cargo test --features otlp --test it {test}\n\
         setting: {setting:?}\n\
         shrunk program:\n\
         {steps}\
         next: add the program to tests/it/model/fixed.rs"
    )
}

/// Writes the report of a failure to a file, because the output of a long run may be lost. The panic has the same text.
fn save(text: &str, test: &str, seed: u64) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/test-failures");
    let file = folder.join(format!("{}-{seed}.txt", test.replace("::", "-")));
    if let Err(error) = fs::create_dir_all(&folder).and_then(|()| fs::write(&file, format!("{text}\n"))) {
        println!("the report of the failure could not be written to {}: {error}", file.display());
    }
}

// === impl ProgramCount ===

impl ProgramCount {
    /// Checks that an event happened, which happens in at least one of `one_in` programs. If too few programs ran, the
    /// event may be missing by chance.
    pub fn must_cover(self, event: &str, one_in: u32, count: usize) {
        self.must_cover_after(PATIENCE * one_in, event, count);
    }

    /// Checks that an event happened, unless fewer than `enough` programs ran.
    pub fn must_cover_after(self, enough: u32, event: &str, count: usize) {
        assert!(count > 0 || self.0 < enough, "no program of {} covers this event: {event}", self.0);
    }
}
