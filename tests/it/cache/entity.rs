//! Parts cut out of a node's blocks and receipts equal the node's own answers, byte for byte.

use std::{collections::BTreeMap, fs, path::Path, sync::LazyLock};

use bytes::Bytes;
use holdfast::{
    devchain::{Config, DevChain},
    eth::{
        Block, BlockNumber, BlockWithHashes, Place, Receipts, SingleReceipt, SingleTransaction, TxPosition,
    },
};
use proptest::{prelude::*, sample::Index};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

/// A chain with transactions of all kinds, an empty block and a genesis.
fn chain() -> DevChain {
    let chain = DevChain::new(Config::default());
    chain.mine_many(3, 9);
    chain.mine(0);
    chain.mine(1);
    chain
}

fn parse(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

fn positions(count: usize) -> impl Iterator<Item = (usize, TxPosition)> {
    (0..count).map(|index| (index, TxPosition(index as u64)))
}

// ## Answers of a node

#[test]
fn parts_of_a_block_equal_the_nodes_own_answers() {
    let chain = chain();
    let mut types = BTreeMap::new();
    for number in 0..=chain.head().number {
        let hash = chain.hash_at(number).unwrap();
        let (full, with_hashes) =
            (chain.block_json(hash, true).unwrap(), chain.block_json(hash, false).unwrap());
        let hashes = chain.transactions_of(hash);

        let (block, places) = Block::read(full.clone()).unwrap();
        assert_eq!(block.full(), full);
        assert_eq!(block.hashes_only().concat(), with_hashes);
        assert_eq!((block.hash().0, block.header().number), (hash, BlockNumber(number)));
        assert!(chain.parent_of(hash).is_none_or(|parent| parent.hash == block.header().parent.0));
        assert_eq!((block.len(), block.is_empty()), (hashes.len(), hashes.is_empty()));
        assert_eq!(block.transaction_hashes().map(|hash| hash.0).collect::<Vec<_>>(), hashes);
        for (index, position) in positions(hashes.len()) {
            let transaction = block.transaction(position).unwrap();
            assert_eq!(Some(&transaction), chain.transaction_json(hash, index).as_ref());
            assert_eq!(block.transaction_hash(position).unwrap().0, hashes[index]);
            let place = Place { block: block.hash(), number: BlockNumber(number), index: position };
            assert_eq!((places[index].0.0, places[index].1), (hashes[index], place));

            let single = SingleTransaction::read(transaction.clone()).unwrap();
            assert_eq!(
                (single.hash().0, single.place(), single.bytes()),
                (hashes[index], Some(place), transaction)
            );
            *types.entry(parse(&single.bytes())["type"].to_string()).or_insert(0) += 1;
        }
        let past_the_end = TxPosition(hashes.len() as u64);
        assert_eq!((block.transaction(past_the_end), block.transaction_hash(past_the_end)), (None, None));
        assert_eq!(block.transaction(TxPosition(u64::MAX)), None);

        let read = BlockWithHashes::read(with_hashes.clone()).unwrap();
        assert_eq!((read.header(), read.bytes(), read.len()), (block.header(), with_hashes, hashes.len()));
    }
    assert_eq!(types.keys().collect::<Vec<_>>(), ["\"0x0\"", "\"0x1\"", "\"0x2\"", "\"0x3\"", "\"0x4\""]);
}

#[test]
fn parts_of_receipts_equal_the_nodes_own_answers() {
    let chain = chain();
    for number in 0..=chain.head().number {
        let hash = chain.hash_at(number).unwrap();
        let all = chain.receipts_json(hash).unwrap();
        let hashes = chain.transactions_of(hash);

        let (receipts, places) = Receipts::read(all.clone()).unwrap();
        assert_eq!((receipts.all(), receipts.len()), (all, hashes.len()));
        assert_eq!(receipts.transaction_hashes().map(|hash| hash.0).collect::<Vec<_>>(), hashes);
        for (index, position) in positions(hashes.len()) {
            let receipt = receipts.receipt(position).unwrap();
            assert_eq!(Some(&receipt), chain.receipt_json(hash, index).as_ref());
            assert_eq!(receipts.transaction_hash(position).unwrap().0, hashes[index]);
            let single = SingleReceipt::read(receipt.clone()).unwrap();
            assert_eq!((single.hash(), single.place()), places[index]);
            assert_eq!((single.hash().0, single.bytes()), (hashes[index], receipt));
            assert_eq!((single.place().block.0, single.place().index), (hash, position));
        }
        let past_the_end = TxPosition(hashes.len() as u64);
        assert_eq!((receipts.receipt(past_the_end), receipts.transaction_hash(past_the_end)), (None, None));
    }
}

#[test]
fn two_forms_of_a_block_are_not_confused() {
    let chain = chain();
    let hash = chain.hash_at(1).unwrap();
    let (full, with_hashes) = (chain.block_json(hash, true).unwrap(), chain.block_json(hash, false).unwrap());
    assert!(BlockWithHashes::read(full.clone()).is_err());
    assert!(Block::read(with_hashes).is_err());
    for other in [chain.receipts_json(hash).unwrap(), chain.receipt_json(hash, 0).unwrap()] {
        assert!(Block::read(other.clone()).is_err());
        assert!(BlockWithHashes::read(other.clone()).is_err());
    }
    assert!(Receipts::read(full.clone()).is_err());
    assert!(Receipts::read(full.slice(..0)).is_err());
    assert!(SingleReceipt::read(chain.transaction_json(hash, 0).unwrap()).is_err());
    // An empty block can be read in both forms.
    let empty = chain.block_json(chain.hash_at(4).unwrap(), true).unwrap();
    assert_eq!(Block::read(empty.clone()).unwrap().0.len(), BlockWithHashes::read(empty).unwrap().len());
}

#[test]
fn pending_transactions_have_no_place_but_receipts_do() {
    let chain = chain();
    let hash = chain.hash_at(1).unwrap();
    let without = |members: &[&str]| {
        let mut transaction = parse(&chain.transaction_json(hash, 0).unwrap());
        members.iter().for_each(|member| transaction[*member] = Value::Null);
        SingleTransaction::read(transaction.to_string().into())
    };
    let pending = without(&["blockHash", "blockNumber", "transactionIndex"]).unwrap();
    assert_eq!((pending.place(), pending.is_half_placed()), (None, false));
    // Some nodes give a pending transaction the number of its likely block.
    let pending = without(&["blockHash", "transactionIndex"]).unwrap();
    assert_eq!((pending.place(), pending.is_half_placed()), (None, true));
    for absent in ["blockHash", "blockNumber", "transactionIndex"] {
        assert!(without(&[absent]).is_err(), "{absent}");
        let mut receipt = parse(&chain.receipt_json(hash, 0).unwrap());
        receipt[absent] = Value::Null;
        assert!(SingleReceipt::read(receipt.to_string().into()).is_err());
        assert!(Receipts::read(format!("[{receipt}]").into()).is_err());
    }
}

#[test]
fn trailing_bytes_are_refused() {
    let chain = chain();
    let hash = chain.hash_at(1).unwrap();
    let and_more = |bytes: Bytes| Bytes::from([&bytes[..], b" {}"].concat());
    assert!(Block::read(and_more(chain.block_json(hash, true).unwrap())).is_err());
    assert!(BlockWithHashes::read(and_more(chain.block_json(hash, false).unwrap())).is_err());
    assert!(Receipts::read(and_more(chain.receipts_json(hash).unwrap())).is_err());
    assert!(SingleTransaction::read(and_more(chain.transaction_json(hash, 0).unwrap())).is_err());
    assert!(SingleReceipt::read(and_more(chain.receipt_json(hash, 0).unwrap())).is_err());
}

#[test]
fn escaped_member_names_are_equal() {
    let chain = chain();
    let hash = chain.hash_at(1).unwrap();
    let escaped = |bytes: Bytes, name: &str| {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let written = format!("\"\\u{:04x}{}\":", name.as_bytes()[0], &name[1..]);
        let twice = format!("{{{written}null,{}", &text[1..]);
        (Bytes::from(text.replace(&format!("\"{name}\":"), &written)), Bytes::from(twice))
    };
    let full = chain.block_json(hash, true).unwrap();
    let (block, _) = Block::read(full.clone()).unwrap();
    for name in ["hash", "parentHash", "number", "transactionsRoot", "transactions", "uncles"] {
        let (other, twice) = escaped(full.clone(), name);
        let (read, _) = Block::read(other).unwrap();
        assert_eq!((read.header(), read.len()), (block.header(), block.len()));
        assert!(Block::read(twice).is_err(), "a second {name} was accepted");
    }
}

#[test]
fn real_blocks_and_receipts_are_cut_correctly() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data"));
    let mut seen = 0;
    for path in fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()) {
        let name = path.file_name().unwrap().to_str().unwrap();
        let bytes = || Bytes::from(fs::read(&path).unwrap());
        if name.ends_with(".block.json") {
            assert!(consistent_block(&bytes()), "{name}");
            assert!(!Block::read(bytes()).unwrap().0.is_empty());
        } else if name.ends_with(".receipts.json") {
            assert!(consistent_receipts(&bytes()), "{name}");
            let block = bytes_of(&path.with_file_name(name.replace("receipts", "block")));
            let (block, receipts) = (Block::read(block).unwrap(), Receipts::read(bytes()).unwrap());
            assert_eq!(block.1, receipts.1, "{name}");
        } else {
            continue;
        }
        seen += 1;
    }
    assert!(seen > 0, "no data in {}", folder.display());
}

