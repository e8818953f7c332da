//! Heads that are lower than the tracked head.

use super::*;

#[test]
fn lower_head_is_a_rollback_after_3_observations_in_15_s() {
    let mut told = Told::shown(ethereum(), 95..=100);
    assert_eq!(told.head(block(98, 'a')), HeadChange::Lag);
    told.wait(7 * SECOND);
    assert_eq!(told.head(block(97, 'a')), HeadChange::Lag);
    told.wait(7 * SECOND);
    assert_eq!(told.head(block(97, 'a')), HeadChange::Lag);
    told.wait(SECOND);
    assert_eq!(told.head(block(97, 'a')), HeadChange::Rollback(3));
    assert!(!told.tracker.lags());
    assert_eq!(told.tracker.head(), Some(block(97, 'a')));
    assert_eq!(told.at(98), Lookup::Above { fresh: true });
}

#[test]
fn time_alone_does_not_make_a_rollback() {
    let mut told = Told::shown(ethereum(), 95..=100);
    assert_eq!(told.head(block(98, 'a')), HeadChange::Lag);
    told.wait(60 * SECOND);
    assert_eq!(told.head(block(98, 'a')), HeadChange::Lag);
    assert_eq!(told.head(block(98, 'a')), HeadChange::Rollback(2));
}

#[test]
fn return_to_the_old_head_ends_the_lag() {
    let mut told = Told::shown(ethereum(), 95..=100);
    told.head(block(98, 'a'));
    told.head(block(98, 'a'));
    assert_eq!(told.head(block(100, 'a')), HeadChange::Same);
    told.wait(60 * SECOND);
    assert_eq!(told.head(block(98, 'a')), HeadChange::Lag);
}

#[test]
fn lag_keeps_the_head_and_hides_blocks_above_the_lower_one() {
    let mut told = Told::shown(ethereum(), 95..=100);
    told.head(block(98, 'a'));
    let arrival = told.now();
    assert_eq!(told.tracker.head(), Some(block(100, 'a')));
    assert!(told.tracker.is_fresh(arrival));
    assert_eq!(told.at(98), tracked(block(98, 'a')));
    assert_eq!(told.at(99), Lookup::Unknown);
    assert_eq!(told.at(100), Lookup::Unknown);
    assert_eq!(told.at(101), Lookup::Unknown);
    told.number(block(101, 'a')).unwrap();
    assert_eq!(told.at(101), Lookup::Unknown);
}

#[test]
fn old_lag_must_be_refreshed_before_it_hides_blocks() {
    let mut told = Told::shown(ethereum(), 95..=100);
    told.head(block(98, 'a'));
    told.wait(60 * SECOND);
    assert_eq!(told.at(99), Lookup::Above { fresh: false });
    assert_eq!(told.at(101), Lookup::Above { fresh: false });
}

#[test]
fn on_development_chains_a_lower_head_rolls_back_at_once() {
    let mut told = Told::shown(development(), 95..=100);
    assert_eq!(told.head(block(96, 'a')), HeadChange::Rollback(4));
    assert_eq!(told.tracker.head(), Some(block(96, 'a')));
}

#[test]
fn lower_head_whose_gap_closes_is_lag() {
    let mut told = Told::shown(ethereum(), 100..=101);
    let head = block(35, 'a');
    assert_eq!(told.tracker.gap(head), Some(Gap { from: BlockNumber(36), to: BlockNumber(99) }));
    assert_eq!(told.head_over(head, &blocks(36..=99, 'a')), HeadChange::Lag);
    assert_eq!(told.tracker.head(), Some(block(101, 'a')));
    assert_eq!(told.at(35), tracked(head));
    assert_eq!(told.at(36), Lookup::Unknown);
}

#[test]
fn lower_head_whose_gap_stays_open_is_a_reorg() {
    let mut told = Told::shown(ethereum(), 100..=101);
    assert_eq!(told.tracker.gap(block(34, 'a')), None);
    let mut far = Told::shown(ethereum(), 100..=101);
    assert_eq!(far.head(block(34, 'a')), HeadChange::Reorg(2));
    assert_eq!(told.head_over(block(97, 'b'), &blocks(98..=99, 'a')), HeadChange::Reorg(2));
    assert_eq!(told.tracker.head(), Some(block(97, 'b')));
}

#[test]
fn full_window_detects_lag_below_it() {
    let mut told = Told::shown(Rules { window: 3, ..ethereum() }, 95..=100);
    let gap = [block(96, 'a'), block(97, 'a')];
    assert_eq!(told.head_over(block(95, 'a'), &gap), HeadChange::Lag);
    assert_eq!(told.numbers(), [98, 99, 100]);
    assert_eq!(told.at(96), Lookup::Unknown);
    told.wait(15 * SECOND);
    assert_eq!(told.head_over(block(95, 'a'), &gap), HeadChange::Lag);
    assert_eq!(told.head_over(block(95, 'a'), &gap), HeadChange::Rollback(3));
    assert_eq!(told.numbers(), [95]);
    assert_eq!(told.at(95), tracked(block(95, 'a')));
}
