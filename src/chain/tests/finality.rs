//! Final blocks, and the tags `safe` and `finalized`.

use super::*;
use crate::eth::TxHash;

#[test]
fn tracked_blocks_below_the_finalized_one_are_final() {
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
    assert_eq!(told.tracker.observe_finalized(None, sent, now, &|_| None), Finalized::Unchanged);
    assert_eq!(told.tracker.finalized(), Some((BlockNumber(98), hash(98, 'a'))));
}

#[test]
fn finalized_block_above_the_head_is_ignored() {
    let mut told = Told::new(ethereum());
    assert_eq!(told.finalized(block(90, 'a')), Finalized::Unchanged);
    told.head(block(100, 'a'));
    assert_eq!(told.finalized(block(101, 'a')), Finalized::Unchanged);
    assert_eq!(told.tracker.finalized(), None);
    told.head(block(101, 'a'));
    assert_eq!(told.finalized(block(101, 'a')), Finalized::Advanced { previous: None });
}

#[test]
fn finalized_block_contrary_to_the_window_is_ignored() {
    let mut told = Told::shown(ethereum(), 95..=100);
    assert_eq!(told.finalized(block(98, 'b')), Finalized::Contrary);
    assert_eq!(told.finalized(block(94, 'b')), Finalized::Contrary);
    assert_eq!(told.tracker.finalized(), None);
    assert_eq!(told.at(98), tracked(block(98, 'a')));
}

