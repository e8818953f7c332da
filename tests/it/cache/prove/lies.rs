//! Every change to a true answer is refused, except those listed here.

use std::{collections::HashSet, sync::LazyLock};

use holdfast::{
    devchain::{Config, DevChain},
    eth::{Block, TxPosition},
    verify::{self, Failure, Verified, prove},
};
use proptest::{prelude::*, sample::Index};
use rayon::prelude::*;
use serde_json::{Value, json};

use crate::support::{
    data,
    mutate::{Mutation, Path, Step, at, names, places},
    times,
    vectors::{self, Fork},
};

/// A member that may be changed, null or left out.
struct Exception {
    /// The list that contains the member, or `block`.
    of: &'static str,
    name: &'static str,
    /// Returns whether the exception applies to this object, given as it was before the change.
    when: fn(&Value) -> bool,
    why: &'static str,
}

/// Members that no hash covers, so they may have any value.
const UNPROVED: [Exception; 2] = [
    Exception {
        of: "block",
        name: "totalDifficulty",
        when: always,
        why: "a sum over all earlier blocks, which no header contains",
    },
    Exception { of: "block", name: "size", when: always, why: "counts bytes that are not in the answer" },
];

/// Members that a node may leave out, but must not write as null. All other members must be present.
const ABSENT: [Exception; 9] = [
    Exception {
        of: "transactions",
        name: "chainId",
        when: is_legacy,
        why: "v contains it, if the signature names a chain",
    },
    Exception {
        of: "transactions",
        name: "yParity",
        when: |transaction| transaction["v"].is_string(),
        why: "v contains it",
    },
    Exception {
        of: "transactions",
        name: "v",
        when: |transaction| transaction["yParity"].is_string() && !is_legacy(transaction),
        why: "the same as yParity",
    },
    Exception {
        of: "transactions",
        name: "gasPrice",
        when: |transaction| ["0x2", "0x3", "0x4"].iter().any(|typed| transaction["type"] == *typed),
        why: "follows from the two fees and the base fee of the block",
    },
    Exception { of: "transactions", name: "blockTimestamp", when: always, why: "the timestamp of the block" },
    Exception { of: "receipts", name: "blobGasUsed", when: is_without_blobs, why: "zero without blobs" },
    Exception { of: "receipts", name: "blobGasPrice", when: is_without_blobs, why: "unused without blobs" },
    Exception { of: "receipts", name: "blockTimestamp", when: always, why: "the timestamp of the block" },
    Exception { of: "logs", name: "blockTimestamp", when: always, why: "the timestamp of the block" },
];

/// Members that some nodes write as null although other nodes give a value.
const NULL: [Exception; 1] = [Exception {
    of: "receipts",
    name: "contractAddress",
    when: |receipt| receipt["to"].is_null() && receipt["status"] != "0x1",
    why: "some nodes give no address for a failed creation, and before Byzantium receipts have no status",
}];

/// Members that name an answer or a part of it. Without them there is nothing to prove.
const NAMING: [(&str, &[&str]); 3] = [
    ("block", &["hash", "parentHash", "number", "transactionsRoot", "transactions", "uncles"]),
    ("transactions", &["hash", "blockHash", "blockNumber", "transactionIndex"]),
    ("receipts", &["transactionHash", "blockHash", "blockNumber", "transactionIndex"]),
];

/// Members that forks added to the header. Without the last of them, the header looks like one of an older fork.
const FORKED: [&str; 8] = [
    "baseFeePerGas",
    "withdrawalsRoot",
    "blobGasUsed",
    "excessBlobGas",
    "parentBeaconBlockRoot",
    "requestsHash",
    "blockAccessListHash",
    "slotNumber",
];

fn always(_: &Value) -> bool {
    true
}

fn is_legacy(transaction: &Value) -> bool {
    transaction["type"] == "0x0"
}

fn is_without_blobs(receipt: &Value) -> bool {
    receipt["type"] != "0x3"
}

/// Number of transactions above which the tests do not prove the whole block again for each changed transaction,
/// because that takes too long.
const LARGE: usize = 32;

