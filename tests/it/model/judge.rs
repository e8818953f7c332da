//! The rules for the answers of a proxy in front of one node.
//!
//! - An answer equals the node's answer at some moment during the call, or at most `max_staleness` before the call
//!   arrived.
//! - After the proxy has shown a head to a client, it answers no later call with an older state of the chain.
//! - After an answer by number, by transaction or with logs named a block, no later call is answered with a state before
//!   the one that has it, unless the node no longer shows that block (see `told.rs`).
//! - The proxy may answer a call that was in flight at that time with an older state, but not with a block that the
//!   head excludes. A head excludes a block if the new branch has another block at its number, or ends below it. A
//!   head that extends the chain excludes nothing. The rule does not cover calls by block hash, `safe` and
//!   `finalized`, which have their own time stamps, and entries of a batch, which are complete long before the batch.
//! - The proxy may answer a call for a final number with a state of any age, until it shows a head to a client. Any
//!   head ends this permission, even a head below the final number or on another branch, because if a chain regresses
//!   below its finalized block, the proxy either forgets that block or forwards each call, or keeps it for at most
//!   [`DOUBT`].
//! - While a chain is regressed, the proxy may forward calls, and it does not detect that a new head overtook an answer.
//!   Unless the node is `consistent`, the proxy may also take it for a replica that lags, and answer with older states, for
//!   at most [`DOUBT`] from the first such answer on.
//! - The proxy may pass on a single transaction or receipt with a false block hash while the node returns it, and for
//!   `max_staleness` after. Every other call, and the same call later, must not be affected. If the proxy must prove all
//!   answers, it may pass on only one that is true for an orphan.
//! - `latest` need not follow a node that lags.
//! - Logs of a range are those of the blocks of one state. Between two tags, `safe` and `finalized` may be of another
//!   state. The proxy does not detect that a new head overtook logs for which the node alone vouches. While a chain is
//!   regressed, the node serves the wrong chain, or a lag ends, such logs may be of several states, or incomplete.
//! - The proxy passes an error of the node on only to a client whose own call the node refused: not if the proxy asked
//!   for a whole block and the client wants only a part of it.
//! - A failure needs a reason: a fault, or, for −32010, a chain that changed or a node that lagged a moment ago. If the
//!   proxy must prove all answers, it may refuse those that it cannot prove.
//! - If the node lacks a method, its error may answer that call, or the error with which it refuses the block of the
//!   answer. Every result must be one that a node with the method would have given.
//! - If the hashes of the blocks do not match their content, the same rules hold: the model reads the answers with the true
//!   hashes in the place of those that the node shows.

use std::{collections::HashSet, time::Duration};

use bytes::Bytes;
use holdfast::jsonrpc::{Answer, read_answers};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    FAILURES, Run, shorten,
    sources::is_forwarded,
    step::{Place, Question},
    tags::judge_tags,
    world::{Call, Hash, State, TOO_BIG, World},
};

/// Error code if the upstream has no answer, or no answer that fits the canonical chain.
pub const UNAVAILABLE: i64 = -32010;

/// Error code for an answer that the proxy cannot prove.
const UNPROVED: i64 = -32012;

/// Error code of the node for a method that it lacks.
const METHOD_NOT_FOUND: i64 = -32601;

/// A time longer than the proxy waits for a lagging node, and longer than it remembers a failed call.
pub const UNREST: Duration = Duration::from_secs(20);

/// Longest time for which the proxy takes a node that contradicts the finalized block for a replica that lags: answers
/// must contradict it for 15 s, the last one may come a little later, and the view is fresh for a second.
const DOUBT: Duration = Duration::from_secs(18);

/// A call in flight.
pub struct Asked {
    pub call: Call,
    pub arrived: Instant,
    /// Newest state when the call was sent.
    state: usize,
    /// Oldest state that may answer the call: later heads or writes overtook the states before it.
    floor: usize,
    /// Newest state whose head the proxy had shown when the call was sent.
    shown: usize,
    faulty: bool,
    /// Whether the call is not part of a batch.
    pub alone: bool,
}

/// A response and the time at which it was complete.
pub struct Finished {
    /// Value of `cache-status`.
    pub status: String,
    pub body: Bytes,
    pub at: Instant,
}

/// A head that the proxy showed to a client.
#[derive(Clone, Copy, Debug)]
pub struct ShownHead {
    at: Instant,
    /// State whose head this is.
    state: usize,
}

// === impl Asked ===

