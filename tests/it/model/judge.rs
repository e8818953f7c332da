//! The rules by which answers of one node are judged.
//!
//! - An answer is what the node says while the call is under way, or said at most `max_staleness` before it arrived.
//! - After a client was shown a head, no call that arrives later is answered with an older state of the chain.
//! - A call that was under way by then may still be answered with an older state, but not with a block that this head
//!   excludes: one whose number has another block on the new branch, or lies above the new head. A head that extends the
//!   chain excludes nothing. Calls by block hash are exempt, as are `safe` and `finalized`, which have times of their own,
//!   and the entries of a batch, which are complete long before the batch is.
//! - A final number may be answered with an older state, however old, as long as no client was shown a head since. A head
//!   that was shown ends this also where it is lower than the final number or on another branch: a chain that regresses
//!   below its finalized block is either forgotten or asked about each time.
//! - While a chain is regressed, its calls may be forwarded: then nothing tells an answer that a new head overtook.
//! - A single transaction or receipt with a false block hash may be told while the node says so, and for `max_staleness`
//!   after. It has no other consequence: every other call, and the same call later, is answered as if it had not been
//!   told. Where all must be proved it may be told only if an orphan holds just that.
//! - `latest` need not follow a node that lags.
//! - An error of the node is told to a client that asked what the node refused, and to no other: not if the proxy asked for
//!   a whole block of which the client wants less.
//! - A failure needs a reason: a fault, or, for −32010, a chain that changed or a node that lagged a moment ago. Where
//!   all must be proved, the proxy may refuse what nothing proves.

use std::time::Duration;

use bytes::Bytes;
use holdfast::jsonrpc::{Answer, read_answers};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    FAILURES, Run, shorten,
    tags::judge_tags,
    world::{Call, Hash, World},
};

/// The code with which the proxy says that the upstream has no answer, or none that fits.
pub const UNAVAILABLE: i64 = -32010;

/// The code with which the proxy says that nothing proves an answer.
const UNPROVED: i64 = -32012;

/// Longer than a lagging node is waited for, and than a failed question is remembered.
pub const UNREST: Duration = Duration::from_secs(20);

/// A call under way.
pub struct Asked {
    pub call: Call,
    pub arrived: Instant,
    /// The newest state when it was sent.
    state: usize,
    /// States before this one had been overtaken for this call when it was sent.
    floor: usize,
    /// The newest state of which a client had been shown the head when it was sent.
    shown: usize,
    faulty: bool,
    /// Whether it is the only call of its packet.
    alone: bool,
}

/// A response, and when it was complete.
pub struct Finished {
    pub body: Bytes,
    pub at: Instant,
}

/// A head that a client was shown.
#[derive(Clone, Copy, Debug)]
pub struct ShownHead {
    at: Instant,
    /// The state that it belongs to.
    state: usize,
}

// === impl Asked ===

impl Asked {
    /// A call that is sent now, and before which no head was shown.
    pub fn new(call: Call, world: &World, alone: bool) -> Self {
        let (arrived, state) = (Instant::now(), world.last());
        Self { call, arrived, state, floor: 0, shown: 0, faulty: world.faulty, alone }
    }
}

// === impl Run ===

impl Run {
    pub fn asked(&self, call: Call, alone: bool) -> Asked {
        // `safe` and `finalized` have times of their own.
        let shown = if call.has_its_own_time() { 0 } else { self.shown() };
        let asked = Asked::new(call, &self.world, alone);
        Asked { floor: self.written.max(shown), shown: self.shown(), ..asked }
    }

    /// The newest state of which a client was shown the head.
    fn shown(&self) -> usize {
        self.heads.iter().map(|head| head.state).max().unwrap_or(0)
    }