fn bytes_of(path: &Path) -> Bytes {
    fs::read(path).unwrap().into()
}

// ## Arbitrary bytes

/// A block as another parser reads it.
#[derive(Deserialize)]
struct OtherBlock<'a> {
    hash: &'a str,
    number: &'a str,
    #[serde(rename = "parentHash")]
    parent: &'a str,
    #[serde(borrow)]
    transactions: Vec<&'a RawValue>,
    #[serde(borrow, default)]
    uncles: Vec<&'a RawValue>,
}

/// A transaction or a receipt as another parser reads it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OtherPlaced<'a> {
    #[serde(alias = "transactionHash")]
    hash: &'a str,
    block_hash: &'a str,
    block_number: &'a str,
    transaction_index: &'a str,
}

fn same_hash(text: &str, hash: impl ToString) -> bool {
    text.eq_ignore_ascii_case(&hash.to_string())
}

fn same_place(text: &str, hash: impl ToString, place: Place) -> bool {
    let Ok(other) = serde_json::from_str::<OtherPlaced<'_>>(text) else { return false };
    same_hash(other.hash, hash)
        && same_hash(other.block_hash, place.block)
        && other.block_number.eq_ignore_ascii_case(&place.number.to_string())
        && other.transaction_index.eq_ignore_ascii_case(&place.index.to_string())
}