impl Asked {
    /// Creates a call that is sent now, before the proxy has shown any head.
    pub fn new(call: Call, world: &World, alone: bool) -> Self {
        let (arrived, state) = (Instant::now(), world.last());
        Self { call, arrived, state, floor: 0, shown: 0, faulty: world.faulty, alone }
    }
}

// === impl Run ===

impl Run<'_> {
    pub fn asked(&self, call: Call, alone: bool) -> Asked {
        // `safe` and `finalized` have their own time stamps.
        let shown = if call.has_its_own_time() { 0 } else { self.shown().max(self.told.floor(&self.world)) };
        let asked = Asked::new(call, &self.world, alone);
        Asked { floor: self.written.max(shown), shown: self.shown(), ..asked }
    }

    /// Returns the newest state whose head the proxy has shown.
    fn shown(&self) -> usize {
        self.heads.iter().map(|head| head.state).max().unwrap_or(0)
    }

    /// Judges the started calls that were complete at `until`, in the order of their completion.
    pub async fn judge_finished(&mut self, until: Option<Instant>) -> Result<(), String> {
        let (done, running): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.started).into_iter().partition(|(_, sending)| sending.is_finished());
        self.started = running;
        for (asked, sending) in done {
            let finished = sending.await.map_err(|error| format!("the task of a call failed: {error}"))?;
            self.finished.push((asked, finished));
        }
        self.finished.sort_by_key(|(_, finished)| finished.at);
        let due =
            self.finished.partition_point(|(_, finished)| until.is_none_or(|until| finished.at <= until));
        for (asked, finished) in self.finished.drain(..due).collect::<Vec<_>>() {
            self.judge_packet(&asked, &finished)?;
        }
        Ok(())
    }

    pub async fn judge(&mut self, asked: Vec<Asked>, finished: Finished) -> Result<(), String> {
        self.judge_finished(Some(finished.at)).await?;
        self.judge_packet(&asked, &finished)
    }

    /// Judges each answer, and then the tags of all answers together.
    fn judge_packet(&mut self, asked: &[Asked], finished: &Finished) -> Result<(), String> {
        let answers = read_answers(&finished.body).map_err(|error| error.to_string())?;
        if answers.len() != asked.len() {
            return Err(format!("{} answers to {} calls", answers.len(), asked.len()));
        }
        let answers: Option<Vec<_>> = answers.into_iter().map(|answer| answer.answer).collect();
        let answers = answers.ok_or("neither result nor error")?;
        let mut tags: HashSet<Place> = asked.iter().flat_map(|asked| asked.call.tags()).collect();
        let asks_for_the_head = |asked: &Asked| matches!(asked.call.question, Question::BlockNumber);
        tags.extend(asked.iter().any(asks_for_the_head).then_some(Place::Latest));
        for (asked, answer) in asked.iter().zip(&answers) {
            self.judge_answer(asked, answer, finished, tags.len() > 1)?;
        }
        // While the chain is regressed, or the node is unknown, the proxy forwards calls unchanged.
        if self.world.restarted || asked.iter().any(|asked| self.is_regressed(asked, finished.at)) {
            return Ok(());
        }
        judge_tags(&self.world, asked, &answers)
    }

    fn judge_answer(
        &mut self,
        asked: &Asked,
        answer: &Answer,
        finished: &Finished,
        has_several_tags: bool,
    ) -> Result<(), String> {
        let at = finished.at;
        let told = self.world.chain.lies_total();
        if told > self.lies.0 {
            self.lies = (told, Some(Instant::now()));
        }
        let earliest = asked.arrived.checked_sub(self.staleness).unwrap_or(asked.arrived);
        let was_lied_to = self.lies.1.is_some_and(|last| last >= earliest);
        let call = &asked.call;
        let result = match answer {
            Answer::Result(result) => {
                if asked.alone {
                    self.seen.logs.count(call, &finished.status, result);
                }
                result
            }
            Answer::Error(error) => {
                let value: Value = serde_json::from_slice(error).map_err(|error| error.to_string())?;
                let code = value["code"].as_i64().unwrap_or_default();
                // Without the refused parts the proxy cannot prove an answer.
                let lacks_proof = self.setting.proved && self.world.refused;
                let may_fail =
                    asked.faulty || self.world.faulty || self.world.restarted || was_lied_to || lacks_proof;
                // The proxy keeps the order of tags if parent hashes in its window link their blocks.
                let is_unordered = has_several_tags
                    && call.has_its_own_time()
                    && (self.world.has_unsafe_finality(asked.arrived, at)
                        || self.world.grew(earliest, at) > self.setting.most_linked());
                let is_unsettled = code == UNAVAILABLE
                    && (!self.world.is_calm(asked.arrived, at)
                        || self.is_contradicted(asked, at)
                        || is_unordered);
                // A proxy that must prove all answers may always refuse: the empty receipts of the genesis prove nothing.
                let is_unproved = self.setting.proved && code == UNPROVED;
                let is_unserved = !self.setting.node.has(call.method)
                    && (code == METHOD_NOT_FOUND || self.world.refused && code == TOO_BIG.0);
                if FAILURES.contains(&code) && (may_fail || is_unsettled)
                    || is_unproved
                    || is_unserved
                    || call.may_be_refused(code)
                {
                    return Ok(());
                }
                error
            }
        };
        // The answer may be of the state at `earliest` or of a later state, except overtaken states.
        let states = &self.world.states;
        // If the node has gone back below its safe block, the head may rest on that block, and both may be that old.
        let is_one_node = self.setting.consistent || self.setting.development;
        let earlier = earliest.checked_sub(self.staleness).unwrap_or(earliest);
        let goes_back = |low: usize| {
            let since = states[low].since;
            // The states that ended at most `max_staleness` before.
            let recent = (0..low).rev().take_while(|at| states[at + 1].since + self.staleness >= since);
            since >= earlier && recent.into_iter().any(|at| states[low].is_below_tags_of(&states[at]))
        };
        let has_gone_back = !is_one_node && (1..states.len()).any(goes_back);
        let earliest = if has_gone_back { earlier } else { earliest };
        let from = match self.staleness {
            Duration::ZERO => asked.state,
            _ => states.iter().rposition(|state| state.since < earliest).unwrap_or(0),
        };
        let allowed = from.max(asked.floor)..=self.world.last_at(at);
        let held = || allowed.clone().filter(|state| self.world.allows(call, &states[*state], result));
        let is_unchecked = call.asks_for_logs() && is_forwarded(&finished.status);
        if let Some(state) = held().find(|state| is_unchecked || !self.is_left(asked, *state, at)) {
            if call.shows_the_head() {
                self.heads.push(ShownHead { at, state });
                self.doubted = None;
            }
            // An answer that an older state could have given tells nothing new.
            if state > *allowed.start() && !was_lied_to {
                self.told.note(call, result, &states[..state], state, at);
            }
            return Ok(());
        }
        // An ordinary chain does not restart: a node with another genesis serves the wrong chain. The proxy still serves
        // final blocks of the right chain, and may have accepted answers of the wrong chain before it detected it.
        let met_a_stranger = self.world.restarted && !self.setting.development;
        if call.is_range()
            && (is_unchecked || !asked.alone)
            && (self.is_regressed(asked, at)
                || met_a_stranger
                || self.world.has_caught_up(asked.state, self.world.last_at(at)))
            && self.world.allows_part(call, &states.iter().collect::<Vec<_>>(), result)
        {
            return Ok(());
        }
        if let Some(left) = held().next() {
            // The false block hash may be that of the excluded block.
            if was_lied_to && call.names_transaction() {
                return Ok(());
            }
            return Err(format!(
                "{} {} was answered with {}\nwhich is of state {left}; a client saw a later head in the meantime",
                call.method,
                call.params,
                shorten(result),
            ));
        }
        let states = || states[allowed.clone()].iter();
        // Each tag has its own time stamp.
        if call.has_its_own_time()
            && states().any(|state| {
                self.world.allows_range(call, state, &self.world.states[allowed.clone()], result)
            })
        {
            return Ok(());
        }
        let has_other_tags = !asked.alone || call.tags().len() > 1;
        if has_other_tags && self.world.allows_ordered(call, &states().collect::<Vec<_>>(), result) {
            return Ok(());
        }
        // If one answer shows a new safe or finalized block, and another an older head, the head rests on that block.
        let is_head = |head: &State| call.names_the_head() && self.world.allows(call, head, result);
        if !is_one_node && states().flat_map(State::heads).any(|head| is_head(&head)) {
            return Ok(());
        }
        if !self.setting.development
            && states().any(|state| self.world.allows_as_head(call, state, state.since, result))
        {
            return Ok(());
        }
        // A lie about a block that a regressed node has replaced fits the view until the contradiction counts.
        let was_lied_to = was_lied_to || (self.lies.1.is_some() && self.may_doubt(asked, at));
        let is_misplaced = || states().any(|state| self.world.allows_misplaced(call, state, result));
        if was_lied_to && is_misplaced() && (!self.setting.proved || self.world.is_true(call, result)) {
            return Ok(());
        }
        let since_shown = || self.world.states[asked.shown..=*allowed.end()].iter();
        if !self.setting.development
            && since_shown().any(|state| self.world.allows_as_final(call, state, result))
        {
            return Ok(());
        }
        if met_a_stranger
            && (self.world.states.iter().flat_map(State::heads))
                .any(|state| self.world.allows(call, &state, result))
        {
            return Ok(());
        }
        if self.may_doubt(asked, at) {
            let states = || since_shown().take(*allowed.end() + 1 - asked.shown);
            let is_of_tags = |state| self.world.allows_range(call, state, states(), result);
            // The node may call a block of the new branch final, which is the head then. The doubt keeps this head, and the
            // final blocks.
            let before = &self.world.states[self.regressed_from(asked)..=*allowed.end()];
            let mut before = before.iter().filter(|state| !state.regressed && !self.setting.development);
            if states().any(|state| self.world.allows(call, state, result))
                || (call.has_its_own_time() && states().any(is_of_tags))
                || (!is_one_node && states().flat_map(State::heads).any(|head| is_head(&head)))
                || before.any(|state| self.world.allows_as_final(call, state, result))
            {
                self.doubted.get_or_insert(at);
                return Ok(());
            }
        }
        Err(format!(
            "{} {} was answered with {}\nwhich no state of {allowed:?} allows; now the head is {:?}",
            call.method,
            call.params,
            shorten(result),
            self.world.chain.head(),
        ))
    }

    /// Returns whether the proxy may take the node for a replica that lags.
    fn may_doubt(&self, asked: &Asked, at: Instant) -> bool {
        let is_over = self.doubted.is_some_and(|since| at > since + DOUBT);
        let is_faulty = asked.faulty || self.world.faulty;
        !self.setting.consistent && self.is_contradicted(asked, at) && (!is_over || is_faulty)
    }

    /// Returns whether the node contradicted a finalized block during the call, a moment before, or at any time since the
    /// last head that a client saw.
    fn is_contradicted(&self, asked: &Asked, at: Instant) -> bool {
        let from = self.regressed_from(asked);
        let mut states = self.world.states[from..=self.world.last_at(at)].iter();
        states.any(|state| state.regressed || state.replaces_final)
    }

    fn regressed_from(&self, asked: &Asked) -> usize {
        let earlier = asked.arrived.checked_sub(UNREST).unwrap_or(asked.arrived);
        self.world.last_at(earlier).min(asked.state).min(asked.shown)
    }

    /// Returns whether the chain was regressed during the call, a moment before, or at any time since the last head that a
    /// client saw: the proxy may not have looked since.
    fn is_regressed(&self, asked: &Asked, at: Instant) -> bool {
        let from = self.regressed_from(asked);
        self.world.states[from..=self.world.last_at(at)].iter().any(|state| state.regressed)
    }

    /// Returns whether the proxy showed, during this call, a head that excludes the block that the call means in this
    /// state.
    ///
    /// Time must have passed between the two answers: answers of the same moment may have been in flight together.
    fn is_left(&self, asked: &Asked, state: usize, at: Instant) -> bool {
        // Before the first head, or after the node changed to another chain, the proxy cannot know about orphans.
        let is_unknown = self.world.restarted || !self.heads.iter().any(|head| head.at <= asked.arrived);
        // On development chains the proxy forwards reads by transaction and does not check the answers.
        let is_forwarded = self.setting.development && asked.call.names_transaction();
        let is_exempt = asked.call.has_its_own_time() || is_unknown || is_forwarded;
        if !asked.alone || is_exempt || self.is_regressed(asked, at) {
            return false;
        }
        let Some((number, block)) = self.world.meant(&asked.call, &self.world.states[state]) else {
            return false;
        };
        let number = usize::try_from(number).unwrap();
        let visible = |head: &ShownHead| &self.world.states[head.state].visible;
        let is_meanwhile = |head: &&ShownHead| asked.arrived <= head.at && head.at < at && head.state > state;
        self.heads.iter().filter(is_meanwhile).any(|head| {
            // A block above an unchanged head may be newly mined. Only on development chains does the proxy accept a
            // lower head at once.
            let is_above =
                |last: &Hash| number >= visible(head).len() && self.world.is_ancestor(*last, block);
            let is_new = !self.setting.development && visible(head).last().is_some_and(is_above);
            visible(head).get(number) != Some(&block) && !is_new
        })
    }
}
