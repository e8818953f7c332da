//! Answers that arrive late.

use super::*;

#[test]
fn a_refresh_that_was_sent_before_the_newest_one_is_outdated() {
    let mut told = Told::shown(ethereum(), 100..=100);
    let early = told.now();
    told.head(block(101, 'a'));
    assert_eq!(told.late_head(block(100, 'b'), &[], early), HeadChange::Outdated);
    assert_eq!(told.at(100), tracked(block(100, 'a')));
}

#[test]
fn refresh_in_flight_during_a_reorg_is_outdated() {
    let mut told = Told::shown(ethereum(), 99..=100);
    let (sent, under_way) = (told.now(), told.now());
    // The node answered the later request first, then switched to branch `b`, and then answered the earlier request.
    assert_eq!(told.late_head(fork(100, 'b', 'a'), &[], sent), HeadChange::Reorg(1));
    assert_eq!(told.late_head(block(100, 'a'), &[], under_way), HeadChange::Outdated);
    assert_eq!(told.at(100), tracked(fork(100, 'b', 'a')));
}

#[test]
fn number_in_flight_during_a_reorg_is_discarded() {
    let mut told = Told::shown(ethereum(), 99..=100);
    let (sent, under_way) = (told.now(), told.now());
    assert_eq!(told.late_head(block(101, 'b'), &[], sent), HeadChange::Reorg(2));
    told.late_number(block(90, 'a'), under_way).unwrap();
    assert_eq!(told.at(90), Lookup::Unknown);
    told.number(block(90, 'b')).unwrap();
    assert_eq!(told.at(90), Lookup::Asked(hash(90, 'b')));
}

#[test]
fn answer_above_a_newer_lower_head_is_unknown() {
    let mut told = Told::shown(ethereum(), 99..=100);
    told.number(block(105, 'a')).unwrap();
    assert_eq!(told.at(105), Lookup::Unknown);
    let (sent, under_way) = (told.now(), told.now());
    assert_eq!(told.late_head(fork(101, 'b', 'a'), &[], sent), HeadChange::Extended(1));
    assert_eq!(told.at(105), Lookup::Unknown);
    assert_eq!(told.at(104), Lookup::Above { fresh: true });
    told.late_number(block(104, 'a'), under_way).unwrap();
    assert_eq!(told.at(104), Lookup::Unknown);
}

#[test]
fn finalized_answer_counts_despite_a_new_head() {
    let mut told = Told::shown(ethereum(), 99..=100);
    let (sent, under_way) = (told.now(), told.now());
    assert_eq!(told.late_head(block(101, 'a'), &[], sent), HeadChange::Extended(1));
    let now = told.now();
    let finalized = told.tracker.observe_finalized(Some(block(99, 'a')), under_way, now, &|_| None);
    assert_eq!(finalized, Finalized::Advanced { previous: None });
    assert_eq!(told.at(99), Lookup::Final(hash(99, 'a')));
}

/// Even the finalized block may be replaced, and the new head need not show that.
#[test]
fn finalized_answer_does_not_count_after_a_head_without_a_link() {
    for (head, change) in [(102, HeadChange::Reorg(2)), (300, HeadChange::Restarted)] {
        let mut told = Told::shown(ethereum(), 99..=100);
        let (sent, under_way) = (told.now(), told.now());
        assert_eq!(told.late_head(block(head, 'b'), &[], sent), change);
        let now = told.now();
        let finalized = told.tracker.observe_finalized(Some(block(90, 'a')), under_way, now, &|_| None);
        assert_eq!(finalized, Finalized::Unchanged);
        assert_eq!(told.at(90), Lookup::Unknown);
        assert_eq!(told.finalized(block(90, 'b')), Finalized::Advanced { previous: None });
    }
}

#[test]
fn write_invalidates_the_head() {
    let mut told = Told::shown(ethereum(), 99..=100);
    told.number(block(50, 'a')).unwrap();
    let (sent, now) = (told.now(), told.now());
    told.tracker.observe_safe(block(99, 'a'), sent, now);
    assert!(told.tracker.safe(now).is_some());
    let under_way = told.now();
    let write = told.now();
    told.tracker.invalidate_after_write(write);

    assert_eq!(told.at(100), Lookup::Tracked { hash: hash(100, 'a'), fresh: false });
    assert_eq!(told.at(101), Lookup::Above { fresh: false });
    assert_eq!(told.at(50), Lookup::Unknown);
    assert_eq!(told.tracker.safe(now), None);
    assert_eq!(told.late_head(block(100, 'a'), &[], under_way), HeadChange::Outdated);
    told.late_number(block(51, 'a'), under_way).unwrap();
    assert_eq!(told.at(51), Lookup::Unknown);
    told.tracker.observe_safe(block(99, 'a'), under_way, now);
    assert_eq!(told.tracker.safe(now), None);

    assert_eq!(told.head(block(101, 'a')), HeadChange::Extended(1));
    assert_eq!(told.at(101), tracked(block(101, 'a')));
}

#[test]
fn answers_in_flight_during_forget_are_ignored() {
    let mut told = Told::shown(ethereum(), 99..=100);
    told.finalized(block(99, 'a'));
    let (under_way, now) = (told.now(), told.now());
    told.tracker.forget(now);
    assert_eq!(told.at(99), Lookup::Unknown);
    assert_eq!(told.late_head(block(101, 'a'), &[], under_way), HeadChange::Outdated);
    // The next head is accepted, even on another branch.
    assert_eq!(told.head(block(3, 'b')), HeadChange::First);
    let now = told.now();
    assert_eq!(
        told.tracker.observe_finalized(Some(block(2, 'a')), under_way, now, &|_| None),
        Finalized::Unchanged
    );
    assert_eq!(told.tracker.finalized(), None);
}

#[test]
fn number_that_left_the_window_in_flight_is_refused() {
    let mut told = Told::shown(Rules { window: 4, ..ethereum() }, 97..=100);
    let under_way = told.now();
    told.head(block(101, 'a'));
    told.head(block(102, 'a'));
    assert_eq!(told.numbers(), [99, 100, 101, 102]);
    // The window contained 97 when the request was sent. Now it does not, so the tracker cannot check the answer.
    assert_eq!(told.late_number(block(97, 'b'), under_way), Err(Contrary::Tracked));
    assert_eq!(told.late_number(block(96, 'b'), under_way), Ok(()));
    assert_eq!(told.number(block(97, 'a')), Ok(()));
    assert_eq!(told.at(97), Lookup::Asked(hash(97, 'a')));
}
