//! Copies of a directory that is being written, opened elsewhere.

use std::{
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use bytesize::ByteSize;
use holdfast::cache::{Disk, tier::Tier};

use super::{CHAIN, Directory, content::Content, has, hint, open_when_free, put_all};

/// Size of the tier. Its segments are small, so that many are sealed and deleted during the test.
const SIZE: ByteSize = ByteSize::mib(2);

/// Asserts that everything in the tier is as written. Returns the number of hints.
async fn check(disk: &Disk, numbers: u64) -> u64 {
    let mut hints = 0;
    for content in (0..numbers).map(Content::new) {
        let hint = hint(disk, CHAIN, content.home.number).await;
        assert!(hint.is_none_or(|hash| hash == content.home.block), "{hint:?}");
        hints += u64::from(hint.is_some());
        has(disk, CHAIN, &content).await;
    }
    hints
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_made_during_writes_opens() {
    const NUMBERS: u64 = 4_000;
    let directory = Directory::new();
    let disk = Arc::new(directory.open(SIZE));
    for number in 0..NUMBERS / 4 {
        put_all(&disk, CHAIN, &Content::new(number)).await;
    }
    let (is_over, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writing = tokio::spawn({
        let (disk, is_over, written) = (disk.clone(), is_over.clone(), written.clone());
        async move {
            let mut number = NUMBERS / 4;
            while !is_over.load(Relaxed) && number < NUMBERS {
                put_all(&disk, CHAIN, &Content::new(number)).await;
                written.store(number, Relaxed);
                number += 1;
            }
        }
    });
    let mut answered = 0;
    for _ in 0..8 {
        let before = written.load(Relaxed);
        while written.load(Relaxed) < before + 20 && !writing.is_finished() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let copy = Directory::new();
        let to = copy.0.clone();
        let mut cp = Command::new("cp");
        cp.arg("-a").arg(format!("{}/.", directory.0.display())).arg(&to).stderr(Stdio::null());
        // `cp` fails if a segment vanishes, but the test checks the files that it has copied.
        tokio::task::spawn_blocking(move || cp.status().unwrap()).await.unwrap();
        answered += check(&open_when_free(&copy.0, SIZE), NUMBERS).await;
    }
    is_over.store(true, Relaxed);
    writing.await.unwrap();
    assert!(answered > 8 * 100, "only {answered} numbers were answered");
    assert!(disk.usage().evictions > 0, "no segment vanished");
}