/// A true block with its receipts as one value, and the paths of all values in it.
struct Truth {
    name: String,
    whole: Value,
    block: Verified<Block>,
    places: Vec<Path>,
    /// The block with a placeholder for its transactions.
    header: Value,
    /// The texts of its transactions.
    transactions: Vec<String>,
    /// The texts of its receipts.
    receipts: Vec<String>,
}

/// Placeholder for a block's transactions.
const ELSEWHERE: &str = r#""elsewhere""#;

impl Truth {
    fn new(name: &str, block: &[u8], receipts: Option<&[u8]>) -> Self {
        let proved = super::block(block).unwrap();
        let read = |bytes| serde_json::from_slice::<Value>(bytes).unwrap();
        let whole = json!({ "block": read(block), "receipts": receipts.map(read) });
        let mut places = places(&whole);
        places.retain(|path| path.len() > 1);
        let texts = |list: &Value| list.as_array().into_iter().flatten().map(Value::to_string).collect();
        let (transactions, receipts) = (texts(&whole["block"]["transactions"]), texts(&whole["receipts"]));
        let mut header = whole["block"].clone();
        header["transactions"] = json!(["elsewhere"]);
        Self { name: name.to_owned(), whole, block: proved, places, header, transactions, receipts }
    }

    fn of(fork: Fork) -> Self {
        let vector = vectors::vector(fork);
        Self::new(vector.name, vector.block.as_bytes(), Some(vector.receipts.as_bytes()))
    }

    /// Returns one path for each member of each kind of transaction, receipt or log.
    fn one_of_each(&self) -> Vec<&Path> {
        let mut seen = HashSet::new();
        let kind = |path: &Path| {
            let part =
                path.iter().rposition(|step| matches!(step, Step::At(_))).map_or(0, |last| last.min(2) + 1);
            let part = at(&self.whole, &path[..part.min(path.len())]);
            let names = names(path).into_iter().map(str::to_owned).collect::<Vec<_>>();
            (names, path.len(), part["type"].to_string(), part["to"].is_null(), part["status"].to_string())
        };
        self.places.iter().filter(|path| seen.insert(kind(path))).collect()
    }

    /// Changes one member or element of a transaction, a receipt or the rest of the block, and proves the result. The
    /// other parts keep their text, which saves time in large blocks. In large blocks, a changed transaction is proved
    /// alone, because its proof needs the same members with and without the block.
    fn try_in_place(&self, path: &[Step], mutation: Mutation) {
        let (object, rest) = match path {
            [_, Step::At(index), rest @ ..] if !rest.is_empty() => (&self.whole["receipts"][index], rest),
            [_, Step::Name(list), Step::At(index), rest @ ..]
                if list == "transactions" && !rest.is_empty() =>
            {
                (&self.whole["block"][list][index], rest)
            }
            [_, Step::Name(name), ..] if name != "transactions" => (&self.header, &path[1..]),
            _ => return try_out(self, path, mutation),
        };
        let Some(changed) = mutation.apply(object, rest) else { return };
        let (mut transactions, mut receipts) = (self.transactions.clone(), self.receipts.clone());
        let block = |header: &Value, transactions: &[String]| {
            header.to_string().replacen(ELSEWHERE, &transactions.join(","), 1)
        };
        let verdict = match path {
            [_, Step::At(index), ..] => {
                receipts[*index] = changed.to_string();
                self.prove(None, &receipts)
            }
            [_, _, Step::At(index), ..] if transactions.len() > LARGE && rest.len() < path.len() - 1 => {
                let hash = self.block.transaction_hash(TxPosition(*index as u64)).unwrap();
                verify::single_transaction(changed.to_string().as_bytes(), hash)
                    .and_then(|single| prove::single_transaction(single, None))
                    .map(|_| ())
            }
            [_, _, Step::At(index), ..] if rest.len() < path.len() - 1 => {
                transactions[*index] = changed.to_string();
                self.prove(Some(&block(&self.header, &transactions)), &receipts)
            }
            _ => self.prove(Some(&block(&changed, &transactions)), &receipts),
        };
        let parent = &rest[..rest.len() - 1];
        judge(self, path, mutation, [at(object, parent), at(&changed, parent)], verdict);
    }

