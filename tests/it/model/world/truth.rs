//! Comparison of answers with the states of the node.

use std::sync::Arc;

use alloy_primitives::hex;
use bytes::Bytes;
use holdfast::{eth::header_of_block, verify::prove::raw};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Bound, Call, Hash, State, Subject, World, bounds_in, logs::is_error};
use crate::model::step::{Place, Question};

impl World {
    /// Returns whether the node would have answered with `result` in this state.
    pub fn allows(&self, call: &Call, state: &State, result: &Bytes) -> bool {
        let canonical = |number: u64| state.visible.get(usize::try_from(number).unwrap()).copied();
        let block = match call.subject {
            Subject::Number(number) => canonical(number),
            Subject::Tag(Place::Latest) => state.visible.last().copied(),
            Subject::Tag(Place::Safe) => match state.safe {
                Some(number) => canonical(number),
                None => return is_nothing_or_error(call, result),
            },
            Subject::Tag(Place::Finalized) => match state.finalized {
                Some(number) => canonical(number),
                None => return is_nothing_or_error(call, result),
            },
            Subject::Tag(Place::Earliest | Place::Below(_) | Place::At(_) | Place::Hash(_)) => canonical(0),
            // Any answer is allowed, as long as it does not affect other answers.
            Subject::Tag(Place::Pending) => return true,
            // The node serves canonical blocks and orphans by hash. It answers `null` only if it lags, denies
            // orphans, or has restarted since.
            Subject::Block(hash) => {
                let denied = !self.chain.config().keep_orphans && !state.visible.contains(&hash);
                let hidden = state.lag > 0 || denied || self.archive.contains_key(&hash);
                if call.asks_for_logs() {
                    return (hidden && is_error(result)) || self.are_logs_of(call, hash, result);
                }
                return (hidden && call.is_nothing(result))
                    || self.cut(call.question, hash).is_some_and(|truth| truth == *result);
            }
            Subject::Nothing => {
                let number = state.visible.len() - 1;
                return *result == format!("\"{number:#x}\"");
            }
            Subject::Transaction(hash) => return self.allows_transaction(call, state, hash, result),
            Subject::Range(..) => {
                return self.allows_range(call, state, std::slice::from_ref(state), result);
            }
        };
        match block {
            None => *result == self.absent(call, state),
            Some(hash) => {
                self.cut(call.question, hash).map_or(call.is_nothing(result), |truth| truth == *result)
            }
        }
    }

    /// Returns whether `result` is the transaction or receipt of this state, except for the block hash.
    pub fn allows_misplaced(&self, call: &Call, state: &State, result: &Bytes) -> bool {
        let (Subject::Transaction(hash), Some((_, block))) = (call.subject, self.meant(call, state)) else {
            return false;
        };
        let Ok(value) = serde_json::from_slice::<Value>(result) else { return false };
        let Some(told) = value["blockHash"].as_str() else { return false };
        let Ok(named) = told.parse::<Hash>() else { return false };
        // If the proxy has fetched the block that the lie named, the answer is the transaction in that block.
        if self.number(named).is_some_and(|number| self.number(block) == Some(number))
            && self.is_of_transaction(call, hash, named, result)
        {
            return true;
        }
        let renamed = String::from_utf8_lossy(result).replace(told, &format!("{block:#x}"));
        let index = self.transactions_of(block).iter().position(|found| *found == hash).unwrap();
        let truth = match call.question {
            Question::Receipt(_) => self.receipt(block, index),
            _ => self.transaction(block, index),
        };
        // A lie may change the order of members.
        let value = |text: &[u8]| serde_json::from_slice::<Value>(text).unwrap();
        truth.is_some_and(|truth| value(&truth) == value(renamed.as_bytes()))
    }

    /// Returns whether `result` is this transaction in this block, or its receipt.
    fn is_of_transaction(&self, call: &Call, transaction: Hash, block: Hash, result: &Bytes) -> bool {
        let index = self.transactions_of(block).iter().position(|found| *found == transaction);
        let truth = index.and_then(|index| match call.question {
            Question::Receipt(_) => self.receipt(block, index),
            _ => self.transaction(block, index),
        });
        truth.is_some_and(|truth| truth == *result)
    }

