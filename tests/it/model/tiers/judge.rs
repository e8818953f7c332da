//! The rules for answers of proxies that share a Redis.

use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use holdfast::jsonrpc::{Answer, read_answers};
use serde_json::Value;
use tokio::time::Instant;

use super::{STALENESS, run::Run};
use crate::model::{
    FAILURES,
    judge::UNAVAILABLE,
    shorten,
    world::{Call, State, World},
};

/// A call in flight.
pub struct Asked {
    pub call: Call,
    pub arrived: Instant,
    /// Whether the proxy may still serve the branch of replaced finalized blocks.
    believes: bool,
    /// For each node, the oldest state that an answer may be of. A write, or a head that the proxy showed, excludes
    /// older states.
    floors: Vec<usize>,
    /// For each node, the oldest state whose head the proxy may still show.
    reset: Vec<usize>,
    may_fail: bool,
}

// === impl Run ===

impl Run<'_> {
    pub fn asked(&mut self, which: usize, call: Call) -> Asked {
        let may_fail = self.may_fail();
        let instance = &mut self.instances[which];
        if instance.replaced.is_some_and(|alarms| instance.alarms() > alarms) {
            instance.replaced = None;
        }
        // `safe` and `finalized` have their own time stamps.
        let shown = if call.has_its_own_time() { 0 } else { instance.shown };
        Asked {
            call,
            arrived: Instant::now(),
            believes: instance.replaced.is_some(),
            floors: instance.written.iter().map(|written| shown.max(*written)).collect(),
            reset: instance.reset.clone(),
            may_fail,
        }
    }

    pub fn judge_all(&mut self, which: usize, asked: &[Asked], body: &Bytes) -> Result<(), String> {
        let answers = read_answers(body).map_err(|error| error.to_string())?;
        if answers.len() != asked.len() {
            return Err(format!("{} answers to {} calls", answers.len(), asked.len()));
        }
        for (asked, answer) in asked.iter().zip(answers) {
            let answer = answer.answer.ok_or("neither result nor error")?;
            self.judge(which, asked, &answer).map_err(|error| format!("{which}: {error}"))?;
        }
        Ok(())
    }

    fn judge(&mut self, which: usize, asked: &Asked, answer: &Answer) -> Result<(), String> {
        let result = match answer {
            Answer::Result(result) => result,
            Answer::Error(error) => {
                let value: Value = serde_json::from_slice(error).map_err(|error| error.to_string())?;
                let code = value["code"].as_i64().unwrap_or_default();
                if FAILURES.contains(&code) {
                    // The proxy may give up if nodes lag or change their branch.
                    let is_calm =
                        self.worlds.iter().all(|world| world.is_calm(asked.arrived, Instant::now()));
                    let is_explained = asked.may_fail || self.may_fail() || (code == UNAVAILABLE && !is_calm);
                    let count = if is_explained { &self.seen.errors } else { &self.seen.unexplained };
                    count.fetch_add(1, Relaxed);
                    return Ok(());
                }
                error
            }
        };
        self.seen.answers.fetch_add(1, Relaxed);
        let call = &asked.call;
        let has_logs = call.asks_for_logs() && result.starts_with(b"[{");
        self.seen.logs.fetch_add(u64::from(has_logs), Relaxed);
        let earliest = asked.arrived.checked_sub(STALENESS).unwrap_or(asked.arrived);
        // For each node, the first allowed state: the state at `earliest`, or a later one if a write or a shown head
        // excludes it.
        let held = self.worlds.iter().zip(&asked.floors).map(|(world, floor)| {
            let from = world.states.iter().rposition(|state| state.since < earliest).unwrap_or(0);
            from.max(*floor)
        });
        let held: Vec<_> = held.collect();
        for (world, from) in self.worlds.iter().zip(&held) {
            let found = world.states[*from..].iter().position(|state| world.allows(call, state, result));
            let Some(position) = found else { continue };
            // Records the shown head only for a single node. Of two nodes, one may lag and answer with an older state
            // than the head of the other.
            if self.worlds.len() == 1 && call.shows_the_head() {
                let instance = &mut self.instances[which];
                instance.shown = instance.shown.max(from + position);
            }
            return Ok(());
        }
        if self.was_head(asked, &held, result) {
            return Ok(());
        }
        // In a doubt, the view stays as it is, and a final block of the old branch may have a searched block of the new one
        // beside it.
        let was_true = |world: &World| {
            world.states.iter().flat_map(State::heads).any(|state| world.allows(call, &state, result))
                || world.allows_part(call, &world.states.iter().collect::<Vec<_>>(), result)
        };
        if asked.believes && self.worlds.iter().any(was_true) {
            self.seen.believed.fetch_add(1, Relaxed);
            return Ok(());
        }
        Err(format!(
            "{} {} was answered with {}\nwhich no state from {held:?} on allows; may serve replaced blocks: {}; now the heads are {:?}",
            call.method,
            call.params,
            shorten(result),
            asked.believes,
            self.worlds.iter().map(|world| (world.chain.head(), world.lag())).collect::<Vec<_>>(),
        ))
    }

    /// Returns whether `result` is a head that one of the nodes showed before and whose branch contains the head of
    /// an allowed state. The proxy does not follow a lagging node backwards at `latest`, even if another node showed
    /// the higher head.
    fn was_head(&self, asked: &Asked, held: &[usize], result: &Bytes) -> bool {
        if !asked.call.names_the_head() {
            return false;
        }
        let shown =
            || self.worlds.iter().zip(&asked.reset).flat_map(|(world, reset)| &world.states[*reset..]);
        let stands_above = |world: &World, state: &State| {
            let Some(visible) = state.visible.last() else { return false };
            shown()
                .filter(|earlier| earlier.since <= state.since && earlier.visible.contains(visible))
                .any(|earlier| world.allows(&asked.call, earlier, result))
        };
        self.worlds
            .iter()
            .zip(held)
            .any(|(world, from)| world.states[*from..].iter().any(|state| stands_above(world, state)))
    }
}