#[test]
fn another_hash_at_a_finalized_number_of_one_node_is_an_alarm() {
    let other: [fn(&mut Told) -> Finalized; 4] = [
        |told| told.finalized(block(97, 'b')),
        |told| told.confirm_final(block(97, 'b')),
        // Block 96, which is in the window, became final together with 97.
        |told| told.finalized(block(96, 'b')),
        |told| told.confirm_final(block(96, 'b')),
    ];
    for other in other {
        let mut told = final_at_97_of_one_node();
        assert_eq!(told.confirm_final(block(97, 'a')), Finalized::Unchanged);
        let under_way = told.now();
        assert_eq!(other(&mut told), Finalized::Alarm);
        assert_eq!(told.tracker.sizes(), (0, 0));
        assert_eq!((told.tracker.finalized(), told.tracker.head()), (None, None));
        assert_eq!(told.at(97), Lookup::Unknown);
        // A head requested before the alarm does not restore the forgotten chain.
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
fn answer_is_final_only_if_asked_after_finality() {
    let mut told = Told::shown(ethereum(), 95..=100);
    let early = told.now();
    told.finalized(block(70, 'a'));
    told.late_number(block(50, 'b'), early).unwrap();
    assert_eq!(told.at(50), Lookup::Asked(hash(50, 'b')));
    told.number(block(50, 'a')).unwrap();
    assert_eq!(told.at(50), Lookup::Final(hash(50, 'a')));
}

#[test]
fn nothing_is_final_after_a_wrong_chain_until_asked_again() {
    let mut told = Told::shown(ethereum(), 95..=100);
    told.finalized(block(97, 'a'));
    told.number(block(50, 'a')).unwrap();
    told.number(block(60, 'b')).unwrap();
    let under_way = told.now();
    told.wait(SECOND);
    let now = told.now();
    told.tracker.forget(now);
    for number in [50, 60, 96, 99] {
        assert_eq!(told.at(number), Lookup::Unknown, "{number}");
    }
    let _ = told.late_number(block(52, 'b'), under_way);
    assert_eq!(told.at(52), Lookup::Unknown, "the request was sent before `forget`");
    told.wait(SECOND);
    told.head(block(103, 'a'));
    let now = told.now();
    assert_eq!(
        told.tracker.observe_finalized(Some(block(101, 'b')), under_way, now, &|_| None),
        Finalized::Unchanged
    );
    told.finalized(block(101, 'a'));
    told.number(block(60, 'a')).unwrap();
    assert_eq!(told.at(60), Lookup::Final(hash(60, 'a')));
}

#[test]
fn nothing_is_final_on_development_chains() {
    let mut told = Told::shown(development(), 95..=100);
    assert_eq!(told.finalized(block(97, 'a')), Finalized::Unchanged);
    assert_eq!(told.tracker.finalized(), None);
    assert_eq!(told.tracker.sizes().1, 0);
}

#[test]
fn finality_depth_applies_if_configured() {
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
    let (sent, now) = (told.now(), told.now());
    told.tracker.observe_safe(block(99, 'a'), sent, now);
    told.finalized(block(97, 'a'));
    let arrival = told.now();
    assert_eq!(told.tracker.safe(arrival), Some(block(99, 'a')));
    assert_eq!(told.tracker.finalized_tag(arrival), Some(block(97, 'a')));
    told.wait(2 * SECOND);
    told.head(block(101, 'a'));
    let arrival = told.now();
    assert_eq!((told.tracker.safe(arrival), told.tracker.finalized_tag(arrival)), (None, None));
}

// ## Answers that make a block final

#[test]
fn one_answer_near_the_finalized_block_lasts_max_staleness() {
    let mut told = Told::shown(ethereum(), 95..=100);
    told.finalized(block(97, 'a'));
    told.number(block(78, 'b')).unwrap();
    assert_eq!(told.at(78), Lookup::Asked(hash(78, 'b')), "19 s below the finalized block");
    told.number(block(77, 'b')).unwrap();
    assert_eq!(told.at(77), Lookup::Final(hash(77, 'b')), "20 s below the finalized block");
    told.wait(2 * SECOND);
    assert_eq!(told.at(78), Lookup::Unknown);
    assert_eq!(told.at(77), Lookup::Final(hash(77, 'b')));
}

#[test]
fn one_answer_about_a_long_final_number_is_final() {
    let mut told = Told::shown(ethereum(), 95..=100);
    told.finalized(block(97, 'a'));
    told.wait(19 * SECOND);
    let early = told.now();
    told.wait(SECOND);
    told.late_number(block(90, 'b'), early).unwrap();
    assert_ne!(told.at(90), Lookup::Final(hash(90, 'b')), "sent before the number was final for 20 s");
    told.number(block(92, 'a')).unwrap();
    assert_eq!(told.at(92), Lookup::Final(hash(92, 'a')));
}

#[test]
fn a_consistent_upstreams_answer_is_final() {
    let mut told = Told::shown(Rules { consistent: true, ..ethereum() }, 95..=100);
    told.finalized(block(97, 'a'));
    told.number(block(94, 'a')).unwrap();
    assert_eq!(told.at(94), Lookup::Final(hash(94, 'a')));
}

#[test]
fn a_linked_answer_is_final_through_cached_blocks() {
    let mut told = Told::shown(ethereum(), 95..=100);
    told.finalized(block(97, 'a'));
    let cached = |hash| blocks(85..=93, 'a').into_iter().find(|link| link.hash == hash);
    let sent = told.now();
    told.tracker.observe_number(block(94, 'a'), sent, &cached).unwrap();
    told.wait(2 * SECOND);
    for number in 85..=94 {
        assert_eq!(told.at(number), Lookup::Final(hash(number, 'a')), "{number}");
    }
    assert_eq!(told.at(84), Lookup::Unknown);
    assert_eq!(told.tracker.take_entered().len(), 10);
    // A block fetched by hash becomes final in the same way.
    told.tracker.observe_block(block(84, 'a'), &|_| None);
    assert_eq!(told.at(84), Lookup::Final(hash(84, 'a')));
}

#[test]
fn an_unlinked_entry_is_dropped_when_an_answer_contradicts_it() {
    let mut told = Told::shown(ethereum(), 95..=100);
    told.finalized(block(97, 'a'));
    told.number(block(50, 'b')).unwrap();
    told.tracker.take_dropped();
    told.number(block(50, 'a')).unwrap();
    assert_eq!(told.at(50), Lookup::Asked(hash(50, 'a')));
    assert_eq!(told.tracker.take_dropped(), [(BlockNumber(50), hash(50, 'b'))]);
    told.number(block(50, 'a')).unwrap();
    assert_eq!(told.at(50), Lookup::Final(hash(50, 'a')));
    assert_eq!(told.number(block(96, 'b')), Err(Contrary::Final), "a linked entry stays");
}

#[test]
fn unlinked_neighbours_are_dropped() {
    let mut told = Told::shown(ethereum(), 95..=100);
    told.finalized(block(97, 'a'));
    told.number(block(50, 'b')).unwrap();
    told.number(block(51, 'a')).unwrap();
    assert_eq!(told.tracker.take_dropped(), [(BlockNumber(50), hash(50, 'b'))]);
    assert_eq!(told.at(50), Lookup::Unknown);
    assert_eq!(told.at(51), Lookup::Asked(hash(51, 'a')));
}

#[test]
fn single_answers_do_not_set_numbers() {
    let mut told = Told::shown(ethereum(), 95..=100);
    told.finalized(block(97, 'a'));
    let transaction = TxHash(B256::repeat_byte(7));
    let sent = told.now();
    told.tracker.observe_place(transaction, BlockNumber(50), hash(50, 'b'), sent).unwrap();
    let arrival = told.now();
    assert_eq!(told.at(50), Lookup::Unknown);
    assert!(told.tracker.is_placed(transaction, hash(50, 'b'), arrival));
    assert!(!told.tracker.is_placed(transaction, hash(50, 'a'), arrival));
    let place = |number, branch| (BlockNumber(number), hash(number, branch));
    let (number, block) = place(96, 'b');
    assert_eq!(told.tracker.observe_place(transaction, number, block, sent), Err(Contrary::Final));
    let (number, block) = place(99, 'b');
    assert_eq!(told.tracker.observe_place(transaction, number, block, sent), Err(Contrary::Tracked));
    told.wait(2 * SECOND);
    let arrival = told.now();
    assert!(!told.tracker.is_placed(transaction, hash(50, 'b'), arrival));
}

// ## Blocks from tiers

#[test]
fn restored_run_is_final_until_an_answer_contradicts_it() {
    let mut told = final_at_97();
    let early = told.now();
    told.number(block(50, 'b')).unwrap();
    // A run is restored whole or not at all.
    for link in [block(50, 'a'), block(96, 'b'), block(98, 'b')] {
        told.tracker.restore_run(&[block(60, 'a'), link], early);
        assert_eq!(told.at(60), Lookup::Unknown);
    }
    told.tracker.restore_run(&[block(70, 'a')], early);
    assert_eq!(told.at(50), Lookup::Final(hash(50, 'b')), "an answer of the node comes first");
    assert_eq!(told.at(96), Lookup::Final(hash(96, 'a')));
    assert_eq!(told.at(98), tracked(block(98, 'a')), "98 is not final");
    assert_eq!(told.at(70), Lookup::Final(hash(70, 'a')));
    assert_eq!(told.confirm_final(block(70, 'b')), Finalized::Unchanged);
    assert_eq!(told.at(70), Lookup::Unknown);
    let now = told.now();
    told.tracker.forget(now);
    told.head(block(100, 'a'));
    told.finalized(block(97, 'a'));
    told.tracker.restore_run(&[block(70, 'a')], early);
    assert_eq!(told.at(70), Lookup::Unknown, "the disk was asked before `forget`");
}

/// Tells the tracker these proved ancestors of its final block at `anchor`.
fn observe_ancestors(told: &mut Told, anchor: u64, ancestors: Vec<Link>) {
    let find = |hash| ancestors.iter().find(|link| link.hash == hash).copied();
    told.tracker.observe_ancestors(BlockNumber(anchor), &find);
}

#[test]
fn ancestors_of_a_linked_anchor_are_linked() {
    let mut told = final_at_97_of_one_node();
    told.number(block(85, 'b')).unwrap();
    told.tracker.take_entered();
    observe_ancestors(&mut told, 90, blocks(80..=89, 'a'));
    for number in 80..=89 {
        assert_eq!(told.at(number), Lookup::Final(hash(number, 'a')), "{number}");
    }
    assert_eq!(told.at(79), Lookup::Unknown);
    assert_eq!(told.tracker.take_dropped(), [(BlockNumber(85), hash(85, 'b'))], "it was unlinked");
    assert_eq!(told.tracker.take_entered().len(), 10);
    assert_eq!(told.confirm_final(block(82, 'b')), Finalized::Alarm);
}

#[test]
fn ancestors_of_an_unlinked_anchor_stay_unlinked() {
    let mut told = final_at_97_of_one_node();
    observe_ancestors(&mut told, 50, blocks(45..=49, 'a'));
    assert_eq!(told.at(49), Lookup::Unknown, "there is no anchor yet");
    told.number(block(50, 'a')).unwrap();
    observe_ancestors(&mut told, 50, blocks(45..=49, 'a'));
    assert_eq!(told.at(45), Lookup::Final(hash(45, 'a')));
    assert_eq!(told.confirm_final(block(45, 'b')), Finalized::Unchanged);
    assert_eq!(told.at(45), Lookup::Unknown);
}

#[test]
fn unlinked_anchor_whose_path_contradicts_a_final_block_is_dropped() {
    let mut told = final_at_97_of_one_node();
    told.head(block(200, 'a'));
    told.finalized(block(200, 'a'));
    told.number(block(150, 'b')).unwrap();
    observe_ancestors(&mut told, 150, blocks(90..=149, 'b'));
    assert_eq!([told.at(150), told.at(98)], [Lookup::Unknown; 2]);
    assert_eq!(told.at(97), Lookup::Final(hash(97, 'a')));
    assert_eq!(told.tracker.take_dropped(), [(BlockNumber(150), hash(150, 'b'))]);
}
