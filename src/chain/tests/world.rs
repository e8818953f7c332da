//! A tracker, a model of a node, and the requests between them.

mod check;
mod expect;

use proptest::prelude::*;

use super::model::{Id, Model};
use crate::{
    chain::{Finalized, Gap, Link, Rules, Stamp, Tracker},
    eth::TxHash,
};

/// One event of a random program.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Wait(u64),
    /// Mines blocks: their count, and the difference between the number of each block and that of its parent.
    Mine(usize, u64),
    Reorg {
        depth: usize,
        length: usize,
        step: u64,
    },
    Rollback(usize),
    /// Makes one of all blocks that ever existed the tip.
    Turn(usize),
    /// The node shows the head of this many changes ago, until it catches up.
    Lag(usize),
    /// The node shows a head this many blocks behind the tip, until it catches up.
    LagBehind(usize),
    CatchUp,
    Finalize(usize),
    /// Sends a request. Later steps answer it.
    Ask(Question),
    /// Moves one of the requests in flight one stage further.
    Advance(usize),
    /// Completes one of the requests in flight.
    Finish(usize),
    /// Sends a request and answers it at once.
    Told(Question),
    /// Fetches any block by its hash.
    Fetched(usize),
    Write,
    /// A client's call arrives. After each of the following steps, the test checks the lookups for this call.
    Arrive,
}

#[derive(Clone, Debug)]
pub(super) enum Question {
    /// A refresh of the head. If `lost` is set, numbers in the gap that are multiples of it get no answer. If
    /// `balanced`, a replica that does not lag answers the requests for the gap.
    Head {
        lost: Option<usize>,
        balanced: bool,
    },
    /// The block at this offset from the head. If `whole`, the answer is a block, otherwise a single transaction.
    Number {
        offset: i64,
        whole: bool,
    },
    Safe,
    Finalized {
        null: bool,
    },
    /// The block at the number of the finalized block.
    Confirm,
}

/// A request in flight.
#[derive(Debug)]
struct Flight {
    question: Question,
    sent: Stamp,
    /// Lowest number in the window at any time since the request was sent.
    lowest: Option<u64>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Sent,
    Answered {
        answer: Option<Id>,
        at: Stamp,
    },
    /// The numbers between a head and the window were requested.
    GapSent {
        head: Id,
        at: Stamp,
        gap: Gap,
    },
    GapAnswered {
        head: Id,
        at: Stamp,
        gap: Vec<Id>,
    },
}

/// A head that the tracker accepted.
#[derive(Clone, Copy, Debug)]
struct Shown {
    head: Id,
    sent: Stamp,
    /// When the node answered.
    said: Stamp,
}

/// The tracker, the true chain, and the answers that the tracker has seen.
pub(super) struct World {
    pub(super) model: Model,
    pub(super) tracker: Tracker,
    rules: Rules,
    flights: Vec<Flight>,
    arrivals: Vec<Stamp>,
    /// The newest head that the tracker accepted.
    shown: Option<Shown>,
    /// When the node gave the answer that made the tracker leave a branch, or when the last write happened.
    turned: Option<Stamp>,
    /// The tracker must ignore answers to requests sent before this stamp.
    barrier: Option<Stamp>,
    written: Option<Stamp>,
    /// The window after the last step, in ascending order.
    window: Vec<Id>,
    lag: Option<(u32, Stamp)>,
    finalized: u64,
}

type Outcome = Result<(), TestCaseError>;

// === impl World ===

impl World {
    pub(super) fn new(rules: Rules, length: usize) -> Self {
        let mut model = Model::new(length, rules.finality);
        let arrivals = vec![model.moment()];
        Self {
            model,
            tracker: Tracker::new(rules.clone()),
            rules,
            flights: Vec::new(),
            arrivals,
            shown: None,
            turned: None,
            barrier: None,
            written: None,
            window: Vec::new(),
            lag: None,
            finalized: 0,
        }
    }

