//! Logs: calls of `eth_getLogs`, and their true answers by a naive search of the receipts.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use tokio::time::Instant;

use super::{Bound, Call, Hash, State, Subject, World, truth::without_unproved};
use crate::model::step::{LogQuery, Pick, Place, Question, Span};

/// A log in the receipts of a block.
pub struct TrueLog {
    text: String,
    value: Value,
}

#[derive(Deserialize)]
struct Receipt<'a> {
    #[serde(borrow)]
    logs: Vec<&'a RawValue>,
}

// ## Calls

impl World {
    pub fn log_call(&self, query: LogQuery) -> Call {
        let head = self.chain.head().number;
        let named = |bound: Bound| match bound {
            Bound::Number(number) => json!(format!("{number:#x}")),
            Bound::Tag(Place::Safe) => json!("safe"),
            Bound::Tag(Place::Finalized) => json!("finalized"),
            Bound::Tag(_) => json!("latest"),
        };
        let range = |from: Bound, to: Bound| {
            (json!({ "fromBlock": named(from), "toBlock": named(to) }), Subject::Range(from, to))
        };
        let (mut filter, subject) = match query.span {
            Span::Hash(choice) => {
                // Half of the choices fall on blocks with logs.
                let with_logs = self.blocks_with_logs(|_| true);
                let is_any = with_logs.is_empty() || !choice.is_multiple_of(2);
                let hash = newest(if is_any { &self.blocks } else { &with_logs }, choice / 2).unwrap();
                (json!({ "blockHash": format!("{hash:#x}") }), Subject::Block(hash))
            }
            Span::Numbers { last, before } => {
                let last = head.saturating_add_signed(-i64::from(last));
                range(Bound::Number(last.saturating_sub(u64::from(before))), Bound::Number(last))
            }
            Span::Around { block, before, after } => {
                let with_logs = self.blocks_with_logs(|block| self.chain.is_canonical(block));
                let number = newest(&with_logs, block).and_then(|block| self.number(block)).unwrap_or(head);
                let last = (number + u64::from(after)).min(head);
                range(Bound::Number(number.saturating_sub(u64::from(before))), Bound::Number(last))
            }
            Span::UpTo { before, tag } => {
                range(Bound::Number(head.saturating_sub(u64::from(before))), Bound::Tag(tag))
            }
            Span::Tags { from, to } => range(Bound::Tag(from), Bound::Tag(to)),
        };
        self.add_filter(&mut filter, query, subject);
        let question = Question::Logs(query);
        Call { question, method: "eth_getLogs", params: json!([filter]), subject }
    }

    fn add_filter(&self, params: &mut Value, query: LogQuery, subject: Subject) {
        let filter = query.filter;
        let example = usize::from(filter.example);
        let near = self.logs_of_all(&self.blocks_now(subject));
        let all = self.logs_of_all(&self.blocks);
        let logs = if near.is_empty() || example.is_multiple_of(4) { &all } else { &near };
        let own = (!logs.is_empty()).then(|| &logs[example / 4 % logs.len()].value);
        let absent = |name: &str| if name == "/address" { "ee".repeat(20) } else { "ee".repeat(32) };
        let list = |name: &str, pick: Pick| {
            let member = |log: Option<&Value>| match log.and_then(|log| log.pointer(name)) {
                Some(found) => found.clone(),
                None => json!(format!("0x{}", absent(name))),
            };
            let other = |choice: u16| all.get(usize::from(choice) % all.len().max(1)).map(|log| &log.value);
            match pick {
                Pick::Any => Value::Null,
                Pick::Empty => json!([]),
                Pick::Own => member(own),
                Pick::OwnOr(choice) => json!([member(own), member(other(choice))]),
                Pick::Other(choice) => json!([member(other(choice))]),
                Pick::Absent => member(None),
            }
        };
        params["address"] = list("/address", filter.address);
        if let (Value::String(address), true) = (&mut params["address"], example % 3 == 1) {
            // Clients send addresses with a checksum in the case of their digits.
            *address = format!("0x{}", address[2..].to_uppercase());
        }
        if filter.positions > 0 {
            let topics = filter.topics.iter().take(filter.positions).enumerate();
            params["topics"] = topics.map(|(at, pick)| list(&format!("/topics/{at}"), *pick)).collect();
        }
    }

