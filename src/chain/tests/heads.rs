//! Effects of a head on the tracked branch.

use std::time::Duration;

use super::*;

#[test]
fn heads_that_follow_each_other_are_linked_and_served() {
    let mut told = Told::new(ethereum());
    assert_eq!(told.head(block(100, 'a')), HeadChange::First);
    assert_eq!(told.head(block(100, 'a')), HeadChange::Same);
    assert_eq!(told.head(block(101, 'a')), HeadChange::Extended(1));
    assert_eq!(told.at(100), tracked(block(100, 'a')));
    assert_eq!(told.at(101), tracked(block(101, 'a')));
    assert_eq!(told.at(102), Lookup::Above { fresh: true });
    assert_eq!(told.at(99), Lookup::Unknown);
}

#[test]
fn head_is_fresh_for_max_staleness_after_its_request() {
    let mut told = Told::new(ethereum());
    let sent = told.now();
    told.wait(SECOND / 2);
    told.late_head(block(100, 'a'), &[], sent);
    told.wait(SECOND / 2);
    assert_eq!(told.at(100), tracked(block(100, 'a')));
    told.wait(Duration::from_nanos(1));
    assert_eq!(told.at(100), Lookup::Tracked { hash: hash(100, 'a'), fresh: false });
    assert_eq!(told.at(101), Lookup::Above { fresh: false });
}

#[test]
fn zero_staleness_uses_only_requests_sent_after_arrival() {
    let mut told = Told::new(development());
    let before = told.now();
    told.head(block(100, 'a'));
    told.number(block(50, 'a')).unwrap();
    let after = told.now();
    let fresh = |fresh| Lookup::Tracked { hash: hash(100, 'a'), fresh };
    assert_eq!(told.tracker.lookup(BlockNumber(100), before), fresh(true));
    assert_eq!(told.tracker.lookup(BlockNumber(100), after), fresh(false));
    assert_eq!(told.tracker.lookup(BlockNumber(50), before), Lookup::Asked(hash(50, 'a')));
    assert_eq!(told.tracker.lookup(BlockNumber(50), after), Lookup::Unknown);
}

#[test]
fn a_gap_of_64_is_closed() {
    let mut told = Told::shown(ethereum(), 100..=100);
    let head = block(165, 'a');
    assert_eq!(told.tracker.gap(head), Some(Gap { from: BlockNumber(101), to: BlockNumber(164) }));
    let mut gap = blocks(101..=164, 'a');
    gap.reverse();
    gap.swap(3, 40);
    assert_eq!(told.head_over(head, &gap), HeadChange::Extended(65));
    assert_eq!(told.numbers(), (100..=165).collect::<Vec<_>>());
}

#[test]
fn a_gap_of_65_restarts_the_window() {
    let mut told = Told::shown(ethereum(), 100..=100);
    let head = block(166, 'a');
    assert_eq!(told.tracker.gap(head), None);
    assert_eq!(told.head(head), HeadChange::Restarted);
    assert_eq!(told.numbers(), [166]);
    assert_eq!(told.at(100), Lookup::Unknown);
}

#[test]
fn open_gap_keeps_only_linked_ancestors_of_the_head() {
    let mut told = Told::shown(ethereum(), 98..=100);
    let gap = [block(102, 'a'), block(104, 'a'), block(103, 'b')];
    assert_eq!(told.head_over(block(105, 'a'), &gap), HeadChange::Reorg(3));
    assert_eq!(told.numbers(), [104, 105]);
}

#[test]
fn a_gap_answered_from_another_branch_links_nothing() {
    let mut told = Told::shown(ethereum(), 98..=100);
    let gap = [fork(101, 'b', 'a'), block(102, 'b')];
    assert_eq!(told.head_over(block(103, 'a'), &gap), HeadChange::Reorg(3));
    assert_eq!(told.numbers(), [103]);
}

#[test]
fn gap_closed_by_another_refresh_is_no_reorg() {
    let mut told = Told::shown(ethereum(), 99..=100);
    let (first, second) = (told.now(), told.now());
    let gap = blocks(101..=109, 'a');
    assert_eq!(told.late_head(block(105, 'a'), &gap[..4], first), HeadChange::Extended(5));
    assert_eq!(told.late_head(block(110, 'a'), &gap, second), HeadChange::Extended(5));
    assert_eq!(told.numbers(), (99..=110).collect::<Vec<_>>());
}