    /// Proves these receipts, if the truth has any, with the block in another text if `block` is given.
    fn prove(&self, block: Option<&str>, receipts: &[String]) -> Result<(), Failure> {
        let other = block.map(|text| super::block(text.as_bytes())).transpose()?;
        if !self.whole["receipts"].is_null() {
            let text = format!("[{}]", receipts.join(","));
            super::receipts(text.as_bytes(), other.as_ref().unwrap_or(&self.block))?;
        }
        Ok(())
    }

    /// Proves the block and its receipts after a change.
    fn verdict(&self, changed: &Value) -> Result<(), Failure> {
        let other = (changed["block"] != self.whole["block"]).then(|| changed["block"].to_string());
        let other = other.map(|text| super::block(text.as_bytes())).transpose()?;
        let (receipts, block) = (&changed["receipts"], other.as_ref().unwrap_or(&self.block));
        if !receipts.is_null() {
            super::receipts(receipts.to_string().as_bytes(), block)?;
        }
        Ok(())
    }
}

/// Returns the block of a fork as anvil writes it: times in receipts are plain numbers, every receipt has a blob price,
/// and every transaction has both `v` and `yParity`.
fn in_the_form_of_anvil(fork: Fork) -> Truth {
    let vector = vectors::vector(fork);
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let (mut block, mut receipts) = (read(&vector.block), read(&vector.receipts));
    let time = u64::from_str_radix(&block["timestamp"].as_str().unwrap()[2..], 16).unwrap();
    for transaction in block["transactions"].as_array_mut().unwrap() {
        let parity = if is_legacy(transaction) { "yParity" } else { "v" };
        if transaction[parity].is_null() {
            let v = transaction[if parity == "v" { "yParity" } else { "v" }].as_str().unwrap().to_owned();
            let v = u128::from_str_radix(&v[2..], 16).unwrap();
            let is_odd = if parity == "v" { v == 1 } else { v % 2 == 0 };
            transaction[parity] = json!(format!("{:#x}", u8::from(is_odd)));
        }
    }
    let all = receipts.as_array_mut().unwrap();
    let price = all.iter().find_map(|receipt| receipt.get("blobGasPrice")).unwrap().clone();
    for receipt in all {
        receipt["blockTimestamp"] = json!(time);
        receipt["blobGasPrice"] = price.clone();
    }
    let name = format!("{} in the form of anvil", vector.name);
    Truth::new(&name, block.to_string().as_bytes(), Some(receipts.to_string().as_bytes()))
}

/// Blocks of every fork, of the development chain, and of real chains.
static TRUTHS: LazyLock<Vec<Truth>> = LazyLock::new(|| {
    let mut truths: Vec<_> = Fork::ALL.into_iter().map(Truth::of).collect();
    let chain = DevChain::new(Config::default());
    chain.mine_many(2, 9);
    for number in 0..=2 {
        let hash = chain.hash_at(number).unwrap();
        let (full, all) = (chain.block_json(hash, true).unwrap(), chain.receipts_json(hash).unwrap());
        truths.push(Truth::new(&format!("development block {number}"), &full, Some(&all)));
    }
    truths.push(in_the_form_of_anvil(Fork::Prague));
    for real in data::raw().into_iter().chain(data::real()) {
        truths.push(Truth::new(&real.name, &real.block, real.receipts.as_deref()));
    }
    truths
});

/// Returns the list that contains a member (or `block`), and the member's name.
fn member(path: &[Step]) -> Option<(&str, &str)> {
    Some(match names(path)[..] {
        ["block", name] => ("block", name),
        ["receipts", "logs", name] => ("logs", name),
        ["block", list, name] => (list, name),
        ["receipts", name] => ("receipts", name),
        _ => return None,
    })
}