    /// Returns the blocks of a call in the current state of the chain.
    pub(super) fn blocks_now(&self, subject: Subject) -> Vec<Hash> {
        let state = self.states.last().unwrap();
        match subject {
            Subject::Block(hash) => vec![hash],
            Subject::Range(from, to) => {
                let bounds = bounds_in(state, from).zip(bounds_in(state, to));
                bounds.map_or_else(Vec::new, |(from, to)| range_of(state, from, to).to_vec())
            }
            _ => Vec::new(),
        }
    }

    fn blocks_with_logs(&self, is_wanted: impl Fn(Hash) -> bool) -> Vec<Hash> {
        let has_logs = |block: &&Hash| !self.logs_of(**block).is_empty() && is_wanted(**block);
        self.blocks.iter().filter(has_logs).copied().collect()
    }

    fn logs_of_all(&self, blocks: &[Hash]) -> Vec<LogRef> {
        let logs = blocks.iter().map(|block| self.logs_of(*block));
        logs.flat_map(|logs| (0..logs.len()).map(move |at| LogRef(Arc::clone(&logs), at))).collect()
    }

    /// Returns the logs of a block, canonical or not, in order.
    fn logs_of(&self, block: Hash) -> Arc<Vec<TrueLog>> {
        let read = || {
            let receipts = self.receipts(block).unwrap_or(Bytes::from_static(b"[]"));
            let receipts: Vec<Receipt<'_>> = serde_json::from_slice(&receipts).unwrap();
            let logs = receipts.iter().flat_map(|receipt| &receipt.logs).map(|log| TrueLog {
                text: log.get().to_owned(),
                value: serde_json::from_str(log.get()).unwrap(),
            });
            Arc::new(logs.collect::<Vec<_>>())
        };
        Arc::clone(self.logs.borrow_mut().entry(block).or_insert_with(read))
    }
}

/// Returns one of these blocks. Half of the choices fall on the newest blocks, which reorgs affect.
fn newest(blocks: &[Hash], choice: u16) -> Option<Hash> {
    let place = usize::from(choice / 2);
    let count = blocks.len();
    if choice.is_multiple_of(2) {
        return blocks.get(count.checked_sub(1)? - place % count.min(6)).copied();
    }
    blocks.get(place.checked_rem(count)?).copied()
}

/// One log of a block.
struct LogRef(Arc<Vec<TrueLog>>, usize);

impl std::ops::Deref for LogRef {
    type Target = TrueLog;

    fn deref(&self) -> &TrueLog {
        &self.0[self.1]
    }
}

// ## Answers

impl World {
    /// Returns whether `result` is the logs of the block with this hash.
    pub fn are_logs_of(&self, call: &Call, block: Hash, result: &Bytes) -> bool {
        self.found(call, &[block]) == *result
    }

    /// Returns whether `result` is the logs of a range up to the only tag of the call, if the tag means this block.
    pub fn are_logs_up_to(&self, call: &Call, last: Hash, result: &Bytes) -> bool {
        let Subject::Range(from, _) = call.subject else { return false };
        let Some(number) = self.number(last) else { return false };
        let from = if let Bound::Number(from) = from { from } else { number };
        let parent = |block: &Hash| Some(self.chain.parent_of(*block)?.hash);
        let count = usize::try_from((number + 1).saturating_sub(from)).unwrap();
        let mut blocks: Vec<_> = std::iter::successors(Some(last), parent).take(count).collect();
        blocks.reverse();
        self.found(call, &blocks) == *result
    }

    /// Returns whether a tag of a batch determines the answer to this call by range. The node may decide which logs match,
    /// whether a range is reversed, and search a run of several blocks, and none of these depends on the tag alone.
    pub fn is_pinned(&self, call: &Call, since: Instant) -> bool {
        let Subject::Range(from, to) = call.subject else { return true };
        let is_short = |state: &State| {
            let bounds = bounds_in(state, from).zip(bounds_in(state, to));
            bounds.is_some_and(|(from, to)| from <= to && to <= from + 1)
        };
        let last = call.params[0]["topics"].as_array().and_then(|topics| topics.last());
        let is_clear =
            last.is_none_or(|last| last.is_string() || last.as_array().is_some_and(|any| !any.is_empty()));
        is_clear && self.states[self.last_at(since)..].iter().all(is_short)
    }

