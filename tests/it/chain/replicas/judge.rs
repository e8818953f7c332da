//! Judges answers by the rules of the fuzz.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

use alloy_primitives::B256;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    call::{At, Call, SentCall, hash, number},
    nodes::Nodes,
};

/// Judges the answers of one run.
pub struct Judge {
    nodes: Arc<Nodes>,
    shown: Mutex<Shown>,
    report: Mutex<Report>,
}

/// Blocks that the proxy has shown.
#[derive(Default)]
struct Shown {
    /// Highest number that `finalized` meant.
    finalized: u64,
    /// When the proxy first showed each block.
    blocks: HashMap<B256, Instant>,
}

/// Result of a run.
#[derive(Default)]
pub struct Report {
    setting: String,
    answers: u64,
    /// Answers while a replica lacked the finalized block or showed an orphan at its number.
    pub contradicted: u64,
    /// Logs that a node searched, which the judge ignores.
    searched: u64,
    /// Number of errors by code.
    errors: BTreeMap<i64, u64>,
    /// Descriptions of wrong answers and of alarms.
    pub wrong: Vec<String>,
}

// === impl Report ===

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { setting, answers, contradicted, searched, errors, wrong } = self;
        write!(f, "{setting}: {answers} answers, {contradicted} while a replica contradicted F, ")?;
        write!(f, "{searched} logs not judged, errors {errors:?}, {} wrong", wrong.len())
    }
}

// === impl Judge ===

impl Judge {
    pub fn new(nodes: Arc<Nodes>, setting: String) -> Self {
        let report = Mutex::new(Report { setting, ..Report::default() });
        Self { nodes, shown: Mutex::default(), report }
    }

    /// Returns the highest finalized number that the proxy has shown.
    pub fn finalized(&self) -> u64 {
        self.shown.lock().finalized
    }

