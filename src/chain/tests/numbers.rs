//! Answers for single numbers, and blocks fetched by hash.

use std::time::Duration;

use super::*;

#[test]
fn single_number_is_canonical_for_max_staleness() {
    let mut told = Told::shown(ethereum(), 100..=100);
    told.number(block(50, 'a')).unwrap();
    told.wait(SECOND);
    assert_eq!(told.at(50), Lookup::Asked(hash(50, 'a')));
    told.wait(Duration::from_nanos(1));
    told.head(block(101, 'a'));
    assert_eq!(told.at(50), Lookup::Unknown);
}

#[test]
fn answer_to_the_latest_request_wins() {
    let mut told = Told::shown(ethereum(), 100..=100);
    let early = told.now();
    told.number(block(50, 'b')).unwrap();
    told.late_number(block(50, 'a'), early).unwrap();
    assert_eq!(told.at(50), Lookup::Asked(hash(50, 'b')));
}

#[test]
fn a_consistent_upstreams_number_lasts_while_heads_link() {
    let mut told = Told::shown(Rules { consistent: true, ..ethereum() }, 100..=100);
    told.number(block(50, 'a')).unwrap();
    told.wait(10 * SECOND);
    assert_eq!(told.at(50), Lookup::Tracked { hash: hash(50, 'a'), fresh: false });
    told.head_over(block(103, 'a'), &blocks(101..=102, 'a'));
    assert_eq!(told.at(50), tracked(block(50, 'a')));
    told.head(block(103, 'b'));
    assert_eq!(told.at(50), Lookup::Unknown);
}

#[test]
fn a_consistent_upstreams_number_above_the_head_does_not_last() {
    let mut told = Told::shown(Rules { consistent: true, ..ethereum() }, 100..=100);
    told.number(block(101, 'a')).unwrap();
    assert_eq!(told.at(101), Lookup::Unknown, "a number above the head is not served");
    told.wait(2 * SECOND);
    assert_eq!(told.at(101), Lookup::Above { fresh: false });
}

#[test]
fn number_that_links_to_the_window_lasts() {
    let mut told = Told::shown(ethereum(), 100..=100);
    told.number(block(97, 'a')).unwrap();
    told.number(block(98, 'a')).unwrap();
    assert_eq!(told.numbers(), [100]);
    told.number(block(99, 'a')).unwrap();
    assert_eq!(told.numbers(), [97, 98, 99, 100]);
    assert!(told.tracker.observe_block(block(96, 'a'), &|_| None));
    told.wait(2 * SECOND);
    told.head(block(101, 'a'));
    assert_eq!(told.at(96), tracked(block(96, 'a')));
    assert_eq!(told.at(98), tracked(block(98, 'a')));
}

#[test]
fn orphan_changes_nothing() {
    let mut told = Told::shown(ethereum(), 99..=100);
    for side in [block(98, 'b'), block(99, 'b'), fork(100, 'b', 'a'), fork(101, 'b', 'a'), block(150, 'b')] {
        assert!(!told.tracker.observe_block(side, &|_| None));
    }
    assert_eq!(told.numbers(), [99, 100]);
    assert_eq!(told.at(98), Lookup::Unknown);
    assert_eq!(told.at(101), Lookup::Above { fresh: true });
}

#[test]
fn block_other_than_the_tracked_one_is_contrary() {
    let mut told = Told::shown(ethereum(), 99..=100);
    assert_eq!(told.number(block(99, 'b')), Err(Contrary::Tracked));
    // The lowest block names the hash of its parent, so another block at 98 is contrary, too.
    assert_eq!(told.number(block(98, 'b')), Err(Contrary::Tracked));
    assert_eq!(told.at(98), Lookup::Unknown);
    assert_eq!(told.number(block(97, 'b')), Ok(()));
    assert_eq!(told.at(97), Lookup::Asked(hash(97, 'b')));
}

#[test]
fn only_the_named_block_is_removed_from_a_number() {
    let mut told = Told::shown(ethereum(), 100..=100);
    told.number(block(50, 'a')).unwrap();
    told.tracker.remove_denied(BlockNumber(50), hash(50, 'b'));
    assert_eq!(told.at(50), Lookup::Asked(hash(50, 'a')));
    told.tracker.remove_denied(BlockNumber(50), hash(50, 'a'));
    assert_eq!(told.at(50), Lookup::Unknown);
}

/// Otherwise the answer would count again once the window has moved past its number.
#[test]
fn window_replaces_the_answer_for_a_number() {
    let mut told = Told::shown(Rules { window: 3, ..ethereum() }, 100..=100);
    told.number(block(98, 'b')).unwrap();
    for number in [99, 98] {
        assert!(told.tracker.observe_block(block(number, 'a'), &|_| None));
    }
    assert_eq!(told.at(98), tracked(block(98, 'a')));
    told.head(block(101, 'a'));
    assert_eq!((told.numbers(), told.at(98)), (vec![99, 100, 101], Lookup::Unknown));
}

#[test]
fn parent_with_a_higher_number_does_not_join_the_window() {
    let mut told = Told::shown(ethereum(), 100..=100);
    for number in [100, 101, 150] {
        let parent = Link { number: BlockNumber(number), ..block(99, 'a') };
        assert!(!told.tracker.observe_block(parent, &|_| None), "{number}");
    }
    assert_eq!((told.numbers(), told.tracker.head()), (vec![100], Some(block(100, 'a'))));
}
