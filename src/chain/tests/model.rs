//! A node and its chain, of which everything is known: what was true, and when.

use std::{rc::Rc, time::Duration};

use alloy_primitives::B256;
use tokio::time::Instant;

use crate::{
    chain::{Link, Stamp},
    eth::{BlockHash, BlockNumber},
};

/// A block, by its place in [`Model::blocks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id(pub(super) usize);

/// A tree of blocks, and which of them the node has held to be its head.
#[derive(Debug)]
pub(super) struct Model {
    blocks: Vec<Block>,
    /// The head of the network; the node may lag behind it.
    tip: Id,
    lagging: bool,
    /// From oldest to newest.
    views: Vec<View>,
    /// The newest block that is truly final. Every chain that is ever seen agrees with it.
    finalized: Id,
    finality: bool,
    now: Stamp,
}

#[derive(Debug)]
struct Block {
    number: u64,
    parent: Id,
}

/// What the node held to be its chain from a moment on.
#[derive(Clone, Debug)]
struct View {
    since: Stamp,
    head: Id,
    /// By number.
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
    /// A genesis and `length` blocks on it; without `finality`, finality binds nothing.
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

    /// A moment after all others.
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
        // The genesis has a parent that is no block.
        let parent = if id.0 == 0 { BlockHash(B256::ZERO) } else { self.parent(id).hash() };
        let timestamp = Some(self.number(id));
        Link { number: BlockNumber(self.number(id)), hash: id.hash(), parent, timestamp }
    }

    /// The ancestor of `id`, or itself, at a number.
    pub(super) fn ancestor(&self, mut id: Id, number: u64) -> Option<Id> {
        while self.number(id) > number {
            id = self.parent(id);
        }
        (self.number(id) == number).then_some(id)
    }

    pub(super) fn descends(&self, id: Id, from: Id) -> bool {
        self.ancestor(id, self.number(from)) == Some(from)
    }

    /// The block so many blocks before this one, or the first.
    fn back(&self, id: Id, blocks: usize) -> Id {
        (0..blocks).fold(id, |id, _| self.parent(id))
    }

    // ## What happens

    /// `count` blocks on top of the tip; each number is `step` more than that of its parent.
    pub(super) fn mine(&mut self, count: usize, step: u64) {
        for _ in 0..count {
            self.blocks.push(Block { number: self.number(self.tip) + step, parent: self.tip });
            self.tip = Id(self.blocks.len() - 1);
        }
        self.follow();
    }

    /// Leaves the newest `depth` blocks for `length` others.
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

    /// Any block that there ever was becomes the tip.
    pub(super) fn turn_to(&mut self, tip: Id) {
        if self.may_be(tip) {
            self.tip = tip;
            self.follow();
        }
    }

    /// The node shows again what it showed so many changes ago, until it catches up.
    pub(super) fn lag(&mut self, changes: usize) {
        let past = &self.views[self.views.len().saturating_sub(1 + changes)];
        self.lag_at(past.head);
    }

    /// The node shows what is so many blocks below the tip, until it catches up.
    pub(super) fn lag_behind(&mut self, blocks: usize) {
        self.lag_at(self.back(self.tip, blocks));
    }

    fn lag_at(&mut self, head: Id) {
        // Not even a lagging node contradicts what is final.
        if self.agrees(head, self.finalized) {
            self.lagging = true;
            self.show(head);
        }
    }

    pub(super) fn catch_up(&mut self) {
        self.lagging = false;
        self.follow();
    }

    /// What is `depth` below the tip becomes final.
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

    // ## What the node says now

    fn view(&self) -> &View {
        &self.views[self.views.len() - 1]
    }

    pub(super) fn head(&self) -> Id {
        self.view().head
    }

    /// What a node that does not lag says.
    pub(super) fn tip(&self) -> Id {
        self.tip
    }

    pub(super) fn at(&self, number: u64) -> Option<Id> {
        self.view().at(number)
    }

    pub(super) fn safe(&self) -> Id {
        self.back(self.head(), 2)
    }

    /// A lagging node knows of no more than it has.
    pub(super) fn finalized(&self) -> Id {
        if self.descends(self.head(), self.finalized) { self.finalized } else { self.head() }
    }

    // ## What was true

    pub(super) fn is_final(&self, id: Id) -> bool {
        self.descends(self.finalized, id)
    }

    /// The view at a moment.
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

    /// Did `id` stand at its number in the node's view at any moment that `counts`?
    pub(super) fn stood(&self, id: Id, counts: impl Fn(Stamp) -> bool) -> bool {
        let number = self.number(id);
        // What counts, counts to the end: so the last moment of each view decides.
        let before = |next: &View| Stamp { order: next.since.order - 1, ..next.since };
        let ends = self.views[1..].iter().map(before).chain([self.now]);
        self.views.iter().zip(ends).any(|(view, end)| counts(end) && view.at(number) == Some(id))
    }

    /// Did `id` stand at its number before `other`, which is at the same, last did?
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
