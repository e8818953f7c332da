//! Turns a true result into an untrue one.

use super::{
    bend::bend,
    fault::Lie,
    logs,
    omit::{Omission, omit},
};
use crate::devchain::{
    chain::state::State,
    config::Config,
    content::{
        accounts::Cast,
        block::{Block, ChainRules},
        render::json,
        transactions::Forge,
    },
    rpc::args::Args,
};
use alloy_primitives::{B256, Bytes as Data, TxHash, keccak256};
use bytes::Bytes;
use serde_json::{Value, value::RawValue};
use std::sync::Arc;

/// The kind of a result, recognized by its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerShape {
    Block,
    Transaction,
    Receipt,
    Receipts,
    Logs,
    Other,
}

/// A true result, and the context that is needed to falsify it.
struct Teller<'a> {
    state: &'a State,
    shape: AnswerShape,
    full: bool,
    value: Value,
}

/// Name of a member that no block, transaction or receipt has.
const STRANGE: &str = "strange";

/// Number of transactions of a foreign block.
const FOREIGN_TRANSACTIONS: usize = 5;

/// Returns the answer that `lie` makes of `truth`, the answer to this call.
pub(in crate::devchain) fn tell(
    state: &mut State,
    lie: &Lie,
    truth: &Bytes,
    method: &str,
    params: Option<&RawValue>,
) -> Bytes {
    if logs::is_about_logs(lie) {
        let told = (method == "eth_getLogs").then(|| logs::tell(state, lie, truth, params)).flatten();
        return told.unwrap_or_else(|| truth.clone());
    }
    let Ok(value) = serde_json::from_slice::<Value>(truth) else {
        return truth.clone();
    };
    if value.is_null() {
        return truth.clone();
    }
    let full = Args::parse(params).and_then(|args| args.flag(1)).unwrap_or(false);
    let teller = Teller { state, shape: AnswerShape::of(&value), full, value };
    let told = match lie {
        Lie::WrongHash => teller.another(),
        Lie::EmptiedTransactions => teller.emptied(),
        Lie::Shortened => {
            let mut value = teller.value;
            value.as_array_mut().and_then(Vec::pop);
            Some(json(&value).into())
        }
        Lie::OtherReceipt => teller.other_receipt(),
        Lie::OrphanedReceipt => teller.orphaned_receipt().or_else(|| teller.other_receipt()),
        Lie::Misplaced { orphan } => teller.misplaced(*orphan),
        Lie::ForeignBlock => Some(teller.foreign()),
        Lie::Bent(choice) => Some(json(&bend(teller.value, *choice)).into()),
        Lie::Disguised(choice) => {
            let value = bend(teller.value, *choice);
            Some(Teller { value, ..teller }.changed(STRANGE, &Value::from("0x1")))
        }
        Lie::Dropped(choice) => Some(json(&omit(teller.value, Omission::Dropped, *choice)).into()),
        Lie::Nulled(choice) => Some(json(&omit(teller.value, Omission::Nulled, *choice)).into()),
        Lie::Everywhere(name, changed) => {
            let mut value = teller.value;
            change_everywhere(&mut value, name, changed);
            Some(json(&value).into())
        }
        Lie::Field(name, changed) => Some(teller.changed(name, changed)),
        Lie::MissingLog(_) | Lie::AddedLog { .. } | Lie::ShuffledLogs(_) | Lie::LaggingLogs(_) => None,
    };
    told.unwrap_or_else(|| truth.clone())
}