/// Returns whether `bytes` can be read as a block.
///
/// # Panics
/// If another parser reads them differently.
fn consistent_block(bytes: &Bytes) -> bool {
    let Ok((block, places)) = Block::read(bytes.clone()) else { return false };
    let other: OtherBlock<'_> = serde_json::from_slice(bytes).unwrap();
    let header = block.header();
    assert_eq!(block.full(), *bytes);
    assert!(same_hash(other.hash, header.hash) && same_hash(other.parent, header.parent));
    assert!(other.number.eq_ignore_ascii_case(&header.number.to_string()));
    assert_eq!((other.uncles.len(), other.transactions.len()), (header.uncles as usize, block.len()));
    assert_eq!(places.len(), block.len());
    for (index, position) in positions(block.len()) {
        let text = other.transactions[index].get();
        assert_eq!(block.transaction(position).unwrap(), text);
        assert!(same_place(text, places[index].0, places[index].1), "{text}");
        assert_eq!(block.transaction_hash(position), Some(places[index].0));
        let single = SingleTransaction::read(block.transaction(position).unwrap()).unwrap();
        assert_eq!((single.hash(), single.place()), (places[index].0, Some(places[index].1)));
    }
    let with_hashes = Bytes::from(block.hashes_only().concat());
    assert!(consistent_block_with_hashes(&with_hashes));
    let other: OtherBlock<'_> = serde_json::from_slice(&with_hashes).unwrap();
    let hashes: Vec<_> = other.transactions.iter().map(|hash| hash.get().trim_matches('"')).collect();
    assert!(hashes.iter().zip(block.transaction_hashes()).all(|(text, hash)| same_hash(text, hash)));
    assert_eq!(*BlockWithHashes::read(with_hashes).unwrap().header(), *header);
    true
}