    /// Returns whether `result` answers a call by tag, if the tag means this block.
    pub fn is_of_block(&self, call: &Call, block: Hash, result: &Bytes) -> bool {
        match call.subject {
            Subject::Nothing => {
                self.number(block).is_some_and(|number| *result == format!("\"{number:#x}\""))
            }
            Subject::Range(..) => self.are_logs_up_to(call, block, result),
            _ => self.cut(call.question, block).is_some_and(|truth| truth == *result),
        }
    }

    /// Returns whether this block has an answer to a call that names the block, or a transaction in it.
    pub fn is_in(&self, call: &Call, number: u64, block: Hash) -> bool {
        let len = || self.transactions_of(block).len();
        let named = match call.subject {
            Subject::Number(named) => named == number,
            Subject::Block(named) => named == block,
            Subject::Transaction(hash) => self.transactions_of(block).contains(&hash),
            Subject::Tag(_) | Subject::Range(..) | Subject::Nothing => false,
        };
        let is_there = match call.question {
            Question::TransactionAtNumber(_, index)
            | Question::TransactionAtHash(_, index)
            | Question::RawTransactionAtNumber(_, index) => usize::from(index) < len(),
            Question::BlockReceipts(_) => len() > 0,
            _ => true,
        };
        named && is_there
    }

    /// Returns whether `ancestor` is `block` or one of its ancestors.
    pub fn is_ancestor(&self, ancestor: Hash, block: Hash) -> bool {
        let mut branch = std::iter::successors(Some(block), |block| Some(self.chain.parent_of(*block)?.hash));
        branch.any(|block| block == ancestor)
    }

    /// Returns the number and hash of the block that a call means in a state, or of the last block of a range. `None` for
    /// calls by block hash, which do not depend on the state.
    pub fn meant(&self, call: &Call, state: &State) -> Option<(u64, Hash)> {
        let at = |number: u64| Some((number, *state.visible.get(usize::try_from(number).ok()?)?));
        match call.subject {
            Subject::Number(number) => at(number),
            Subject::Tag(Place::Safe) => at(state.safe?),
            Subject::Tag(Place::Finalized) => at(state.finalized?),
            Subject::Tag(Place::Latest) | Subject::Nothing => at(state.visible.len() as u64 - 1),
            Subject::Tag(_) | Subject::Block(_) => None,
            Subject::Range(_, to) => at(bounds_in(state, to)?.min(state.visible.len() as u64 - 1)),
            Subject::Transaction(hash) => {
                let holds = |block: &Hash| self.transactions_of(*block).contains(&hash);
                at(state.visible.iter().rposition(holds)? as u64)
            }
        }
    }

    /// Returns whether `result` is the answer of this state about a number that was final in it and that the node showed.
    /// Only calls by number, range of numbers or transaction have final answers.
    pub fn allows_as_final(&self, call: &Call, state: &State, result: &Bytes) -> bool {
        let is_final = |number: u64| number <= state.called_final && number < state.visible.len() as u64;
        let is_about_final = match call.subject {
            Subject::Number(number) => is_final(number),
            Subject::Transaction(hash) => {
                let stands = |block: &Hash| self.transactions_of(*block).contains(&hash);
                state.visible.iter().zip(0..).any(|(block, number)| is_final(number) && stands(block))
            }
            Subject::Range(Bound::Number(_), Bound::Number(to)) => is_final(to),
            Subject::Tag(_) | Subject::Block(_) | Subject::Range(..) | Subject::Nothing => false,
        };
        is_about_final && self.allows(call, state, result)
    }

