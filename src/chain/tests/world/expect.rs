//! Derives the expected effect of each head from the tree of blocks.

use proptest::prelude::*;

use super::{Outcome, Shown, World};
use crate::{
    chain::{HeadChange, Stamp, Tracker, tests::model::Id},
    eth::BlockNumber,
};

impl World {
    pub(super) fn take_head(&mut self, head: Id, gap: &[Id], sent: Stamp, said: Stamp) -> Outcome {
        let now = self.model.moment();
        let (expected, kept) = self.expect(head, gap, sent, now);
        let links: Vec<_> = gap.iter().map(|id| self.model.link(*id)).collect();
        let finalized = self.tracker.must_show(self.model.link(head), &links, now);
        let change = self.tracker.observe_head(self.model.link(head), &links, finalized, sent, now);
        match (change, expected) {
            // The count is not predictable if the window does not contain the new head.
            (HeadChange::Rollback(_), HeadChange::Rollback(0)) => {}
            _ => prop_assert_eq!(change, expected),
        }
        match change {
            HeadChange::Outdated => return Ok(()),
            HeadChange::First | HeadChange::Reorg(_) | HeadChange::Rollback(_) | HeadChange::Restarted => {
                self.turned = Some(said);
                self.barrier = Some(now);
            }
            _ => {}
        }
        if change != HeadChange::Lag {
            self.lag = None;
        }
        self.shown = Some(Shown { head, sent, said });
        let window = self.tracked_window();
        prop_assert_eq!(window.last(), kept.last());
        for id in kept.iter().rev().take(self.rules.window) {
            prop_assert!(window.contains(id), "{id:?} was shown but is not in the window");
        }
        Ok(())
    }

    /// Returns the expected effect of a head, and the blocks that must be in the window afterwards.
    fn expect(&mut self, head: Id, gap: &[Id], sent: Stamp, now: Stamp) -> (HeadChange, Vec<Id>) {
        let newest = self.shown.map(|shown| shown.sent);
        if [newest, self.barrier].into_iter().flatten().any(|since| sent.is_before(since)) {
            return (HeadChange::Outdated, Vec::new());
        }
        let (Some(&top), Some(&bottom)) = (self.window.last(), self.window.first()) else {
            return (HeadChange::First, vec![head]);
        };
        if head == top {
            return (HeadChange::Same, self.window.clone());
        }
        if let Some(place) = self.window.iter().position(|id| *id == head) {
            let kept = self.window[..=place].to_vec();
            return self.expect_lag(self.window.len() - 1 - place, kept, now);
        }
        let number = BlockNumber(self.model.number(head));
        let finals = self.tracker.final_blocks(number.0.checked_sub(1).map(BlockNumber), number);
        if number.0 < self.model.number(top) && finals.contains(&(number, head.hash())) {
            // A final block is on the tracked branch, even if the window does not contain it.
            let mut kept = self.window.clone();
            kept.retain(|id| self.model.number(*id) <= number.0);
            let left = self.window.len() - kept.len();
            let kept = if kept.is_empty() { vec![head] } else { kept };
            return self.expect_lag(left, kept, now);
        }
        let mut lineage = vec![head];
        let mut id = self.model.parent(head);
        loop {
            if let Some(place) = self.window.iter().position(|known| *known == id) {
                let left = self.window.len() - 1 - place;
                let grown = lineage.len();
                let kept = self.window[..=place].iter().chain(lineage.iter().rev()).copied().collect();
                let change = if left == 0 { HeadChange::Extended(grown) } else { HeadChange::Reorg(left) };
                return (change, kept);
            }
            if !gap.contains(&id) {
                break;
            }
            lineage.push(id);
            id = self.model.parent(id);
        }
        let (number, above) = (self.model.number(head), self.model.number(top));
        if number < self.model.number(bottom) {
            let mut id = self.model.parent(bottom);
            while id != head && gap.contains(&id) {
                id = self.model.parent(id);
            }
            if id == head {
                return self.expect_lag(0, vec![head], now);
            }
        }
        lineage.reverse();
        let too_far = number > above + Tracker::MAX_GAP + 1;
        let change = if too_far { HeadChange::Restarted } else { HeadChange::Reorg(self.window.len()) };
        (change, lineage)
    }

    /// Returns the expected effect of a lower head: a rollback that drops `left` blocks and keeps `kept`, or a lag.
    fn expect_lag(&mut self, left: usize, kept: Vec<Id>, now: Stamp) -> (HeadChange, Vec<Id>) {
        let (observations, since) = self.lag.get_or_insert((0, now));
        *observations += 1;
        let decided = *observations >= self.rules.rollback_after
            && now.time.duration_since(since.time) >= self.rules.lag_patience;
        if decided { (HeadChange::Rollback(left), kept) } else { (HeadChange::Lag, self.window.clone()) }
    }
}