fn consistent_block_with_hashes(bytes: &Bytes) -> bool {
    let Ok(block) = BlockWithHashes::read(bytes.clone()) else { return false };
    let other: OtherBlock<'_> = serde_json::from_slice(bytes).unwrap();
    assert!(same_hash(other.hash, block.hash()) && same_hash(other.parent, block.header().parent));
    assert_eq!((block.len(), block.bytes()), (other.transactions.len(), bytes.clone()));
    true
}

fn consistent_receipts(bytes: &Bytes) -> bool {
    let Ok((receipts, places)) = Receipts::read(bytes.clone()) else { return false };
    let other: Vec<&RawValue> = serde_json::from_slice(bytes).unwrap();
    assert_eq!((receipts.all(), receipts.len()), (bytes.clone(), other.len()));
    assert_eq!(receipts.transaction_hashes().count(), other.len());
    for (index, position) in positions(receipts.len()) {
        let text = other[index].get();
        assert_eq!(receipts.receipt(position).unwrap(), text);
        assert!(same_place(text, places[index].0, places[index].1), "{text}");
        let single = SingleReceipt::read(receipts.receipt(position).unwrap()).unwrap();
        assert_eq!((single.hash(), single.place()), places[index]);
    }
    true
}

/// A small block with whole transactions, the same block with their hashes, and its receipts.
struct Sample {
    full: Bytes,
    with_hashes: Bytes,
    receipts: Bytes,
}

static SAMPLE: LazyLock<Sample> = LazyLock::new(|| {
    let chain = DevChain::new(Config::default());
    let hash = chain.mine(3).hash;
    Sample {
        full: chain.block_json(hash, true).unwrap(),
        with_hashes: chain.block_json(hash, false).unwrap(),
        receipts: chain.receipts_json(hash).unwrap(),
    }
});

impl Sample {
    fn all(&self) -> [&Bytes; 3] {
        [&self.full, &self.with_hashes, &self.receipts]
    }
}

/// Reads `bytes` as every entity, asserts that each result is consistent, and returns the number of entities that
/// could be read.
fn read_all(bytes: &Bytes) -> usize {
    let single = [SingleTransaction::read(bytes.clone()).is_ok(), SingleReceipt::read(bytes.clone()).is_ok()];
    let whole = [consistent_block(bytes), consistent_block_with_hashes(bytes), consistent_receipts(bytes)];
    single.into_iter().chain(whole).filter(|read| *read).count()
}

/// Returns the members of an object, sorted by name.
fn members(object: &str) -> Vec<(String, String)> {
    let members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(object).unwrap();
    members.into_iter().map(|(name, value)| (name, value.get().to_owned())).collect()
}

fn object(members: &[(String, String)]) -> String {
    let members: Vec<_> = members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", members.join(","))
}

