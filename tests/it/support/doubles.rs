//! Test doubles of a node: a node with few methods, and a node whose hashes do not match its content. And a cache with
//! no content but blocks.

use std::{collections::HashMap, fmt::Write, sync::Arc};

use alloy_primitives::B256;
use holdfast::{
    eth::{Block, BlockHash, BlockNumber, Receipts},
    jsonrpc::{Answer, MethodName, Params},
    upstream::{Calls, Transport},
    verify::{Known, Verified},
};
use parking_lot::Mutex;
use tower::{ServiceExt, service_fn, util::BoxCloneSyncService};

use super::method::{
    BLOCK_BY_HASH, BLOCK_BY_NUMBER, RECEIPT, TRANSACTION, TRANSACTION_AT_HASH, TRANSACTION_AT_NUMBER,
};

/// The six read operations.
pub const SIX: [&str; 6] =
    [BLOCK_BY_HASH, BLOCK_BY_NUMBER, TRANSACTION, RECEIPT, TRANSACTION_AT_HASH, TRANSACTION_AT_NUMBER];

/// Words that a node exchanges for others in all its answers, and back in the calls that it receives. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Disguise(Arc<Mutex<HashMap<B256, B256>>>);

/// A cache that looks up blocks with this function, and has nothing else.
pub struct KnownBlocks<F: Fn(BlockHash) -> Option<Arc<Verified<Block>>>>(pub F);

impl<F: Fn(BlockHash) -> Option<Arc<Verified<Block>>> + Send + Sync> Known for KnownBlocks<F> {
    fn block(&self, hash: BlockHash) -> Option<Arc<Verified<Block>>> {
        (self.0)(hash)
    }

    fn receipts(&self, _: BlockHash) -> Option<Arc<Verified<Receipts>>> {
        None
    }

    fn at(&self, _: BlockNumber) -> Option<BlockHash> {
        None
    }

    fn was_final(&self, _: BlockNumber) -> bool {
        false
    }
}

/// Returns a node that has the six operations and `others`. To all other calls it answers that it lacks the method.
pub fn six_methods(node: Transport, others: &'static [&'static str]) -> Transport {
    BoxCloneSyncService::new(service_fn(move |mut calls: Calls| {
        for call in &mut calls {
            let method = call.method.as_str();
            if !SIX.contains(&method) && !others.contains(&method) {
                call.method = MethodName::from("eth_unknown");
            }
        }
        node.clone().oneshot(calls)
    }))
}

// === impl Disguise ===

impl Disguise {
    /// Exchanges two words for each other.
    pub fn exchange(&self, one: B256, other: B256) {
        self.0.lock().extend([(one, other), (other, one)]);
    }

    /// Exchanges the words in JSON text.
    pub fn apply(&self, text: &str) -> String {
        let words = self.0.lock();
        let (mut result, mut rest) = (String::with_capacity(text.len()), text);
        while let Some(at) = rest.find("\"0x") {
            let (before, quoted) = rest.split_at(at + 1);
            let (word, after) = quoted.split_at(quoted.find('"').unwrap_or(quoted.len()));
            result.push_str(before);
            match word.parse().ok().and_then(|word: B256| words.get(&word)) {
                Some(other) => write!(result, "{other:#x}").unwrap(),
                None => result.push_str(word),
            }
            rest = after;
        }
        result + rest
    }

    /// Returns this node in disguise.
    pub fn over(&self, node: Transport) -> Transport {
        let this = self.clone();
        BoxCloneSyncService::new(service_fn(move |mut calls: Calls| {
            let (this, node) = (this.clone(), node.clone());
            async move {
                for call in &mut calls {
                    call.params = Params::from_own(this.apply(text(call.params.as_bytes())));
                }
                let mut answers = node.oneshot(calls).await?;
                for answer in answers.iter_mut().flatten() {
                    let (Answer::Result(bytes) | Answer::Error(bytes)) = answer;
                    *bytes = this.apply(text(bytes)).into();
                }
                Ok(answers)
            }
        }))
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}