    /// Judges the started calls that are complete, in the order of their completion, up to a moment.
    pub async fn judge_finished(&mut self, until: Option<Instant>) -> Result<(), String> {
        let (done, running): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.started).into_iter().partition(|(_, sending)| sending.is_finished());
        self.started = running;
        for (asked, sending) in done {
            let finished = sending.await.map_err(|error| format!("a call died: {error}"))?;
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

    /// Judges each answer for itself, and what their tags mean together.
    fn judge_packet(&mut self, asked: &[Asked], finished: &Finished) -> Result<(), String> {
        let answers = read_answers(&finished.body).map_err(|error| error.to_string())?;
        if answers.len() != asked.len() {
            return Err(format!("{} answers to {} calls", answers.len(), asked.len()));
        }
        let answers: Option<Vec<_>> = answers.into_iter().map(|answer| answer.answer).collect();
        let answers = answers.ok_or("neither result nor error")?;
        for (asked, answer) in asked.iter().zip(&answers) {
            self.judge_answer(asked, answer, finished.at)?;
        }
        // While the chain is regressed calls are forwarded as they were asked, and so are calls to a node that is unknown.
        if self.world.restarted || asked.iter().any(|asked| self.is_regressed(asked, finished.at)) {
            return Ok(());
        }
        judge_tags(&self.world, asked, &answers)
    }

    fn judge_answer(&mut self, asked: &Asked, answer: &Answer, at: Instant) -> Result<(), String> {
        let told = self.world.chain.lies_total();
        if told > self.lies.0 {
            self.lies = (told, Some(Instant::now()));
        }
        let earliest = asked.arrived.checked_sub(self.staleness).unwrap_or(asked.arrived);
        let was_lied_to = self.lies.1.is_some_and(|last| last >= earliest);
        let call = &asked.call;
        let result = match answer {
            Answer::Result(result) => result,
            Answer::Error(error) => {
                let value: Value = serde_json::from_slice(error).map_err(|error| error.to_string())?;
                let code = value["code"].as_i64().unwrap_or_default();
                // What is refused cannot be proved.
                let lacks_proof = self.setting.proved && self.world.refused;
                let may_fail =
                    asked.faulty || self.world.faulty || self.world.restarted || was_lied_to || lacks_proof;
                // The tags of a batch may not fit each other if the chain grew since one of them was asked for.
                let has_changed =
                    self.world.has_changed(earliest, at) || asked.state < self.world.last_at(at);
                let is_apart = !asked.alone && call.tag().is_some() && has_changed;
                let is_unsettled = code == UNAVAILABLE
                    && (!self.world.is_calm(asked.arrived, at) || self.is_regressed(asked, at) || is_apart);
                // Where all must be proved, the proxy may always refuse: an empty list of the genesis proves nothing.
                let is_unproved = self.setting.proved && code == UNPROVED;
                if FAILURES.contains(&code) && (may_fail || is_unsettled)
                    || is_unproved
                    || call.may_be_refused(code)
                {
                    return Ok(());
                }
                error
            }
        };
        // States that still held at `earliest`, and all that came until the answer did; none that was overtaken.
        let states = &self.world.states;
        let from = match self.staleness {
            Duration::ZERO => asked.state,
            _ => states.iter().rposition(|state| state.since < earliest).unwrap_or(0),
        };
        let allowed = from.max(asked.floor)..=self.world.last_at(at);
        let held = || allowed.clone().filter(|state| self.world.allows(call, &states[*state], result));
        if let Some(state) = held().find(|state| !self.is_left(asked, *state, at)) {
            if call.shows_the_head() {
                self.heads.push(ShownHead { at, state });
            }
            return Ok(());
        }
        if let Some(left) = held().next() {
            // A false place may name the very block that left.
            if was_lied_to && call.names_transaction() {
                return Ok(());
            }
            return Err(format!(
                "{} {} was answered with {}\nwhich is of state {left}; a client was shown a later head meanwhile",
                call.method,
                call.params,
                shorten(result),
            ));
        }
        let states = || states[allowed.clone()].iter();
        if !self.setting.development
            && states().any(|state| self.world.allows_as_head(call, state, state.since, result))
        {
            return Ok(());
        }
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
        // An ordinary chain does not start anew: a node that shows another genesis is a stranger. What is
        // final on the chain that was there before is still told, and what the stranger said before it was
        // found out may have been believed: final numbers of the one chain are not final on the other.
        let met_a_stranger = self.world.restarted && !self.setting.development;
        if met_a_stranger && self.world.states.iter().any(|state| self.world.allows(call, state, result)) {
            return Ok(());
        }
        Err(format!(
            "{} {} was answered with {}\nwhich no state of {allowed:?} allows; now the head is {:?}",
            call.method,
            call.params,
            shorten(result),
            self.world.chain.head(),
        ))
    }

    /// Returns whether the chain was regressed while a call was under way, a moment before, or after the last head that a
    /// client was shown: nobody may have asked since.
    fn is_regressed(&self, asked: &Asked, at: Instant) -> bool {
        let earlier = asked.arrived.checked_sub(UNREST).unwrap_or(asked.arrived);
        let from = self.world.last_at(earlier).min(asked.state).min(asked.shown);
        self.world.states[from..=self.world.last_at(at)].iter().any(|state| state.regressed)
    }

    /// Returns whether a client was shown, while this call was under way, a head that excludes the block that the call
    /// means in this state.
    ///
    /// Time must have passed between the two answers: at one moment they may be on their way together.
    fn is_left(&self, asked: &Asked, state: usize, at: Instant) -> bool {
        // Before a head was shown, or after the node became another chain's, nobody can tell what was left.
        let is_unknown = self.world.restarted || !self.heads.iter().any(|head| head.at <= asked.arrived);
        // Reads by transaction are forwarded on development chains, and what is forwarded is not checked.
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
            // What is above a head that did not change was perhaps mined a moment ago. Only on development chains a lower
            // head is accepted at once.
            let is_above =
                |last: &Hash| number >= visible(head).len() && self.world.is_ancestor(*last, block);
            let is_new = !self.setting.development && visible(head).last().is_some_and(is_above);
            visible(head).get(number) != Some(&block) && !is_new
        })
    }
}
