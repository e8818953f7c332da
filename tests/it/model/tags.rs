//! Rules for the tags of one batch.
//!
//! - All entries with one tag mean one block; `eth_blockNumber` means `latest`.
//! - `finalized` means `safe` or an ancestor of it, and `safe` means `latest` or an ancestor of it.
//! - The rules ignore errors: an entry may fail if the chain changes during the batch. They also ignore `null` and
//!   `0x` for `safe` and `finalized` if no entry names the block, because the node need not know these blocks. If one
//!   does, `null` must fit that block.

use bytes::Bytes;
use holdfast::jsonrpc::Answer;

use super::{
    judge::{Asked, UNREST},
    step::Place,
    world::{Hash, World},
};

/// Checks the tags of a batch.
pub fn judge_tags(world: &World, asked: &[Asked], answers: &[Answer]) -> Result<(), String> {
    let of = |wanted: Place| {
        let is_it = |tag| std::mem::discriminant(&tag) == std::mem::discriminant(&wanted);
        meanings(world, asked, answers, is_it)
    };
    let (latest, safe, finalized) = (of(Place::Latest)?, of(Place::Safe)?, of(Place::Finalized)?);
    let pairs = [
        ("safe is not on the branch of latest", &safe, &latest),
        ("finalized is not on the branch of latest", &finalized, &latest),
        ("finalized is not on the branch of safe", &finalized, &safe),
    ];
    for (fault, lower, upper) in pairs {
        let (Some(lower), Some(upper)) = (lower, upper) else { continue };
        let is_one_branch = |lower: &Hash| upper.iter().any(|upper| world.is_ancestor(*lower, *upper));
        if !lower.iter().any(is_one_branch) {
            return Err(format!("{fault}: {}", listed(asked, answers)));
        }
    }
    Ok(())
}

/// Returns the blocks that a tag can mean in these answers, or `None` if no answer names one.
fn meanings(
    world: &World,
    asked: &[Asked],
    answers: &[Answer],
    wanted: impl Fn(Place) -> bool,
) -> Result<Option<Vec<Hash>>, String> {
    let tagged: Vec<_> = asked
        .iter()
        .zip(answers)
        .filter_map(|(asked, answer)| {
            let tag = asked.call.tag().filter(|tag| wanted(*tag))?;
            let since = asked.arrived.checked_sub(UNREST).unwrap_or(asked.arrived);
            if !world.is_pinned(&asked.call, since) {
                return None;
            }
            match answer {
                Answer::Result(result) => {
                    // The node need not know the block of any other tag.
                    let says_nothing = asked.call.is_nothing(result) && !matches!(tag, Place::Latest);
                    Some((&asked.call, result, says_nothing))
                }
                Answer::Error(_) => None,
            }
        })
        .collect();
    if tagged.iter().all(|(_, _, says_nothing)| *says_nothing) {
        return Ok(None);
    }
    let fits = |block: &Hash| tagged.iter().all(|(call, result, _)| world.is_of_block(call, *block, result));
    let meant: Vec<_> = world.blocks.iter().filter(|block| fits(block)).copied().collect();
    if meant.is_empty() {
        return Err(format!("one tag means two blocks: {}", listed(asked, answers)));
    }
    Ok(Some(meant))
}

fn listed(asked: &[Asked], answers: &[Answer]) -> String {
    let entries = asked.iter().zip(answers).map(|(asked, answer)| {
        let (Answer::Result(text) | Answer::Error(text)) = answer;
        format!("\n{} {} -> {}", asked.call.method, asked.call.params, summary(text))
    });
    entries.collect()
}

/// Returns the members of an answer that identify its block.
fn summary(text: &Bytes) -> String {
    let value: serde_json::Value = serde_json::from_slice(text).unwrap_or_default();
    let object = if value.is_array() { &value[0] } else { &value };
    let member = |name: &str| object.get(name).map(|member| format!("{name} {member} "));
    let members: String = ["number", "blockNumber", "hash", "blockHash", "code", "message"]
        .into_iter()
        .filter_map(member)
        .collect();
    if members.is_empty() { super::shorten(text) } else { members }
}
