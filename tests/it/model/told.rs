//! Blocks that answers named. Once a client was told of a block, later calls of any client are answered from a state that
//! has it, unless the node stops showing it.

use serde_json::Value;
use tokio::time::Instant;

use super::world::{Call, Hash, State, World};

/// The blocks that clients were told of.
#[derive(Debug, Default)]
pub struct ToldBlocks(Vec<ToldBlock>);

#[derive(Clone, Copy, Debug)]
struct ToldBlock {
    number: u64,
    block: Hash,
    /// First state that has the block.
    state: usize,
    at: Instant,
}

// === impl ToldBlocks ===

impl ToldBlocks {
    /// Records the block that an answer names, if it is above the heads of the older states: the proxy may know any of
    /// them, even if the node lagged since. The proxy takes notice of one block of each number a second.
    pub fn note(&mut self, call: &Call, result: &[u8], older: &[State], state: usize, at: Instant) {
        let Some((number, block)) = call.names_place().then(|| named(result)).flatten() else { return };
        if older.iter().any(|state| number < state.visible.len() as u64) {
            return;
        }
        let is_other = |told: &&ToldBlock| told.number == number && told.block != block;
        let is_recent = |told: &ToldBlock| at.saturating_duration_since(told.at).as_secs() == 0;
        if !self.0.iter().rev().find(is_other).is_some_and(is_recent) {
            self.0.push(ToldBlock { number, block, state, at });
        }
    }

    /// Returns the oldest state that may answer a call that is sent now.
    pub fn floor(&self, world: &World) -> usize {
        let stays = |told: &&ToldBlock| {
            let mut since = world.states[told.state..].iter();
            since.all(|state| state.visible.get(told.number as usize) == Some(&told.block))
        };
        self.0.iter().filter(stays).map(|told| told.state).max().unwrap_or(0)
    }
}

/// Returns number and hash of the block that an answer names; the last block of a list.
fn named(result: &[u8]) -> Option<(u64, Hash)> {
    let answer: Value = serde_json::from_slice(result).ok()?;
    let entry = answer.as_array().map_or(Some(&answer), |list| list.last())?;
    let member = |names: [&str; 2]| names.into_iter().find_map(|name| entry.get(name)?.as_str());
    let number = member(["blockNumber", "number"])?.strip_prefix("0x")?;
    Some((u64::from_str_radix(number, 16).ok()?, member(["blockHash", "hash"])?.parse().ok()?))
}
