//! A model of a node and its chain that records which blocks were canonical at which time.

use std::{rc::Rc, time::Duration};

use alloy_primitives::B256;
use tokio::time::Instant;

use crate::{
    chain::{Link, Stamp},
    eth::{BlockHash, BlockNumber},
};

/// Index of a block in [`Model::blocks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id(pub(super) usize);

/// A tree of blocks, and the heads that the node has had.
#[derive(Debug)]
pub(super) struct Model {
    blocks: Vec<Block>,
    /// The head of the network; the node may lag behind it.
    tip: Id,
    lagging: bool,
    /// All canonical chains that the node has had, oldest first.
    views: Vec<View>,
    /// The newest block that is truly final. Every chain that the node ever shows agrees with it.
    finalized: Id,
    finality: bool,
    now: Stamp,
}

#[derive(Debug)]
struct Block {
    number: u64,
    parent: Id,
}

/// The node's canonical chain from a point in time on.
#[derive(Clone, Debug)]
struct View {
    since: Stamp,
    head: Id,
    /// Canonical blocks by number.
    chain: Rc<[Option<Id>]>,
}

// === impl Id ===

impl Id {
    pub(super) fn hash(self) -> BlockHash {
        BlockHash(B256::left_padding_from(&(self.0 as u64 + 1).to_be_bytes()))
    }

    pub(super) fn of(hash: BlockHash) -> Self {
        let bytes = hash.0[24..].try_into().unwrap();
        Self(usize::try_from(u64::from_be_bytes(bytes)).unwrap() - 1)
    }
}

// === impl Model ===

impl Model {
    /// Returns a chain of a genesis and `length` blocks. Without `finality`, no block becomes final.
    pub(super) fn new(length: usize, finality: bool) -> Self {
        let genesis = Id(0);
        let start = Stamp { time: Instant::now(), order: 0 };
        let mut model = Self {
            blocks: vec![Block { number: 0, parent: genesis }],
            tip: genesis,
            lagging: false,
            views: vec![View { since: start, head: genesis, chain: Rc::new([Some(genesis)]) }],
            finalized: genesis,
            finality,
            now: start,
        };
        model.mine(length, 1);
        model
    }

    // ## Time

    pub(super) fn wait(&mut self, milliseconds: u64) {
        self.now.time += Duration::from_millis(milliseconds);
    }

    /// Returns a stamp that is later than all others.
    pub(super) fn moment(&mut self) -> Stamp {
        self.now.order += 1;
        self.now
    }

    // ## Blocks

    pub(super) fn any(&self, choice: usize) -> Id {
        Id(choice % self.blocks.len())
    }

    pub(super) fn number(&self, id: Id) -> u64 {
        self.blocks[id.0].number
    }

    pub(super) fn parent(&self, id: Id) -> Id {
        self.blocks[id.0].parent
    }

    pub(super) fn link(&self, id: Id) -> Link {
        // No block has the parent hash of the genesis.
        let parent = if id.0 == 0 { BlockHash(B256::ZERO) } else { self.parent(id).hash() };
        let timestamp = Some(self.number(id));
        Link { number: BlockNumber(self.number(id)), hash: id.hash(), parent, timestamp }
    }

    /// Returns the block at `number` on the chain that ends in `id`.
    pub(super) fn ancestor(&self, mut id: Id, number: u64) -> Option<Id> {
        while self.number(id) > number {
            id = self.parent(id);
        }
        (self.number(id) == number).then_some(id)
    }

    pub(super) fn descends(&self, id: Id, from: Id) -> bool {
        self.ancestor(id, self.number(from)) == Some(from)
    }

    /// Returns the ancestor `blocks` generations before `id`, or the genesis.
    fn back(&self, id: Id, blocks: usize) -> Id {
        (0..blocks).fold(id, |id, _| self.parent(id))
    }

    // ## Events

    /// Mines `count` blocks on the tip. Each has a number `step` higher than its parent's.
    pub(super) fn mine(&mut self, count: usize, step: u64) {
        for _ in 0..count {
            self.blocks.push(Block { number: self.number(self.tip) + step, parent: self.tip });
            self.tip = Id(self.blocks.len() - 1);
        }
        self.follow();
    }

    /// Replaces the newest `depth` blocks by `length` others.
    pub(super) fn reorg(&mut self, depth: usize, length: usize, step: u64) {
        let base = self.back(self.tip, depth);
        if self.may_be(base) {
            self.tip = base;
            self.mine(length, step);
        }
    }

    pub(super) fn rollback(&mut self, depth: usize) {
        self.turn_to(self.back(self.tip, depth));
    }