    pub(super) fn step(&mut self, step: &Step) -> Outcome {
        match *step {
            Step::Wait(milliseconds) => self.model.wait(milliseconds),
            Step::Mine(count, step) => self.model.mine(count, step),
            Step::Reorg { depth, length, step } => self.model.reorg(depth, length, step),
            Step::Rollback(depth) => self.model.rollback(depth),
            Step::Turn(choice) => self.model.turn_to(self.model.any(choice)),
            Step::Lag(changes) => self.model.lag(changes),
            Step::LagBehind(blocks) => self.model.lag_behind(blocks),
            Step::CatchUp => self.model.catch_up(),
            Step::Finalize(depth) => self.model.finalize(depth),
            Step::Ask(ref question) => self.ask(question),
            Step::Advance(choice) if !self.flights.is_empty() => {
                let flight = self.flights.remove(choice % self.flights.len());
                if let Some(flight) = self.advance(flight)? {
                    self.flights.push(flight);
                }
            }
            Step::Finish(choice) if !self.flights.is_empty() => {
                let flight = self.flights.remove(choice % self.flights.len());
                self.finish(flight)?;
            }
            Step::Advance(_) | Step::Finish(_) => {}
            Step::Told(ref question) => {
                self.ask(question);
                let flight = self.flights.pop().unwrap();
                self.finish(flight)?;
            }
            Step::Fetched(choice) => {
                let id = self.model.any(choice);
                let expected = self.window.first().is_some_and(|bottom| {
                    bottom.0 != 0 && self.model.parent(*bottom) == id && self.window.len() < self.rules.window
                });
                prop_assert_eq!(self.tracker.observe_block(self.model.link(id), &|_| None), expected);
            }
            Step::Write => {
                let now = self.model.moment();
                self.tracker.invalidate_after_write(now);
                self.turned = Some(now);
                self.barrier = Some(now);
                self.written = Some(now);
            }
            Step::Arrive => {
                let arrival = self.model.moment();
                self.arrivals.push(arrival);
                if self.arrivals.len() > 2 {
                    self.arrivals.remove(0);
                }
            }
        }
        self.check_window()?;
        let bottom = self.bottom();
        for flight in &mut self.flights {
            flight.lowest = flight.lowest.into_iter().chain(bottom).min();
        }
        self.check()
    }

    /// Returns the lowest number in the window.
    fn bottom(&self) -> Option<u64> {
        self.window.first().map(|bottom| self.model.number(*bottom))
    }

    // ## Requests

    fn ask(&mut self, question: &Question) {
        let sent = self.model.moment();
        let lowest = self.bottom();
        self.flights.push(Flight { question: question.clone(), sent, lowest, stage: Stage::Sent });
    }

    fn finish(&mut self, flight: Flight) -> Outcome {
        let mut next = Some(flight);
        while let Some(flight) = next {
            next = self.advance(flight)?;
        }
        Ok(())
    }

    fn advance(&mut self, flight: Flight) -> Result<Option<Flight>, TestCaseError> {
        let Flight { question, sent, lowest, stage } = flight;
        let stage = match (stage, &question) {
            (Stage::Sent, question) => {
                let answer = match question {
                    Question::Head { .. } => Some(self.model.head()),
                    Question::Number { offset, .. } => {
                        let head = self.model.number(self.model.head());
                        head.checked_add_signed(*offset).and_then(|number| self.model.at(number))
                    }
                    Question::Safe => Some(self.model.safe()),
                    Question::Finalized { null } => (!null).then(|| self.model.finalized()),
                    Question::Confirm => {
                        let number = self.tracker.finalized().map(|(number, _)| number.0);
                        number.and_then(|number| self.model.at(number))
                    }
                };
                Stage::Answered { answer, at: self.model.moment() }
            }
            (Stage::Answered { answer: Some(head), at }, Question::Head { .. }) => {
                match self.tracker.gap(self.model.link(head)) {
                    Some(gap) => Stage::GapSent { head, at, gap },
                    None => return self.take_head(head, &[], sent, at).map(|()| None),
                }
            }
            (Stage::GapSent { head, at, gap: Gap { from, to } }, Question::Head { lost, balanced }) => {
                prop_assert!(to.0 - from.0 < Tracker::MAX_GAP);
                let came = |number: &u64| lost.is_none_or(|nth| !number.is_multiple_of(nth as u64));
                let numbers = (from.0..=to.0).filter(came);
                let head_there = if *balanced { self.model.tip() } else { self.model.head() };
                let gap = numbers.filter_map(|number| self.model.ancestor(head_there, number)).collect();
                Stage::GapAnswered { head, at, gap }
            }
            (Stage::GapAnswered { head, at, gap }, _) => {
                return self.take_head(head, &gap, sent, at).map(|()| None);
            }
            (Stage::Answered { answer, .. }, question) => {
                return self.take(question, answer, sent, lowest).map(|()| None);
            }
            (Stage::GapSent { .. }, _) => unreachable!("only requests for the head have gaps"),
        };
        Ok(Some(Flight { question, sent, lowest, stage }))
    }