    /// Returns whether the node would have answered a call by range with `result` in this state, if `safe` and
    /// `finalized` meant a block of one of the states `tags`.
    pub fn allows_range<'a>(
        &self,
        call: &Call,
        state: &State,
        tags: impl IntoIterator<Item = &'a State> + Clone,
        result: &Bytes,
    ) -> bool {
        let Subject::Range(from, to) = call.subject else { return false };
        let meanings = |bound: Bound| match bound {
            Bound::Tag(Place::Safe | Place::Finalized) => {
                tags.clone().into_iter().map(|state| bounds_in(state, bound)).collect()
            }
            Bound::Tag(_) | Bound::Number(_) => vec![bounds_in(state, bound)],
        };
        let pairs =
            meanings(from).into_iter().flat_map(|from| meanings(to).into_iter().map(move |to| (from, to)));
        pairs.into_iter().any(|pair| match pair {
            (Some(from), Some(to)) if from <= to => self.found(call, range_of(state, from, to)) == *result,
            // The tag means no block, or the range is reversed.
            _ => is_error(result),
        })
    }

    /// Returns whether the node would have answered with `result` in one of these states, if `safe` or `finalized` meant
    /// the block of another tag, because a batch has them in order.
    pub fn allows_ordered(&self, call: &Call, states: &[&State], result: &Bytes) -> bool {
        // `latest` need not follow a node that lags.
        let heads = self.states.iter().map(|state| Some(state.visible.len() as u64 - 1));
        let tags = states.iter().flat_map(|state| [state.safe, state.finalized]).chain(heads);
        // The order lowers `finalized` and `safe`, and raises `safe` to `finalized`.
        let names_safe = call.tags().iter().any(|tag| matches!(tag, Place::Safe));
        let shown = states.iter().flat_map(|state| [state.finalized, state.safe.filter(|_| names_safe)]);
        let highest = shown.max().flatten();
        let tags: Vec<_> = tags.filter(|tag| tag.is_some() && *tag <= highest).collect();
        call.has_its_own_time()
            && states.iter().any(|state| {
                let is_visible = |tag: &&Option<u64>| **tag < Some(state.visible.len() as u64);
                tags.iter().filter(is_visible).any(|tag| {
                    let ordered = State { safe: *tag, finalized: *tag, ..(*state).clone() };
                    self.allows(call, &ordered, result) || self.allows_range(call, state, [&ordered], result)
                })
            })
    }

    /// Returns whether `result` contains only logs of this range, of blocks in these states. The logs of other blocks may be
    /// missing. Tags may mean other blocks.
    pub fn allows_part(&self, call: &Call, states: &[&State], result: &Bytes) -> bool {
        let Subject::Range(from, to) = call.subject else { return false };
        let Ok(told) = serde_json::from_slice::<Vec<Value>>(result) else { return false };
        let named = |log: &Value| log["blockHash"].as_str().and_then(|hash| hash.parse().ok());
        let Some(mut blocks) = told.iter().map(named).collect::<Option<Vec<Hash>>>() else { return false };
        blocks.dedup();
        let first = states.iter().filter_map(|state| bounds_in(state, from)).min();
        // The proxy may keep an earlier head.
        let last = self.states.iter().filter_map(|state| bounds_in(state, to)).max();
        let is_shown = |block: &Hash| {
            let number = self.number(*block);
            first <= number && number <= last && states.iter().any(|state| state.visible.contains(block))
        };
        blocks.iter().all(is_shown)
            && blocks.is_sorted_by(|one, other| self.number(*one) < self.number(*other))
            && self.found(call, &blocks) == *result
    }

    /// Returns whether `result` is the true answer for a branch that exists or existed.
    pub fn is_true_of_a_branch(&self, call: &Call, result: &Value) -> bool {
        let Value::Array(told) = result else { return false };
        match call.subject {
            Subject::Block(block) => self.rest_before(call, block, told).is_some_and(<[_]>::is_empty),
            Subject::Range(from, to) => {
                self.blocks.iter().any(|last| self.is_true_up_to(call, from, to, *last, told, false))
            }
            _ => false,
        }
    }

    /// Returns whether `result` is the true answer of a range for a branch, except that blocks may be left out.
    pub fn are_logs_of_some_blocks(&self, call: &Call, result: &Bytes) -> bool {
        let Subject::Range(from, to) = call.subject else { return false };
        let Ok(told) = serde_json::from_slice::<Vec<Value>>(result) else { return false };
        self.blocks.iter().any(|last| self.is_true_up_to(call, from, to, *last, &told, true))
    }

    /// Returns whether these are the logs of the branch that ends with `last`, if the call means this block. With `gaps`,
    /// all logs of a block may be absent.
    fn is_true_up_to(
        &self,
        call: &Call,
        from: Bound,
        to: Bound,
        last: Hash,
        told: &[Value],
        gaps: bool,
    ) -> bool {
        let height = |block: Hash| self.chain.parent_of(block).map_or(0, |parent| parent.number + 1);
        let mut number = height(last);
        if matches!(to, Bound::Number(to) if to != number) {
            return false;
        }
        let (mut block, mut told) = (last, told);
        loop {
            match self.rest_before(call, block, told) {
                Some(rest) => told = rest,
                None if gaps => {}
                None => return false,
            }
            let is_first = match from {
                Bound::Number(from) => number <= from,
                Bound::Tag(_) => told.is_empty(),
            };
            if is_first {
                let is_reversed = matches!(from, Bound::Number(from) if number < from);
                return told.is_empty() && !is_reversed;
            }
            let Some(parent) = self.chain.parent_of(block) else { return false };
            (block, number) = (parent.hash, parent.number);
        }
    }

    /// Returns the logs before those of `block`, if the last logs are those of `block`.
    fn rest_before<'a>(&self, call: &Call, block: Hash, told: &'a [Value]) -> Option<&'a [Value]> {
        let logs = self.logs_of(block);
        let filter = &call.params[0];
        let of_block: Vec<_> = logs.iter().filter(|log| self.matches(filter, &log.value)).collect();
        let (rest, last) = told.split_at(told.len().checked_sub(of_block.len())?);
        let is_same = |(told, log): (&Value, &&TrueLog)| without_unproved(told.clone()) == log.value;
        last.iter().zip(&of_block).all(is_same).then_some(rest)
    }

    /// Returns whether a log matches a filter. With more positions than the log has topics, the development chain accepts
    /// the log if the further positions accept any topic, and geth does not.
    fn matches(&self, filter: &Value, log: &Value) -> bool {
        let is_same = |wanted: &Value, value: &Value| {
            let (wanted, value) = (wanted.as_str().unwrap(), value.as_str().unwrap());
            wanted.eq_ignore_ascii_case(value)
        };
        let accepts = |wanted: &Value, value: Option<&Value>| match wanted {
            Value::Null => true,
            Value::Array(any) => {
                any.is_empty() || value.is_some_and(|value| any.iter().any(|wanted| is_same(wanted, value)))
            }
            one => value.is_some_and(|value| is_same(one, value)),
        };
        let positions = filter["topics"].as_array().map_or(&[][..], Vec::as_slice);
        let is_long_enough = log["topics"].as_array().unwrap().len() >= positions.len();
        accepts(&filter["address"], log.get("address"))
            && positions.iter().enumerate().all(|(at, wanted)| accepts(wanted, log["topics"].get(at)))
            && (is_long_enough || !self.matches_as_geth)
    }

    /// Returns the logs of these blocks that match the filter of the call.
    fn found(&self, call: &Call, blocks: &[Hash]) -> Bytes {
        let filter = &call.params[0];
        let mut texts = Vec::new();
        for block in blocks {
            let logs = self.logs_of(*block);
            texts.extend(
                logs.iter().filter(|log| self.matches(filter, &log.value)).map(|log| log.text.clone()),
            );
        }
        format!("[{}]", texts.join(",")).into()
    }
}

/// Returns the number that a bound means in a state. A number may be above the head.
pub fn bounds_in(state: &State, bound: Bound) -> Option<u64> {
    match bound {
        Bound::Number(number) => Some(number),
        Bound::Tag(Place::Safe) => state.safe,
        Bound::Tag(Place::Finalized) => state.finalized,
        Bound::Tag(_) => Some(state.visible.len() as u64 - 1),
    }
}

/// Returns the visible blocks with these numbers.
fn range_of(state: &State, from: u64, to: u64) -> &[Hash] {
    let end = usize::try_from(to).unwrap().saturating_add(1).min(state.visible.len());
    state.visible.get(usize::try_from(from).unwrap()..end).unwrap_or_default()
}

pub fn is_error(result: &Bytes) -> bool {
    result.starts_with(b"{\"code\"")
}