    /// Makes `tip` the tip, unless that contradicts finality.
    pub(super) fn turn_to(&mut self, tip: Id) {
        if self.may_be(tip) {
            self.tip = tip;
            self.follow();
        }
    }

    /// Makes the node show the head of this many changes ago, until it catches up.
    pub(super) fn lag(&mut self, changes: usize) {
        let past = &self.views[self.views.len().saturating_sub(1 + changes)];
        self.lag_at(past.head);
    }

    /// Makes the node show the block this many blocks below the tip, until it catches up.
    pub(super) fn lag_behind(&mut self, blocks: usize) {
        self.lag_at(self.back(self.tip, blocks));
    }

    fn lag_at(&mut self, head: Id) {
        // Even a lagging node does not contradict finality.
        if self.agrees(head, self.finalized) {
            self.lagging = true;
            self.show(head);
        }
    }

    pub(super) fn catch_up(&mut self) {
        self.lagging = false;
        self.follow();
    }

    /// Makes the block `depth` below the tip final.
    pub(super) fn finalize(&mut self, depth: usize) {
        let finalized = self.back(self.tip, depth);
        let higher = self.number(finalized) > self.number(self.finalized);
        if self.finality && higher && self.agrees(self.head(), finalized) {
            self.finalized = finalized;
        }
    }

    fn may_be(&self, tip: Id) -> bool {
        self.descends(tip, self.finalized)
    }

    fn agrees(&self, head: Id, finalized: Id) -> bool {
        self.descends(head, finalized) || self.descends(finalized, head)
    }

    fn follow(&mut self) {
        if !self.lagging {
            self.show(self.tip);
        }
    }

    fn show(&mut self, head: Id) {
        if head == self.head() {
            return;
        }
        let mut chain = vec![None; self.number(head) as usize + 1];
        let mut id = head;
        loop {
            chain[self.number(id) as usize] = Some(id);
            if id.0 == 0 {
                break;
            }
            id = self.parent(id);
        }
        let since = self.moment();
        self.views.push(View { since, head, chain: chain.into() });
    }

    // ## The node's answers now

    fn view(&self) -> &View {
        &self.views[self.views.len() - 1]
    }

    pub(super) fn head(&self) -> Id {
        self.view().head
    }

    /// Returns the head of a node that does not lag.
    pub(super) fn tip(&self) -> Id {
        self.tip
    }

    pub(super) fn at(&self, number: u64) -> Option<Id> {
        self.view().at(number)
    }

    pub(super) fn safe(&self) -> Id {
        self.back(self.head(), 2)
    }

    /// Returns the node's finalized block. If the node lags below the true finalized block, that is the node's head.
    pub(super) fn finalized(&self) -> Id {
        if self.descends(self.head(), self.finalized) { self.finalized } else { self.head() }
    }

    // ## The true chain in the past

    pub(super) fn is_final(&self, id: Id) -> bool {
        self.descends(self.finalized, id)
    }

    /// Returns the node's chain at a point in time.
    fn seen(&self, moment: Stamp) -> &View {
        let next = self.views.partition_point(|view| view.since.order <= moment.order);
        &self.views[next - 1]
    }

    pub(super) fn head_at(&self, moment: Stamp) -> Id {
        self.seen(moment).head
    }

    pub(super) fn at_moment(&self, number: u64, moment: Stamp) -> Option<Id> {
        self.seen(moment).at(number)
    }

    /// Returns whether `id` was canonical at any stamp for which `counts` returns true.
    pub(super) fn stood(&self, id: Id, counts: impl Fn(Stamp) -> bool) -> bool {
        let number = self.number(id);
        // `counts` is monotonic in time, so the last moment of each view decides.
        let before = |next: &View| Stamp { order: next.since.order - 1, ..next.since };
        let ends = self.views[1..].iter().map(before).chain([self.now]);
        self.views.iter().zip(ends).any(|(view, end)| counts(end) && view.at(number) == Some(id))
    }

    /// Returns whether `id` was canonical before the last time that `other`, which has the same number, was canonical.
    pub(super) fn stood_before(&self, id: Id, other: Id) -> bool {
        let number = self.number(id);
        let last = self.views.iter().rposition(|view| view.at(number) == Some(other));
        last.is_some_and(|last| self.views[..last].iter().any(|view| view.at(number) == Some(id)))
    }
}

// === impl View ===

impl View {
    fn at(&self, number: u64) -> Option<Id> {
        self.chain.get(usize::try_from(number).ok()?).copied().flatten()
    }
}
