//! A process that is killed while it writes.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use bytesize::ByteSize;
use holdfast::{
    cache::{
        Disk, DiskError,
        tier::{Part, Tier},
    },
    eth::BlockNumber,
};

use tokio::time::Instant;

use super::{CHAIN, Directory, content::Content, has, hint, open, open_when_free, put_all};

/// Size of the tier. Its segments have 1 MB, so that several are sealed before the end.
const SIZE: ByteSize = ByteSize::mib(16);

const KILLS: u64 = 60;

/// Value of `DISK_DOES` that makes the process drop hints.
const DROPS: &str = "drops";

/// The process that the tests kill, not a test itself. It reports each block as soon as it has written it.
#[tokio::test]
#[ignore = "run by other tests, to be killed"]
async fn writes_until_it_is_killed() {
    let Some(directory) = std::env::var_os("DISK_DIRECTORY") else { return };
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let disk = open_when_free(Path::new(&directory), SIZE);
    let mut told = std::io::stdout();
    let first = variable("DISK_FIRST").parse().unwrap();
    for number in first..first + 90 {
        let content = Content::new(number);
        put_all(&disk, CHAIN, &content).await;
        if variable("DISK_DOES") == DROPS && number == first + 20 {
            let homes = (0..=number).map(|number| Content::new(number).home).collect();
            disk.drop_hints(CHAIN, homes).await.unwrap();
            told.write_all(b"dropped\n").unwrap();
            break;
        }
        told.write_all(format!("wrote {number}\n").as_bytes()).unwrap();
    }
    std::future::pending::<()>().await;
}

struct Doomed {
    child: Child,
    told: BufReader<ChildStdout>,
}

impl Doomed {
    fn start(directory: &Directory, first: u64, does: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["tiers::disk::kill::writes_until_it_is_killed", "--exact", "--ignored", "--nocapture"])
            .env("DISK_DIRECTORY", &directory.0)
            .env("DISK_FIRST", first.to_string())
            .env("DISK_DOES", does)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let told = BufReader::new(child.stdout.take().unwrap());
        Self { child, told }
    }

    /// Returns the next whole line that the process reported.
    fn line(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.told.read_line(&mut line).unwrap() == 0 || !line.ends_with('\n') {
                return None;
            }
            if let Some(at) = line.find("wrote ").or_else(|| line.find("dropped")) {
                return Some(line[at..].trim_end().to_owned());
            }
        }
    }

    /// Kills the process. Returns the last block that it reported as written.
    fn kill(mut self) -> Option<u64> {
        self.child.kill().unwrap();
        let mut last = None;
        while let Some(line) = self.line() {
            last = line.strip_prefix("wrote ").map(|number| number.parse().unwrap()).or(last);
        }
        self.child.wait().unwrap();
        last
    }
}

/// Returns whether the tier has the whole block, and asserts that every part found is correct.
async fn is_whole(disk: &Disk, number: u64) -> bool {
    let content = Content::new(number);
    let hint = hint(disk, CHAIN, content.home.number).await;
    assert!(hint.is_none_or(|hash| hash == content.home.block));
    let whole = (Part::ALL.len(), content.transactions.len());
    has(disk, CHAIN, &content).await == whole && hint.is_some()
}

#[tokio::test]
async fn written_blocks_survive_repeated_kills() {
    let directory = Directory::new();
    let mut dice = fastrand::Rng::with_seed(9);
    let mut next = 0;
    // Continues until some segments are sealed, because the amount that is written before a kill depends on the
    // machine's speed.
    for kill in (0..).take_while(|kill| *kill < KILLS || sealed(&directory) < 2) {
        let mut doomed = Doomed::start(&directory, next, "");
        let mut written = doomed.line().unwrap().strip_prefix("wrote ").unwrap().parse().unwrap();
        if kill % 10 == 0 {
            let error = open(&directory.0, SIZE).unwrap_err();
            assert!(matches!(error, DiskError::InUse(_)), "{error}");
        }
        std::thread::sleep(Duration::from_micros(dice.u64(0..60_000)));
        written = doomed.kill().unwrap_or(written);

        let started = Instant::now();
        let disk = directory.open(SIZE);
        assert!(hint(&disk, CHAIN, BlockNumber(written)).await.is_some());
        if kill % 10 == 9 {
            let (took, bytes) = (started.elapsed(), ByteSize(directory.bytes()));
            println!("{} blocks, {bytes}: opened in {took:?}", written + 1);
        }
        // Checks all new blocks, and some old ones.
        let old = (0..20).map(|_| dice.u64(0..=written));
        for number in (next..=written).chain(old) {
            assert!(is_whole(&disk, number).await, "{number} of {written} after kill {kill}");
        }
        is_whole(&disk, written + 1).await;
        next = written + 1;
        assert_eq!(disk.usage().evictions, 0);
    }
    let disk = directory.open(SIZE);
    for number in 0..next {
        assert!(is_whole(&disk, number).await, "{number} of {next} at the end");
    }
}

/// Returns the number of sealed segments, which have an index each.
fn sealed(directory: &Directory) -> usize {
    directory
        .files()
        .iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "idx"))
        .count()
}

#[tokio::test]
async fn dropped_hints_stay_dropped_after_a_kill() {
    let directory = Directory::new();
    for kill in 0..5 {
        let first = kill * 10;
        let mut doomed = Doomed::start(&directory, first, DROPS);
        while doomed.line().unwrap() != "dropped" {}
        doomed.kill();
        let disk = directory.open(SIZE);
        for content in (0..=first + 20).map(Content::new) {
            assert_eq!(hint(&disk, CHAIN, content.home.number).await, None);
            assert_eq!(has(&disk, CHAIN, &content).await, (2, content.transactions.len()), "content stays");
        }
    }
}
