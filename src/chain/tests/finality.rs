//! What is final, and `safe` and `finalized`.

use super::*;

#[test]
fn what_finality_passes_in_the_window_is_final() {
    let mut told = Told::shown(ethereum(), 95..=100);
    assert_eq!(told.finalized(block(97, 'a')), Finalized::Advanced { previous: None });
    assert_eq!(
        told.finalized(block(98, 'a')),
        Finalized::Advanced { previous: Some((BlockNumber(97), hash(97, 'a'))) }
    );
    told.wait(60 * SECOND);
    for number in 95..=98 {
        assert_eq!(told.at(number), Lookup::Final(hash(number, 'a')));
    }
    assert_eq!(told.at(99), Lookup::Tracked { hash: hash(99, 'a'), fresh: false });
}

#[test]
fn finalized_only_rises() {
    let mut told = Told::shown(ethereum(), 95..=100);
    told.finalized(block(98, 'a'));
    assert_eq!(told.finalized(block(96, 'a')), Finalized::Unchanged);
    assert_eq!(told.finalized(block(98, 'a')), Finalized::Unchanged);
    let (sent, now) = (told.now(), told.now());
    assert_eq!(told.tracker.observe_finalized(None, sent, now), Finalized::Unchanged);
    assert_eq!(told.tracker.finalized(), Some((BlockNumber(98), hash(98, 'a'))));
}

#[test]
fn finalized_above_the_head_does_not_count() {
    let mut told = Told::new(ethereum());
    assert_eq!(told.finalized(block(90, 'a')), Finalized::Unchanged);
    told.head(block(100, 'a'));
    assert_eq!(told.finalized(block(101, 'a')), Finalized::Unchanged);
    assert_eq!(told.tracker.finalized(), None);
    told.head(block(101, 'a'));
    assert_eq!(told.finalized(block(101, 'a')), Finalized::Advanced { previous: None });
}

#[test]
fn finalized_contrary_to_a_tracked_hash_does_not_count() {
    let mut told = Told::shown(ethereum(), 95..=100);
    assert_eq!(told.finalized(block(98, 'b')), Finalized::Contrary);
    assert_eq!(told.finalized(block(94, 'b')), Finalized::Contrary);
    assert_eq!(told.tracker.finalized(), None);
    assert_eq!(told.at(98), tracked(block(98, 'a')));
}

#[test]
fn another_hash_at_the_finalized_number_is_the_alarm() {
    let other: [fn(&mut Told) -> Finalized; 4] = [
        |told| told.finalized(block(97, 'b')),
        |told| told.confirm_final(block(97, 'b')),
        // What stood below it was final with it.
        |told| told.finalized(block(96, 'b')),
        |told| told.confirm_final(block(96, 'b')),
    ];
    for other in other {
        let mut told = Told::shown(ethereum(), 95..=100);
        told.finalized(block(97, 'a'));
        assert_eq!(told.confirm_final(block(97, 'a')), Finalized::Unchanged);
        let under_way = told.now();
        assert_eq!(other(&mut told), Finalized::Alarm);
        assert_eq!(told.tracker.sizes(), (0, 0));
        assert_eq!((told.tracker.finalized(), told.tracker.head()), (None, None));
        assert_eq!(told.at(97), Lookup::Unknown);
        // Nor does what was sent before that bring it back.
        assert_eq!(told.late_head(block(101, 'a'), &[], under_way), HeadChange::Outdated);
        assert_eq!(told.head(block(101, 'b')), HeadChange::First);
    }
}

#[test]
fn hints_left_behind_by_finality_are_dropped() {
    let mut told = Told::shown(Rules { consistent: true, ..ethereum() }, 95..=100);
    told.number(block(50, 'b')).unwrap();
    told.number(block(80, 'b')).unwrap();
    told.finalized(block(70, 'a'));
    assert_eq!(told.at(50), Lookup::Unknown);
    assert_eq!(told.at(80), Lookup::Asked(hash(80, 'b')));
}

