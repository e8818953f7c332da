//! Whatever is changed is refused, unless it is named here.

use std::{collections::HashSet, sync::LazyLock};

use holdfast::{
    devchain::{Config, DevChain},
    eth::Block,
    verify::Verified,
};
use proptest::{prelude::*, sample::Index};
use rayon::prelude::*;
use serde_json::{Value, json};

use super::{
    mutate::{Mutation, Path, Step, at, names, places},
    vectors::{self, Fork},
};
use crate::support::data;

/// Something that may be changed or left out.
struct Exception {
    /// The list that it is in, or the block.
    of: &'static str,
    name: &'static str,
    /// Is it an exception in this object? The object is as it was before.
    when: fn(&Value) -> bool,
    why: &'static str,
}

/// What nothing confirms: it may be anything.
const UNPROVED: [Exception; 2] = [
    Exception {
        of: "block",
        name: "totalDifficulty",
        when: always,
        why: "a sum over all blocks before, and in no header",
    },
    Exception { of: "block", name: "size", when: always, why: "counts what is not in the answer" },
];

/// What may be left out. If it is there it must be right.
const OPTIONAL: [Exception; 13] = [
    Exception {
        of: "transactions",
        name: "type",
        when: is_legacy,
        why: "before EIP-2718 there were none: what has no type is a legacy transaction",
    },
    Exception {
        of: "transactions",
        name: "to",
        when: |transaction| transaction["to"].is_null(),
        why: "null in a creation, which is the same as nothing",
    },
    Exception {
        of: "transactions",
        name: "chainId",
        when: is_legacy,
        why: "a legacy transaction has it in its v, and with some nodes only there",
    },
    Exception {
        of: "transactions",
        name: "gasPrice",
        when: |transaction| transaction["maxFeePerGas"].is_string(),
        why: "follows from the two fees and the block's base fee",
    },
    Exception {
        of: "transactions",
        name: "v",
        when: |transaction| transaction["yParity"].is_string() && !is_legacy(transaction),
        why: "the same as yParity",
    },
    Exception {
        of: "transactions",
        name: "yParity",
        when: |transaction| transaction["v"].is_string(),
        why: "the same as v, or in it",
    },
    Exception { of: "transactions", name: "blockTimestamp", when: always, why: "not all nodes say it again" },
    Exception { of: "receipts", name: "type", when: always, why: "the transaction's, and in the root" },
    Exception {
        of: "receipts",
        name: "effectiveGasPrice",
        when: always,
        why: "follows from the transaction and the block's base fee; older nodes do not say it",
    },
    Exception { of: "logs", name: "removed", when: always, why: "says nothing of what is in a block" },
    Exception { of: "receipts", name: "blockTimestamp", when: always, why: "not all nodes say it again" },
    Exception { of: "logs", name: "blockTimestamp", when: always, why: "not all nodes say it again" },
    Exception {
        of: "receipts",
        name: "contractAddress",
        // Null, that is: the member itself must be there.
        when: |receipt| receipt["to"].is_null() && receipt["status"] != "0x1",
        why: "of what failed to be created some nodes give no address, and before Byzantium nobody can tell",
    },
];

fn always(_: &Value) -> bool {
    true
}

fn is_legacy(transaction: &Value) -> bool {
    transaction["type"] == "0x0" || transaction["type"].is_null()
}

/// A true block with its receipts as one value, and all places in it.
struct Truth {
    name: String,
    whole: Value,
    block: Verified<Block>,
    places: Vec<Path>,
}

impl Truth {
    fn new(name: &str, block: &[u8], receipts: Option<&[u8]>) -> Self {
        let proved = super::block(block).unwrap();
        let read = |bytes| serde_json::from_slice::<Value>(bytes).unwrap();
        let whole = json!({ "block": read(block), "receipts": receipts.map(read) });
        let mut places = places(&whole);
        places.retain(|path| path.len() > 1);
        Self { name: name.to_owned(), whole, block: proved, places }
    }

    fn of(fork: Fork) -> Self {
        let vector = vectors::vector(fork);
        Self::new(vector.name, vector.block.as_bytes(), Some(vector.receipts.as_bytes()))
    }