/// Returns whether a table of exceptions allows this change. `path` leads to the changed value; `object` is its parent
/// before the change, and `changed` after it.
fn excepted([object, changed]: [&Value; 2], path: &[Step]) -> bool {
    // The proof covers only whether there are uncles, not their hashes.
    if names(path) == ["block", "uncles"] {
        let are_hashes = |uncles: &Vec<Value>| {
            uncles.iter().all(|hash| hash.as_str().is_some_and(|hash| hash.len() == 66))
                && matches!(&uncles[..], [_]) | matches!(&uncles[..], [one, two] if one != two)
        };
        let list = |holder: &Value| holder.get("uncles").unwrap_or(holder).as_array().is_some_and(are_hashes);
        return list(object) && list(changed);
    }
    let Some((of, name)) = member(path) else { return false };
    let holds = |exception: &Exception| {
        (exception.of, exception.name) == (of, name) && (exception.when)(object) && !exception.why.is_empty()
    };
    match changed.get(name) {
        None => ABSENT.iter().chain(&UNPROVED).any(holds),
        Some(Value::Null) => NULL.iter().chain(&UNPROVED).any(holds),
        Some(_) => UNPROVED.iter().any(holds),
    }
}

/// Returns whether the change removes a member whose absence must make an answer unprovable, not wrong. The verifier
/// refuses the answer in both cases.
fn is_told_from_a_lie(path: &[Step], mutation: Mutation) -> bool {
    let (Some(Step::Name(_)), Some((of, name))) = (path.last(), member(path)) else { return false };
    let is_naming = NAMING.iter().any(|(list, names)| *list == of && names.contains(&name));
    // A transaction without a recipient looks like a contract creation.
    let is_call = (of, name) == ("transactions", "to") && matches!(mutation, Mutation::Null);
    let is_forked = of == "block" && FORKED.contains(&name);
    let is_lack = matches!(mutation, Mutation::Null | Mutation::Drop);
    is_lack && !(is_naming || is_call || is_forked)
}

/// Applies one change, proves the result, and checks the verdict.
fn try_out(truth: &Truth, path: &[Step], mutation: Mutation) {
    let Some(changed) = mutation.apply(&truth.whole, path) else { return };
    let parent = &path[..path.len() - 1];
    judge(truth, path, mutation, [at(&truth.whole, parent), at(&changed, parent)], truth.verdict(&changed));
}

/// Checks a verdict against the tables of exceptions.
///
/// # Panics
/// If a wrong change passes, if an allowed change fails, or if a missing member makes the answer wrong instead of
/// unprovable.
fn judge(
    truth: &Truth,
    path: &[Step],
    mutation: Mutation,
    parents: [&Value; 2],
    verdict: Result<(), Failure>,
) {
    let expected = excepted(parents, path);
    let place = || format!("{}: {mutation:?} of {path:?}, {}", truth.name, at(&truth.whole, path));
    assert_eq!(verdict.is_ok(), expected, "{}: {verdict:?}", place());
    if let Err(failure) = verdict
        && is_told_from_a_lie(path, mutation)
    {
        assert_eq!(failure.as_str(), "unprovable", "{}: {failure}", place());
    }
}

#[test]
fn every_member_of_every_fork_is_checked() {
    let middle = any_index();
    for truth in TRUTHS.iter().take(Fork::ALL.len()) {
        assert_eq!(truth.verdict(&truth.whole), Ok(()));
        truth.one_of_each().par_iter().for_each(|path| try_out(truth, path, Mutation::Change(middle)));
    }
}

#[test]
fn only_listed_members_may_be_missing_or_null() {
    // The largest real blocks take most of the time.
    let largest = times(2_000, u32::MAX) as usize;
    for truth in TRUTHS.iter().filter(|truth| truth.places.len() <= largest) {
        truth.one_of_each().par_iter().for_each(|path| {
            truth.try_in_place(path, Mutation::Drop);
            truth.try_in_place(path, Mutation::Null);
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_change_is_refused(truth: Index, place: Index, mutation in Mutation::any()) {
        let truth = truth.get(&TRUTHS);
        try_out(truth, &truth.places[place.index(truth.places.len())], mutation);
    }
}

/// Returns an arbitrary position, which is the same in every run.
fn any_index() -> Index {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    any::<Index>().new_tree(&mut TestRunner::deterministic()).unwrap().current()
}
