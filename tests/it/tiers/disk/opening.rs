//! Time to open a directory.

use bytesize::ByteSize;
use holdfast::cache::tier::Part;
use tokio::time::Instant;

use super::{CHAIN, Directory, content::Content, found, hint, put_all};

#[tokio::test]
#[ignore = "a measurement of seconds; tests/run --all runs it"]
async fn opening_time_grows_with_the_blocks() {
    for blocks in [2_500, 5_000, 10_000] {
        let directory = Directory::new();
        // Segments have 32 MB, so the last segment, which is scanned, is long in comparison with the rest.
        let size = ByteSize::mib(512);
        let disk = directory.open(size);
        let started = Instant::now();
        for number in 0..blocks {
            put_all(&disk, CHAIN, &Content::sized(number, 0, 200, 2_000)).await;
        }
        let wrote = started.elapsed();
        drop(disk);
        let started = Instant::now();
        let disk = directory.open(size);
        let last = Content::sized(blocks - 1, 0, 200, 2_000);
        assert_eq!(hint(&disk, CHAIN, last.home.number).await, Some(last.home.block));
        let opened = started.elapsed();
        assert!(found(&disk, CHAIN, Part::Receipts, &last).await);
        let bytes = ByteSize(directory.bytes());
        println!("{blocks} blocks of 200 transactions, {bytes}: written in {wrote:?}, opened in {opened:?}");
    }
}