    /// Of each member of each kind of transaction, receipt or log one that is there.
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

    /// Does this pass all checks?
    fn passes(&self, changed: &Value) -> bool {
        let other = (changed["block"] != self.whole["block"]).then(|| changed["block"].to_string());
        let other = other.map(|text| super::block(text.as_bytes())).transpose();
        let (receipts, Ok(other)) = (&changed["receipts"], other) else { return false };
        let block = other.as_ref().unwrap_or(&self.block);
        receipts.is_null() || super::receipts(receipts.to_string().as_bytes(), block).is_ok()
    }
}

/// Of every fork, of the development chain, and real ones.
static TRUTHS: LazyLock<Vec<Truth>> = LazyLock::new(|| {
    let mut truths: Vec<_> = Fork::ALL.into_iter().map(Truth::of).collect();
    let chain = DevChain::new(Config::default());
    chain.mine_many(2, 9);
    for number in 0..=2 {
        let hash = chain.hash_at(number).unwrap();
        let (full, all) = (chain.block_json(hash, true).unwrap(), chain.receipts_json(hash).unwrap());
        truths.push(Truth::new(&format!("development block {number}"), &full, Some(&all)));
    }
    for real in data::real("whatever is changed in real blocks is refused") {
        truths.push(Truth::new(&real.name, &real.block, real.receipts.as_deref()));
    }
    truths
});

/// Is this still all that can be proved? `path` is what was changed in `before`.
fn excepted(before: &Value, after: &Value, path: &[Step]) -> bool {
    let (of, name) = match names(path)[..] {
        // Which uncles they are is not proved, only that there are some.
        ["block", "uncles"] => {
            let are_hashes = |uncles: &Vec<Value>| {
                uncles.iter().all(|hash| hash.as_str().is_some_and(|hash| hash.len() == 66))
                    && matches!(&uncles[..], [_]) | matches!(&uncles[..], [one, two] if one != two)
            };
            return [before, after]
                .iter()
                .all(|all| all["block"]["uncles"].as_array().is_some_and(are_hashes));
        }
        ["block", name] => ("block", name),
        ["receipts", "logs", name] => ("logs", name),
        ["block", list, name] => (list, name),
        ["receipts", name] => ("receipts", name),
        _ => return false,
    };
    let (object, changed) = (at(before, &path[..path.len() - 1]), at(after, &path[..path.len() - 1]));
    let holds = |exception: &Exception| {
        (exception.of, exception.name) == (of, name) && (exception.when)(object) && !exception.why.is_empty()
    };
    // A null is the same as nothing, but for what all nodes give, if only as null.
    let gone = changed[name].is_null() && (name != "contractAddress" || changed.get(name).is_some());
    UNPROVED.iter().any(holds) || (gone && OPTIONAL.iter().any(holds))
}

/// Tries one change.
///
/// # Panics
/// If it passes and should not, or the other way round.
fn try_out(truth: &Truth, path: &[Step], mutation: Mutation) {
    let Some(changed) = mutation.apply(&truth.whole, path) else { return };
    let expected = excepted(&truth.whole, &changed, path);
    let place = || format!("{}: {mutation:?} of {path:?}, {}", truth.name, at(&truth.whole, path));
    assert_eq!(truth.passes(&changed), expected, "{}", place());
}

#[test]
fn every_member_of_a_block_of_every_fork_counts() {
    let middle = any_index();
    for truth in TRUTHS.iter().take(Fork::ALL.len()) {
        assert!(truth.passes(&truth.whole));
        truth.one_of_each().par_iter().for_each(|path| {
            try_out(truth, path, Mutation::Change(middle));
            try_out(truth, path, Mutation::Drop);
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn whatever_is_changed_is_refused(truth: Index, place: Index, mutation in Mutation::any()) {
        let truth = truth.get(&TRUTHS);
        try_out(truth, &truth.places[place.index(truth.places.len())], mutation);
    }
}

/// Some position, always the same.
fn any_index() -> Index {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    any::<Index>().new_tree(&mut TestRunner::deterministic()).unwrap().current()
}