    /// Ends the run with this number of alarms and these forbidden log lines.
    pub fn report<'a>(&self, alarms: u64, log: impl Iterator<Item = &'a str>) -> Report {
        let mut report = std::mem::take(&mut *self.report.lock());
        report.wrong.extend((alarms > 0).then(|| format!("{alarms} alarms")));
        report.wrong.extend(log.map(str::to_owned));
        report
    }

    /// Counts and judges the answers to a request with this `cache-status`.
    pub fn note(&self, sent: &[SentCall], replies: &[Value], status: &str) {
        let report = &mut *self.report.lock();
        assert_eq!(replies.len(), sent.len(), "{replies:?}");
        report.answers += sent.len() as u64;
        report.contradicted += sent.len() as u64 * u64::from(self.nodes.is_contradicted());
        let is_proved = ["proof=proved", "proof=structural"].iter().any(|proof| status.contains(proof));
        for (sent, reply) in sent.iter().zip(replies) {
            let is_logs = matches!(sent.call, Call::Logs(..));
            let judged = match reply["error"]["code"].as_i64() {
                Some(code) => {
                    *report.errors.entry(code).or_default() += 1;
                    if code == -32010 || is_logs { Ok(()) } else { Err("another error") }
                }
                None if is_logs && !is_proved => {
                    report.searched += 1;
                    Ok(())
                }
                None => self.judge(sent, &reply["result"]),
            };
            let describe = |fault| format!("{fault} ({status}):{}", listed([(sent, reply)]));
            report.wrong.extend(judged.err().map(describe));
        }
        let fault = self.judge_tags(sent, replies).err();
        report.wrong.extend(fault.map(|fault| format!("{fault}:{}", listed(sent.iter().zip(replies)))));
    }

    fn judge(&self, sent: &SentCall, result: &Value) -> Result<(), &'static str> {
        if result.is_null() {
            return self.judge_null(sent);
        }
        if let Call::Logs(from, to) = sent.call {
            return self.judge_logs(sent, from, to, result);
        }
        let (at, block) = sent.call.block_of(result);
        if sent.call.tag() == Some("latest") && at.is_some_and(|at| at < sent.finalized) {
            return Err("below the finalized block");
        }
        // The number of a block, and an empty list of receipts, name no block.
        let (Some(at), Some(block)) = (at, block) else { return Ok(()) };
        self.judge_content(sent.call, at, block, result)?;
        let is_at = |branch: &[B256]| branch.get(usize::try_from(at).unwrap()) == Some(&block);
        let is_by_hash = matches!(sent.call, Call::Block(At::Hash(_), _));
        if !is_by_hash && !self.nodes.may_show(sent.at, is_at) {
            return Err("no replica shows this block");
        }
        let mut shown = self.shown.lock();
        shown.blocks.entry(block).or_insert_with(Instant::now);
        if sent.call.tag() == Some("finalized") {
            shown.finalized = shown.finalized.max(at);
        }
        Ok(())
    }

    /// Checks that a result is the requested object, with the content that the master has in this block.
    fn judge_content(&self, call: Call, at: u64, block: B256, result: &Value) -> Result<(), &'static str> {
        let index = number(&result["transactionIndex"]).map_or(usize::MAX, |index| index as usize);
        let master = &self.nodes.master;
        let (is_requested, truth) = match call {
            Call::Block(named, full) => (is_named(named, at, block), master.block_json(block, full)),
            Call::Receipts(named) => (is_named(named, at, block), master.receipts_json(block)),
            Call::Transaction(tx) => {
                (hash(&result["hash"]) == Some(tx), master.transaction_json(block, index))
            }
            Call::Receipt(tx) => {
                (hash(&result["transactionHash"]) == Some(tx), master.receipt_json(block, index))
            }
            Call::BlockNumber | Call::Logs(..) => return Ok(()),
        };
        let truth: Option<Value> = truth.map(|truth| serde_json::from_slice(&truth).unwrap());
        match (is_requested, truth.as_ref() == Some(result)) {
            (false, _) => Err("not the requested object"),
            (true, false) => Err("not the content of its block"),
            (true, true) => Ok(()),
        }
    }

    /// Checks that the proxy may not know the data of a call that it answers with `null`.
    fn judge_null(&self, sent: &SentCall) -> Result<(), &'static str> {
        let master = &self.nodes.master;
        let block = match sent.call {
            Call::BlockNumber | Call::Logs(..) => None,
            Call::Block(at, _) | Call::Receipts(at) => match at {
                At::Tag(_) => None,
                At::Number(number) => Some(master.hash_at(number)),
                At::Hash(hash) => Some(Some(hash)),
            },
            Call::Transaction(hash) | Call::Receipt(hash) => {
                Some(master.location(hash).map(|(block, _)| block))
            }
        };
        let block = block.ok_or("null where there is always an answer")?;
        let is_final = |block: &B256| (0..=sent.finalized).any(|at| master.hash_at(at) == Some(*block));
        let is_shown = |block: &B256| self.shown.lock().blocks.get(block).is_some_and(|at| *at < sent.at);
        match block.filter(is_shown).filter(is_final) {
            Some(_) => Err("null for final data that the proxy has shown"),
            None => Ok(()),
        }
    }

    fn judge_logs(&self, sent: &SentCall, from: u64, to: u64, result: &Value) -> Result<(), &'static str> {
        let range = usize::try_from(from).unwrap()..=usize::try_from(to).unwrap();
        let logs_of = |block: &B256| {
            let receipts = self.nodes.master.receipts_json(*block).unwrap();
            let receipts: Vec<Value> = serde_json::from_slice(&receipts).unwrap();
            receipts.into_iter().flat_map(|receipt| receipt["logs"].as_array().unwrap().clone())
        };
        let are_of = |branch: &[B256]| {
            let blocks = branch.get(range.clone());
            blocks.is_some_and(|blocks| json!(blocks.iter().flat_map(logs_of).collect::<Vec<_>>()) == *result)
        };
        self.nodes.may_show(sent.at, are_of).then_some(()).ok_or("not the logs of any branch")
    }

    /// Checks that a tag has one meaning in a batch, and that the tags are in order.
    fn judge_tags(&self, sent: &[SentCall], replies: &[Value]) -> Result<(), &'static str> {
        let (mut numbers, mut blocks) = (BTreeMap::new(), BTreeMap::new());
        for (sent, reply) in sent.iter().zip(replies) {
            let Some(tag) = sent.call.tag() else { continue };
            let (at, block) = sent.call.block_of(&reply["result"]);
            let is_one_number = at.is_none_or(|at| *numbers.entry(tag).or_insert(at) == at);
            let is_one_block = block.is_none_or(|block| *blocks.entry(tag).or_insert(block) == block);
            if !is_one_number || !is_one_block {
                return Err("two meanings of a tag");
            }
        }
        for [lower, upper] in [["finalized", "safe"], ["safe", "latest"], ["finalized", "latest"]] {
            if let (Some(lower), Some(upper)) = (numbers.get(lower), numbers.get(upper))
                && lower > upper
            {
                return Err("tags out of order");
            }
            if let (Some(lower), Some(upper)) = (blocks.get(lower), blocks.get(upper))
                && !self.nodes.are_on_one_branch(*lower, *upper)
            {
                return Err("tags on two branches");
            }
        }
        Ok(())
    }
}

/// Returns whether a call that names this block may be answered with the block of this number and hash.
fn is_named(named: At, number: u64, hash: B256) -> bool {
    match named {
        At::Tag(_) => true,
        At::Number(named) => named == number,
        At::Hash(named) => named == hash,
    }
}

/// Describes calls, with the members of the answers that identify blocks, or else the beginnings of the answers.
fn listed<'a>(answers: impl IntoIterator<Item = (&'a SentCall, &'a Value)>) -> String {
    let line = |(sent, reply): (&SentCall, &Value)| match sent.call.block_of(&reply["result"]) {
        (Some(number), block) => format!("\n  {:?} -> {number} {block:?}", sent.call),
        (None, _) => format!("\n  {:?} -> {:.300}", sent.call, reply.to_string()),
    };
    answers.into_iter().map(line).collect()
}