#[test]
fn equal_height_head_over_a_known_parent_keeps_its_ancestors() {
    let mut told = Told::shown(ethereum(), 95..=100);
    let head = fork(100, 'b', 'a');
    assert_eq!(told.tracker.gap(head), None);
    assert_eq!(told.head(head), HeadChange::Reorg(1));
    assert_eq!(told.numbers(), (95..=100).collect::<Vec<_>>());
    assert_eq!(told.at(100), tracked(head));
    assert_eq!(told.at(99), tracked(block(99, 'a')));
}

#[test]
fn a_lower_head_over_a_known_parent_is_a_reorg_at_once() {
    let mut told = Told::shown(ethereum(), 95..=100);
    assert_eq!(told.head(fork(98, 'b', 'a')), HeadChange::Reorg(3));
    assert_eq!(told.numbers(), [95, 96, 97, 98]);
    assert_eq!(told.at(99), Lookup::Above { fresh: true });
}

#[test]
fn two_deep_reorg_without_its_gap_clears_the_window() {
    let mut told = Told::shown(ethereum(), 95..=100);
    assert_eq!(told.head(block(100, 'b')), HeadChange::Reorg(6));
    assert_eq!(told.numbers(), [100]);
    assert_eq!(told.at(98), Lookup::Unknown);
}

#[test]
fn reorg_under_a_gap_keeps_the_blocks_of_the_gap() {
    let mut told = Told::shown(ethereum(), 95..=100);
    assert_eq!(told.head_over(block(103, 'b'), &blocks(101..=102, 'b')), HeadChange::Reorg(6));
    assert_eq!(told.numbers(), [101, 102, 103]);
}

#[test]
fn parent_number_may_be_lower_by_more_than_one() {
    let mut told = Told::shown(ethereum(), 95..=100);
    assert_eq!(told.head(child(103, 'a', hash(100, 'a'))), HeadChange::Extended(1));
    assert_eq!(told.at(102), Lookup::Unknown);
    // The parent of 104 is 98, so the new branch forks off lower than the number 104 suggests.
    let head = child(104, 'b', hash(98, 'a'));
    assert_eq!(told.tracker.gap(head), None);
    assert_eq!(told.head(head), HeadChange::Reorg(3));
    assert_eq!(told.numbers(), [95, 96, 97, 98, 104]);
}

#[test]
fn number_skipped_by_the_branch_has_no_block() {
    let mut told = Told::shown(ethereum(), 95..=100);
    told.head(child(103, 'a', hash(100, 'a')));
    assert_eq!(told.number(block(101, 'b')), Err(Contrary::Tracked));
    assert_eq!(told.finalized(block(102, 'b')), Finalized::Contrary);
}

#[test]
fn window_size_is_capped() {
    let mut told = Told::shown(Rules { window: 4, ..ethereum() }, 95..=100);
    assert_eq!(told.numbers(), [97, 98, 99, 100]);
    told.head_over(block(110, 'a'), &blocks(101..=109, 'a'));
    assert_eq!(told.numbers(), [107, 108, 109, 110]);
    assert!(!told.tracker.observe_block(block(106, 'a'), &|_| None));
    told.number(block(106, 'a')).unwrap();
    assert_eq!(told.numbers(), [107, 108, 109, 110]);
}

#[test]
fn largest_block_numbers_are_tracked() {
    let mut told = Told::new(ethereum());
    told.head(block(u64::MAX - 1, 'a'));
    assert_eq!(told.head(block(u64::MAX, 'a')), HeadChange::Extended(1));
    assert_eq!(told.head(block(u64::MAX, 'b')), HeadChange::Reorg(2));
    assert_eq!(told.head(block(3, 'b')), HeadChange::Reorg(1));
    assert_eq!(told.head(block(u64::MAX, 'b')), HeadChange::Restarted);
}

#[test]
fn blocks_that_claim_to_be_above_their_children_are_not_linked() {
    let mut told = Told::shown(ethereum(), 100..=100);
    let above = Link { hash: hash(102, 'a'), ..block(200, 'a') };
    assert_eq!(told.head_over(block(103, 'a'), &[above]), HeadChange::Reorg(1));
    assert_eq!(told.numbers(), [103]);
}