#[test]
fn an_answer_is_final_only_if_it_was_sent_after_its_number_was_known_to_be() {
    let mut told = Told::shown(ethereum(), 95..=100);
    let early = told.now();
    told.finalized(block(70, 'a'));
    told.late_number(block(50, 'b'), early).unwrap();
    assert_eq!(told.at(50), Lookup::Unknown);
    told.number(block(50, 'a')).unwrap();
    assert_eq!(told.at(50), Lookup::Final(hash(50, 'a')));
    assert_eq!(told.number(block(50, 'b')), Err(Contrary));
    assert_eq!(told.at(50), Lookup::Final(hash(50, 'a')));
}

#[test]
fn what_a_stranger_may_have_said_of_final_numbers_is_forgotten() {
    let mut told = Told::shown(ethereum(), 95..=100);
    told.finalized(block(97, 'a'));
    told.number(block(50, 'a')).unwrap();
    told.wait(SECOND);
    let since = told.now().time;
    told.number(block(51, 'b')).unwrap();
    let under_way = told.now();
    told.wait(SECOND);
    let now = told.now();
    told.tracker.disbelieve(since, now);
    assert_eq!(told.at(50), Lookup::Final(hash(50, 'a')), "from before");
    assert_eq!(told.at(51), Lookup::Unknown);
    assert_eq!(told.at(96), Lookup::Final(hash(96, 'a')), "from the window");
    let _ = told.late_number(block(52, 'b'), under_way);
    assert_eq!(told.at(52), Lookup::Unknown, "and what is still under way does not count");
    told.wait(SECOND);
    told.number(block(51, 'a')).unwrap();
    assert_eq!(told.at(51), Lookup::Final(hash(51, 'a')));
    assert_eq!(told.at(99), Lookup::Tracked { hash: hash(99, 'a'), fresh: false });
}

#[test]
fn what_is_still_to_be_heard_of_one_stranger_is_not_heard_for_another() {
    let mut told = Told::shown(ethereum(), 95..=100);
    told.finalized(block(97, 'a'));
    told.wait(SECOND);
    let under_way = told.now();
    // One after the other of two endpoints turns out to be one.
    let mut since = under_way;
    for _ in 0..2 {
        told.wait(SECOND);
        let now = told.now();
        told.tracker.disbelieve(since.time, now);
        told.wait(SECOND);
        since = told.now();
    }
    told.head(block(103, 'a'));
    let highest = told.tracker.finalized();
    let now = told.now();
    assert_eq!(told.tracker.observe_finalized(Some(block(101, 'b')), under_way, now), Finalized::Unchanged);
    assert_eq!(told.tracker.finalized(), highest);
    let now = told.now();
    assert_eq!(
        told.tracker.observe_finalized(Some(block(101, 'a')), now, now),
        Finalized::Advanced { previous: highest }
    );
}

#[test]
fn nothing_is_final_on_development_chains() {
    let mut told = Told::shown(development(), 95..=100);
    assert_eq!(told.finalized(block(97, 'a')), Finalized::Unchanged);
    assert_eq!(told.tracker.finalized(), None);
    assert_eq!(told.tracker.sizes().1, 0);
}

#[test]
fn depth_makes_final_where_the_operator_says_so() {
    let mut told = Told::shown(Rules { finality_depth: Some(3), ..ethereum() }, 95..=100);
    assert_eq!(told.tracker.finalized(), Some((BlockNumber(97), hash(97, 'a'))));
    assert_eq!(told.at(97), Lookup::Final(hash(97, 'a')));
    assert_eq!(told.at(98), tracked(block(98, 'a')));
    let mut nowhere = Told::shown(Rules { finality_depth: Some(3), ..development() }, 95..=100);
    assert_eq!(nowhere.tracker.finalized(), None);
    assert_ne!(nowhere.at(95), Lookup::Final(hash(95, 'a')));
}

#[test]
fn tags_are_fresh_by_their_own_time() {
    let mut told = Told::shown(ethereum(), 95..=100);
    let sent = told.now();
    told.tracker.observe_safe(block(99, 'a'), sent);
    told.finalized(block(97, 'a'));
    let arrival = told.now();
    assert_eq!(told.tracker.safe(arrival), Some(block(99, 'a')));
    assert_eq!(told.tracker.finalized_tag(arrival), Some(block(97, 'a')));
    told.wait(2 * SECOND);
    told.head(block(101, 'a'));
    let arrival = told.now();
    assert_eq!((told.tracker.safe(arrival), told.tracker.finalized_tag(arrival)), (None, None));
}