    fn take(&mut self, question: &Question, answer: Option<Id>, sent: Stamp, lowest: Option<u64>) -> Outcome {
        let link = answer.map(|id| self.model.link(id));
        match (question, answer, link) {
            (Question::Number { whole, .. }, Some(id), Some(link)) => {
                let counts = self.barrier.is_none_or(|barrier| !sent.is_before(barrier));
                let told = if *whole {
                    self.tracker.observe_number(link, sent, &|_| None)
                } else {
                    self.tracker.observe_place(TxHash(link.hash.0), link.number, link.hash, sent)
                };
                // Whether the tracked branch can contain the block.
                let top = self.window.last();
                let tracked = top.is_none_or(|top| link.number.0 > self.model.number(*top))
                    || top.is_some_and(|top| self.model.descends(*top, id));
                // The window contained the number while the answer was in flight, and no longer does.
                let outgrown = lowest.is_some_and(|lowest| lowest <= link.number.0)
                    && self.bottom().is_some_and(|bottom| link.number.0 < bottom);
                if told.is_err() {
                    prop_assert!(counts && (outgrown || !tracked || !self.model.is_final(id)));
                } else if counts && self.window.iter().any(|known| self.model.number(*known) == link.number.0)
                {
                    prop_assert!(tracked || link.number.0 <= self.finalized);
                }
            }
            (Question::Safe, _, Some(link)) => {
                let now = self.model.moment();
                self.tracker.observe_safe(link, sent, now);
            }
            (Question::Finalized { .. }, _, link) => {
                let now = self.model.moment();
                match self.tracker.observe_finalized(link, sent, now, &|_| None) {
                    Finalized::Alarm | Finalized::Doubted => {
                        prop_assert!(false, "no final block has changed");
                    }
                    Finalized::Contrary => {
                        let top = *self.window.last().unwrap();
                        prop_assert!(!self.model.descends(top, answer.unwrap()));
                    }
                    Finalized::Advanced { previous } => {
                        prop_assert!(previous.is_none_or(|(number, _)| number.0 == self.finalized));
                        let (number, hash) = self.tracker.finalized().unwrap();
                        prop_assert_eq!(Some((number, hash)), link.map(|link| (link.number, link.hash)));
                    }
                    Finalized::Unchanged => {
                        // The answer is `null`, its block is not higher than before or is above the head, or blocks left
                        // the chain since the request.
                        let head = self.window.last().map(|top| self.model.number(*top));
                        let counts = |link: &Link| {
                            self.rules.finality
                                && !self.tracker.has_left(sent)
                                && head.is_some_and(|head| link.number.0 <= head)
                                && (link.number.0 > self.finalized || self.tracker.finalized().is_none())
                        };
                        prop_assert!(!link.as_ref().is_some_and(counts));
                    }
                }
            }
            (Question::Confirm, _, Some(link)) => {
                let now = self.model.moment();
                let told = self.tracker.confirm_final(link.number, link.hash, now);
                prop_assert_eq!(told, Finalized::Unchanged);
            }
            _ => {}
        }
        Ok(())
    }
}
