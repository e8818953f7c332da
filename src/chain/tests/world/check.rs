//! Compares the tracker's lookups with the true chain.

use proptest::prelude::*;

use super::{Outcome, World};
use crate::{
    chain::{
        Link, Lookup, Stamp,
        tests::{links, model::Id},
    },
    eth::{BlockHash, BlockNumber},
};

impl World {
    pub(super) fn tracked_window(&self) -> Vec<Id> {
        links(&self.tracker).iter().map(|link| Id::of(link.hash)).collect()
    }

    /// Checks that the window is one gapless branch of the true tree, within its capacity.
    pub(super) fn check_window(&mut self) -> Outcome {
        let window = self.tracked_window();
        prop_assert!(window.len() <= self.rules.window);
        prop_assert!(window.windows(2).all(|pair| self.model.parent(pair[1]) == pair[0]));
        for (link, id) in links(&self.tracker).iter().zip(&window) {
            prop_assert_eq!(*link, self.model.link(*id));
        }
        prop_assert_eq!(self.tracker.head().map(|head| Id::of(head.hash)), window.last().copied());
        self.window = window;
        Ok(())
    }

    pub(super) fn check(&mut self) -> Outcome {
        if let Some((number, hash)) = self.tracker.finalized() {
            prop_assert!(number.0 >= self.finalized, "finalized only rises");
            prop_assert!(self.model.is_final(Id::of(hash)));
            self.finalized = number.0;
        }
        let now = self.model.moment();
        let mut numbers: Vec<u64> = vec![0, 1, self.finalized, self.finalized + 1];
        let ends = [self.window.first(), self.window.last(), self.shown.as_ref().map(|shown| &shown.head)];
        for end in ends
            .into_iter()
            .flatten()
            .map(|id| self.model.number(*id))
            .chain([self.model.number(self.model.head())])
        {
            numbers.extend(end.saturating_sub(3)..=end + 3);
        }
        numbers.sort_unstable();
        numbers.dedup();
        for arrival in self.arrivals.iter().copied().chain([now]) {
            for number in &numbers {
                self.check_number(*number, arrival)?;
            }
            self.check_tag(self.tracker.safe(arrival), arrival)?;
            self.check_tag(self.tracker.finalized_tag(arrival), arrival)?;
        }
        Ok(())
    }

    pub(in crate::chain::tests) fn check_everything(&mut self) -> Outcome {
        let now = self.model.moment();
        for number in 0..self.model.number(self.model.head()) + 5 {
            self.check_number(number, now)?;
        }
        Ok(())
    }

    fn check_number(&self, number: u64, arrival: Stamp) -> Outcome {
        let model = &self.model;
        let serves = |moment: Stamp| moment.serves(arrival, self.rules.max_staleness);
        let since = |moment: Stamp, since: Option<Stamp>| since.is_none_or(|since| !moment.is_before(since));
        let is_fresh = |sent| serves(sent) && since(sent, self.written) && !self.tracker.is_behind();
        let lookup = self.tracker.lookup(BlockNumber(number), arrival);
        let id = |hash: BlockHash| {
            let id = Id::of(hash);
            prop_assert_eq!(model.number(id), number);
            Ok(id)
        };
        let lower = self.shown.filter(|_| self.tracker.lags()).map(|shown| model.number(shown.head));
        match lookup {
            Lookup::Final(hash) => {
                prop_assert!(self.rules.finality && number <= self.finalized);
                prop_assert!(model.is_final(id(hash)?), "{number} is not final");
            }
            Lookup::Tracked { hash, fresh } => {
                let id = id(hash)?;
                prop_assert!(lower.is_none_or(|lower| number <= lower), "{number} is above the lagging head");
                let shown = self.shown.unwrap();
                prop_assert_eq!(fresh, is_fresh(shown.sent));
                if self.window.contains(&id) {
                    // The block was canonical when the node showed the last accepted head.
                    prop_assert_eq!(model.at_moment(number, shown.said), Some(id), "{} is orphaned", number);
                    prop_assert!(!fresh || model.stood(id, serves));
                } else {
                    prop_assert!(self.rules.consistent);
                    let stood = model.stood(id, |moment| since(moment, Some(shown.said)) && serves(moment));
                    let left_and_entered = |tracked| model.stood_before(tracked, id);
                    let unseen = model.at_moment(number, shown.said).is_some_and(left_and_entered);
                    prop_assert!(!fresh || stood || unseen, "{number} is orphaned");
                }
            }
            Lookup::Asked(hash) => {
                let id = id(hash)?;
                prop_assert!(model.stood(id, serves), "{number} left the chain too long ago");
                let turned = model.stood(id, |moment| since(moment, self.turned));
                prop_assert!(turned, "{number} left the chain, and the tracker saw it");
                let head = lower.or(self.window.last().map(|top| model.number(*top)));
                if head.is_some_and(|head| number > head) {
                    let said = self.shown.map(|shown| shown.said);
                    let later = model.stood(id, |moment| since(moment, said));
                    prop_assert!(later, "{number} left the chain before the head was shown");
                }
            }
            Lookup::Above { fresh } => {
                let shown = self.shown.unwrap();
                prop_assert!(!fresh || lower.is_none(), "{number} must be unknown during a lag");
                prop_assert_eq!(fresh, is_fresh(shown.sent));
                let had_none = model.number(model.head_at(shown.said)) < number;
                prop_assert!(lower.is_some() || had_none, "{number} had a block");
            }
            Lookup::Unknown => {
                let known = self.window.iter().any(|id| model.number(*id) == number);
                prop_assert!(!known || lower.is_some(), "{number} is tracked but unknown");
            }
        }
        Ok(())
    }

    fn check_tag(&self, tag: Option<Link>, arrival: Stamp) -> Outcome {
        let Some(link) = tag else { return Ok(()) };
        let serves = |moment: Stamp| moment.serves(arrival, self.rules.max_staleness);
        let since = |moment: Stamp| self.turned.is_none_or(|turned| !moment.is_before(turned));
        prop_assert!(self.model.stood(Id::of(link.hash), |moment| serves(moment) && since(moment)));
        Ok(())
    }
}