    /// Returns whether `result` is true content of a block, canonical or not, that matches the call.
    pub fn is_true(&self, call: &Call, result: &Bytes) -> bool {
        let Ok(value) = serde_json::from_slice::<Value>(result) else { return false };
        if call.asks_for_logs() {
            return self.is_true_of_a_branch(call, &value);
        }
        let value = without_unproved(value);
        if call.is_nothing(result) || matches!(call.subject, Subject::Tag(Place::Pending) | Subject::Nothing)
        {
            return true;
        }
        let hash = |member: &Value| serde_json::from_value::<Hash>(member.clone()).ok();
        let same = |truth: Option<Bytes>| {
            truth.is_some_and(|truth| without_unproved(serde_json::from_slice(&truth).unwrap()) == value)
        };
        let is_asked_for = |block: Hash| match call.subject {
            Subject::Number(number) => self.number(block) == Some(number),
            Subject::Block(asked) => block == asked,
            Subject::Tag(_) | Subject::Transaction(_) | Subject::Range(..) | Subject::Nothing => true,
        };
        let index = || {
            let index = value["transactionIndex"].as_str()?.strip_prefix("0x")?;
            usize::from_str_radix(index, 16).ok()
        };
        let somewhere = |is_so: &dyn Fn(Hash) -> bool| {
            self.blocks.iter().any(|block| is_asked_for(*block) && is_so(*block))
        };
        match call.question {
            Question::BlockByNumber(_, full) | Question::BlockByHash(_, full) => {
                hash(&value["hash"]).is_some_and(|block| is_asked_for(block) && same(self.block(block, full)))
            }
            Question::TransactionAtNumber(_, asked) | Question::TransactionAtHash(_, asked) => {
                let block = hash(&value["blockHash"]).filter(|block| is_asked_for(*block));
                block.is_some_and(|block| same(self.transaction(block, usize::from(asked))))
            }
            Question::TransactionByHash(_) | Question::Receipt(_) => {
                let (Some(block), Some(index)) = (hash(&value["blockHash"]), index()) else { return false };
                let Subject::Transaction(asked) = call.subject else { return false };
                let truth = match call.question {
                    Question::Receipt(_) => self.receipt(block, index),
                    _ => self.transaction(block, index),
                };
                self.transactions_of(block).get(index) == Some(&asked) && same(truth)
            }
            Question::BlockReceipts(_)
            | Question::CountByNumber(_)
            | Question::UncleCount(_)
            | Question::Header(_)
            | Question::RawReceipts(_)
            | Question::RawTransactionAtNumber(..) => {
                somewhere(&|block| same(self.cut(call.question, block)))
            }
            Question::BlockNumber | Question::Logs(_) => true,
        }
    }

    pub fn number(&self, block: Hash) -> Option<u64> {
        let block: Value = serde_json::from_slice(&self.block(block, false)?).ok()?;
        u64::from_str_radix(block["number"].as_str()?.strip_prefix("0x")?, 16).ok()
    }

    fn allows_transaction(&self, call: &Call, state: &State, hash: Hash, result: &Bytes) -> bool {
        for block in state.visible.iter().rev() {
            if let Some(index) = self.transactions_of(*block).iter().position(|found| *found == hash) {
                let truth = match call.question {
                    Question::Receipt(_) => self.receipt(*block, index),
                    _ => self.transaction(*block, index),
                };
                return truth.is_some_and(|truth| truth == *result);
            }
        }
        let pending =
            matches!(call.question, Question::TransactionByHash(_)) && state.mempool.contains(&hash);
        if pending {
            let value: Value = serde_json::from_slice(result).unwrap();
            return value["hash"] == format!("{hash:#x}") && value["blockHash"].is_null();
        }
        result == "null"
    }

    /// Returns the answer of the node about a number above its head.
    fn absent(&self, call: &Call, state: &State) -> Bytes {
        let counts = matches!(call.question, Question::CountByNumber(_) | Question::UncleCount(_));
        match call.subject {
            Subject::Number(number) if counts && self.chain.config().range_errors => {
                let head = state.visible.len() - 1;
                let message =
                    format!("BlockOutOfRangeError: block height is {head} but requested was {number}");
                json!({ "code": -32602, "message": message }).to_string().into()
            }
            _ => call.question.nothing().into(),
        }
    }