fn change_everywhere(value: &mut Value, name: &str, changed: &Value) {
    match value {
        Value::Object(members) => {
            for (known, member) in members {
                if known == name && !member.is_null() {
                    *member = changed.clone();
                } else {
                    change_everywhere(member, name, changed);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| change_everywhere(item, name, changed)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

// === impl AnswerShape ===

impl AnswerShape {
    fn of(value: &Value) -> Self {
        let has = |member| value.get(member).is_some();
        match value {
            Value::Object(_) if has("parentHash") => Self::Block,
            Value::Object(_) if has("cumulativeGasUsed") => Self::Receipt,
            Value::Object(_) if has("input") => Self::Transaction,
            Value::Array(items) if items.first().is_some_and(|item| item.get("logIndex").is_some()) => {
                Self::Logs
            }
            Value::Array(_) => Self::Receipts,
            _ => Self::Other,
        }
    }
}

// === impl Teller ===

impl Teller<'_> {
    /// Returns an object of the same kind from elsewhere on the chain, or from a foreign chain if there is no other.
    fn another(&self) -> Option<Bytes> {
        let block = self.block()?;
        let beside = match self.shape {
            AnswerShape::Transaction | AnswerShape::Receipt => self.neighbour_in(&block),
            _ => None,
        };
        let neighbour = || {
            let tree = &self.state.tree;
            let below = block.number().checked_sub(1).and_then(|number| tree.at(number));
            let neighbour = below.or_else(|| tree.at(block.number() + 1))?;
            self.cut(neighbour, 0)
        };
        Some(beside.or_else(neighbour).unwrap_or_else(|| self.foreign()))
    }

    fn emptied(&self) -> Option<Bytes> {
        match self.shape {
            AnswerShape::Block => {
                let mut block = self.value.clone();
                block["transactions"] = Value::Array(Vec::new());
                Some(json(&block).into())
            }
            AnswerShape::Receipts | AnswerShape::Logs => Some(Bytes::from_static(b"[]")),
            _ => None,
        }
    }

    fn other_receipt(&self) -> Option<Bytes> {
        match self.shape {
            AnswerShape::Receipt => self.another(),
            AnswerShape::Receipts => {
                let mut receipts = self.value.clone();
                let other = self.foreign_block().receipt_json(0)?;
                *receipts.get_mut(0)? = serde_json::from_slice(&other).ok()?;
                Some(json(&receipts).into())
            }
            _ => None,
        }
    }

    fn orphaned_receipt(&self) -> Option<Bytes> {
        let orphans = self.state.tree.orphans();
        match self.shape {
            AnswerShape::Receipt => {
                let tx: TxHash = self.member("transactionHash")?;
                orphans.iter().find_map(|orphan| {
                    let index = orphan.transactions.iter().position(|it| *it.tx_hash() == tx)?;
                    orphan.receipt_json(index)
                })
            }
            AnswerShape::Receipts => {
                let number = self.block()?.number();
                orphans.iter().find(|orphan| orphan.number() == number).map(|orphan| orphan.receipts_json())
            }
            _ => None,
        }
    }

    fn misplaced(&self, orphan: bool) -> Option<Bytes> {
        if !matches!(self.shape, AnswerShape::Transaction | AnswerShape::Receipt) {
            return None;
        }
        let block = self.block()?;
        let orphans = self.state.tree.orphans();
        let beside = orphans.iter().find(|orphan| orphan.number() == block.number()).filter(|_| orphan);
        let hash = beside.map_or_else(|| keccak256(block.hash()), |orphan| orphan.hash());
        let mut value = self.value.clone();
        change_everywhere(&mut value, "blockHash", &Value::from(format!("{hash:#x}")));
        Some(json(&value).into())
    }

    fn foreign(&self) -> Bytes {
        self.cut(&self.foreign_block(), 0).unwrap_or_else(|| json(&self.value).into())
    }

    fn changed(&self, name: &str, changed: &Value) -> Bytes {
        let mut value = self.value.clone();
        match &mut value {
            Value::Object(members) => drop(members.insert(name.to_owned(), changed.clone())),
            Value::Array(items) => {
                for members in items.iter_mut().filter_map(Value::as_object_mut) {
                    members.insert(name.to_owned(), changed.clone());
                }
            }
            scalar => *scalar = changed.clone(),
        }
        json(&value).into()
    }

    /// Returns the next transaction or receipt in the same block, if there is more than one.
    fn neighbour_in(&self, block: &Block) -> Option<Bytes> {
        let index = self.value.get("transactionIndex")?.as_str()?;
        let index = usize::from_str_radix(index.strip_prefix("0x")?, 16).ok()?;
        let other = (index + 1) % block.transactions.len().max(1);
        if other == index { None } else { self.cut(block, other) }
    }

    /// Returns the part of `block` that has the same kind as the true result.
    fn cut(&self, block: &Block, index: usize) -> Option<Bytes> {
        match self.shape {
            AnswerShape::Block if self.full => Some(block.full_json()),
            AnswerShape::Block => Some(block.hashes_json()),
            AnswerShape::Transaction => block.transaction_json(index),
            AnswerShape::Receipt => block.receipt_json(index),
            AnswerShape::Receipts => Some(block.receipts_json()),
            AnswerShape::Logs => Some(json(&block.logs()).into()),
            AnswerShape::Other => None,
        }
    }

    /// Returns the block that the true result is, or belongs to.
    fn block(&self) -> Option<Arc<Block>> {
        let hash: B256 = match self.shape {
            AnswerShape::Block => self.member("hash"),
            AnswerShape::Receipts | AnswerShape::Logs => {
                serde_json::from_value(self.value.get(0)?.get("blockHash")?.clone()).ok()
            }
            _ => self.member("blockHash"),
        }?;
        self.state.tree.get(hash).cloned()
    }

    /// Builds a block of a foreign chain, with the same number as the block of the true result.
    fn foreign_block(&self) -> Block {
        let number = self.block().map_or(1, |block| block.number());
        let ours = &self.state.rules.config;
        let config = Config { chain_id: ours.chain_id.wrapping_add(1), seed: !ours.seed, ..ours.clone() };
        let cast = Arc::new(Cast::new(config.seed));
        let mut forge = Forge::new(&config, Arc::clone(&cast));
        let rules = ChainRules { config, cast };
        let Some(parent) = number.checked_sub(1).map(|number| rules.root(number)) else {
            return rules.root(0);
        };
        let transactions = forge.make_many(&parent.world, &[], parent.next_prices(), FOREIGN_TRANSACTIONS);
        rules.child(&parent, transactions, Data::from_static(b"devchain/foreign"))
    }

    fn member<T: serde::de::DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_value(self.value.get(name)?.clone()).ok()
    }
}
