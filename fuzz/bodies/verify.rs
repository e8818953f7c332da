//! Properties of verification for arbitrary bytes from a node, as a block, a transaction or receipts.

use bytes::Bytes;
use holdfast::{
    eth::{
        At, Block, Disputes, Home, IndexedFilter, Log, LogFilter, LogIndex, Receipts, SingleReceipt,
        SingleTransaction, Tag,
    },
    verify::{self, Level, Verified, prove},
};
use serde_json::Value;

/// Verifies `data` as every kind of answer, and panics if a property does not hold.
///
/// A zero byte, which no JSON contains, separates a block from its receipts.
pub fn verify(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == 0);
    let (first, second) = (parts.next().unwrap_or_default(), parts.next());
    let block = block(first);
    if let Some(block) = &block {
        receipts(second.unwrap_or(first), block);
    }
    block_with_hashes(first);
    single_transaction(first);
    single_receipt(first);
    nameless(first);
    logs(first);
}

fn block(data: &[u8]) -> Option<Verified<Block>> {
    let block = prove::block(verify::block(data, At::Tag(Tag::Latest)).ok()?, None).ok()?;
    assert_eq!(block.level(), Level::Proved);
    assert_eq!(block.full(), data);
    if let Some(again) = rewritten(data) {
        let again = verify::block(&again, At::Hash(block.hash())).and_then(|block| prove::block(block, None));
        assert_eq!(again.expect("is the same block").header(), block.header());
    }
    Some(block)
}

fn receipts(data: &[u8], block: &Verified<Block>) -> Option<Verified<Receipts>> {
    let read = |data: &[u8]| verify::receipts(data, block.hash(), block.header().number, Some(block));
    let receipts = prove::receipts(read(data).ok()?, block).ok()?;
    assert_eq!(receipts.level(), Level::Proved);
    assert!(receipts.transaction_hashes().eq(block.transaction_hashes()));
    let (filter, mut found) = (LogFilter::default(), Vec::new());
    let index = LogIndex::new(&receipts).expect("proved receipts have logs");
    index
        .find(&receipts, &IndexedFilter::new(filter, Disputes::Fail), &mut found)
        .expect("nothing to dispute");
    // `serde_json` refuses deep JSON.
    if let Ok(all) = serde_json::from_slice::<Vec<Value>>(&receipts.all()) {
        let logs: usize = all.iter().filter_map(|receipt| Some(receipt["logs"].as_array()?.len())).sum();
        assert_eq!(found.len(), logs);
    }
    if let Some(again) = rewritten(data) {
        let again = read(&again).and_then(|again| prove::receipts(again, block));
        assert_eq!(again.expect("are the same receipts").len(), block.len());
    }
    Some(receipts)
}

fn block_with_hashes(data: &[u8]) -> Option<()> {
    let with_hashes =
        prove::block_with_hashes(verify::block_with_hashes(data, At::Tag(Tag::Latest)).ok()?).ok()?;
    assert_eq!(with_hashes.level(), if with_hashes.is_empty() { Level::Proved } else { Level::Partial });
    if let Some(again) = rewritten(data) {
        let again = verify::block_with_hashes(&again, At::Hash(with_hashes.hash()))
            .and_then(prove::block_with_hashes);
        assert_eq!(again.expect("is the same block").header(), with_hashes.header());
    }
    Some(())
}

fn single_transaction(data: &[u8]) -> Option<()> {
    let hash = SingleTransaction::read(Bytes::copy_from_slice(data)).ok()?.hash();
    let read = |data: &[u8]| verify::single_transaction(data, hash);
    let single = prove::single_transaction(read(data).ok()?, None).ok()?;
    assert_eq!((single.level(), single.hash()), (Level::Partial, hash));
    if let Some(again) = rewritten(data) {
        let again = read(&again).and_then(|single| prove::single_transaction(single, None));
        assert_eq!(again.expect("is the same transaction").place(), single.place());
    }
    Some(())
}

fn single_receipt(data: &[u8]) -> Option<()> {
    let hash = SingleReceipt::read(Bytes::copy_from_slice(data)).ok()?.hash();
    let receipt = verify::single_receipt(data, hash).ok()?;
    assert_eq!(receipt.level(), Level::Structural);
    Some(())
}

/// Verifies receipts as those of the block that they name.
fn nameless(data: &[u8]) -> Option<()> {
    let Home { block, number } = Receipts::read(Bytes::copy_from_slice(data)).ok()?.0.home()?;
    let receipts = verify::receipts(data, block, number, None).ok()?;
    assert_eq!((receipts.level(), receipts.block()), (Level::Structural, Some(block)));
    Some(())
}

/// Returns the JSON rewritten by `serde_json`: in another order, without white space or escapes. `None` if it is
/// nested too deeply for `serde_json`, or a string contains a lone surrogate: unknown members may have either.
fn rewritten(data: &[u8]) -> Option<Vec<u8>> {
    let value: Value = serde_json::from_slice(data).ok()?;
    serde_json::to_vec(&value).ok()
}

/// Checks that the logs of an answer are its elements, in order.
fn logs(data: &[u8]) {
    let Ok(logs) = Log::read_all(data) else { return };
    let Ok(elements) = serde_json::from_slice::<Vec<Value>>(data) else { return };
    assert_eq!(logs.len(), elements.len());
    for (log, element) in logs.iter().zip(&elements) {
        let read: Value = serde_json::from_slice(&data[log.place.clone()]).expect("an object");
        assert_eq!(&read, element);
    }
}