const OF_A_BLOCK: [&str; 5] = ["hash", "parentHash", "number", "transactionsRoot", "transactions"];
const OF_A_TRANSACTION: [&str; 4] = ["hash", "blockHash", "blockNumber", "transactionIndex"];
const OF_A_RECEIPT: [&str; 4] = ["transactionHash", "blockHash", "blockNumber", "transactionIndex"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn arbitrary_bytes_are_refused_or_read_correctly(bytes: Vec<u8>, text in "[\\[\\]{}\",:0x1null a\\\\]{0,40}") {
        read_all(&bytes.into());
        read_all(&text.into());
    }

    #[test]
    fn truncated_bytes_are_refused(of in 0..3_usize, end: Index) {
        let bytes = SAMPLE.all()[of];
        prop_assert_eq!(read_all(&bytes.slice(..end.index(bytes.len()))), 0);
    }

    #[test]
    fn damaged_bytes_are_refused_or_read_correctly(
        of in 0..3_usize,
        at: Index,
        removed in 0..3_usize,
        put in prop::collection::vec(
            prop_oneof![prop::sample::select(&b"\"{}[],:\\0x1anul \n"[..]), any::<u8>()],
            0..3,
        ),
    ) {
        let mut bytes = SAMPLE.all()[of].to_vec();
        let at = at.index(bytes.len());
        let end = (at + removed).min(bytes.len());
        bytes.splice(at..end, put);
        read_all(&bytes.into());
    }

    #[test]
    fn a_block_needs_its_members_once(which: Index, again: bool, other: Index) {
        let full = std::str::from_utf8(&SAMPLE.full).unwrap();
        let mut block = members(full);
        let (name, _) = block[which.index(block.len())].clone();
        let needed = OF_A_BLOCK.contains(&name.as_str());
        if again {
            // The repeated member may have any value.
            let value = block[other.index(block.len())].1.clone();
            block.push((name.clone(), value));
        } else {
            block.retain(|member| member.0 != name);
        }
        let refused = needed || (again && ["uncles", "timestamp", "logsBloom"].contains(&name.as_str()));
        prop_assert_eq!(consistent_block(&object(&block).into()), !refused, "{}", name);
    }

    #[test]
    fn a_transaction_in_a_block_needs_its_members_once(which: Index, place: Index, again: bool) {
        let full = std::str::from_utf8(&SAMPLE.full).unwrap();
        let mut block = members(full);
        let list = block.iter_mut().find(|(name, _)| name == "transactions").unwrap();
        let (changed, name) = change_one(&list.1, which, place, again);
        list.1 = changed;
        let needed = OF_A_TRANSACTION.contains(&name.as_str());
        prop_assert_eq!(consistent_block(&object(&block).into()), !needed, "{}", name);
    }

    #[test]
    fn a_receipt_needs_its_members_once(which: Index, place: Index, again: bool) {
        let receipts = std::str::from_utf8(&SAMPLE.receipts).unwrap();
        let (changed, name) = change_one(receipts, which, place, again);
        let needed = OF_A_RECEIPT.contains(&name.as_str());
        prop_assert_eq!(consistent_receipts(&changed.into()), !needed, "{}", name);
    }
}

/// Removes or repeats one member of one object in a list. Returns the new list and the member's name.
fn change_one(list: &str, which: Index, place: Index, again: bool) -> (String, String) {
    let list: Vec<&RawValue> = serde_json::from_str(list).unwrap();
    let mut list: Vec<_> = list.iter().map(|item| item.get().to_owned()).collect();
    let place = place.index(list.len());
    let mut item = members(&list[place]);
    let (name, value) = item[which.index(item.len())].clone();
    if again {
        item.push((name.clone(), value));
    } else {
        item.retain(|member| member.0 != name);
    }
    list[place] = object(&item);
    (format!("[{}]", list.join(",")), name)
}