    /// Returns the answer to a question about a block, for this block.
    fn cut(&self, question: Question, block: Hash) -> Option<Bytes> {
        let content = match question {
            Question::BlockByNumber(_, full) | Question::BlockByHash(_, full) => self.block(block, full),
            Question::TransactionAtNumber(_, index) | Question::TransactionAtHash(_, index) => {
                self.transaction(block, usize::from(index))
            }
            Question::BlockReceipts(_) => self.receipts(block),
            Question::Header(_) => {
                let block = self.block(block, false);
                block.map(|block| header_of_block(std::str::from_utf8(&block).unwrap()).unwrap())
            }
            Question::RawReceipts(_) => {
                self.block(block, true).zip(self.receipts(block)).map(|(block, all)| {
                    let encoded = raw::receipts(&all, &block).unwrap();
                    json!(encoded.iter().map(hex::encode_prefixed).collect::<Vec<_>>()).to_string().into()
                })
            }
            Question::RawTransactionAtNumber(_, index) => {
                self.transaction(block, usize::from(index)).map(|transaction| {
                    let encoded = raw::transaction(&transaction).unwrap();
                    json!(hex::encode_prefixed(encoded)).to_string().into()
                })
            }
            Question::CountByNumber(_) => {
                Some(format!("\"{:#x}\"", self.transactions_of(block).len()).into())
            }
            Question::UncleCount(_) => Some(Bytes::from_static(b"\"0x0\"")),
            Question::TransactionByHash(_)
            | Question::Receipt(_)
            | Question::BlockNumber
            | Question::Logs(_) => None,
        };
        content.or_else(|| Some(question.nothing().into()))
    }

    fn block(&self, block: Hash, full: bool) -> Option<Bytes> {
        match self.archive.get(&block) {
            Some(archived) => Some(if full { &archived.full } else { &archived.with_hashes }.clone()),
            None => self.chain.block_json(block, full),
        }
    }

    pub fn receipts(&self, block: Hash) -> Option<Bytes> {
        match self.archive.get(&block) {
            Some(archived) => Some(archived.receipts.clone()),
            None => self.chain.receipts_json(block),
        }
    }

    fn transactions_of(&self, block: Hash) -> Vec<Hash> {
        match self.archive.get(&block) {
            Some(archived) => archived.transactions.iter().map(|(hash, _, _)| *hash).collect(),
            None => self.chain.transactions_of(block),
        }
    }

    fn transaction(&self, block: Hash, index: usize) -> Option<Bytes> {
        match self.archive.get(&block) {
            Some(archived) => Some(archived.transactions.get(index)?.1.clone()),
            None => self.chain.transaction_json(block, index),
        }
    }

    fn receipt(&self, block: Hash, index: usize) -> Option<Bytes> {
        match self.archive.get(&block) {
            Some(archived) => Some(archived.transactions.get(index)?.2.clone()),
            None => self.chain.receipt_json(block, index),
        }
    }

    /// Returns whether `result` is about the head, if a block of one state is the head that is higher than the head of
    /// another state: a client was told of that block, and the proxy does not know the blocks above it yet.
    pub fn allows_between(&self, call: &Call, low: &State, high: &State, result: &Bytes) -> bool {
        let is_head = |length: usize| {
            let visible = Arc::new(high.visible[..length].to_vec());
            self.allows(call, &State { visible, ..high.clone() }, result)
        };
        call.names_the_head() && (low.visible.len() + 1..high.visible.len()).any(is_head)
    }

    /// Returns whether `result` is a head that the node showed before `until` and whose branch contains the head of
    /// this state. At `latest`, the proxy does not follow a node that returns to an older block of the same branch. The
    /// node also showed a head if it called that block safe or final.
    pub fn allows_as_head(&self, call: &Call, state: &State, until: Instant, result: &Bytes) -> bool {
        if !call.names_the_head() {
            return false;
        }
        let Some(visible) = state.visible.last() else { return false };
        self.states
            .iter()
            .filter(|earlier| earlier.since <= until)
            .flat_map(State::heads)
            .filter(|earlier| earlier.visible.contains(visible))
            .any(|earlier| {
                self.allows(call, &earlier, result) || self.allows_range(call, &earlier, &self.states, result)
            })
    }
}

fn is_nothing_or_error(call: &Call, result: &Bytes) -> bool {
    call.is_nothing(result) || result.starts_with(b"{\"code\"")
}

/// Removes the members that no proof covers: unknown members, and the contract of a failed creation, which only some
/// nodes name.
pub fn without_unproved(mut value: Value) -> Value {
    let items = match &mut value {
        Value::Array(items) => items.iter_mut().collect(),
        other => vec![other],
    };
    for members in items.into_iter().filter_map(Value::as_object_mut) {
        members.remove("strange");
        if members.get("status") == Some(&json!("0x0")) && members.get("to") == Some(&Value::Null) {
            members.insert("contractAddress".to_owned(), Value::Null);
        }
    }
    value
}
