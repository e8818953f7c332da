//! Heads that contradict the finalized block.

use super::*;

#[test]
fn a_head_must_show_the_finalized_block_unless_it_links_to_it() {
    let mut told = final_at_97();
    let finalized = Some((BlockNumber(97), hash(97, 'a')));
    for (head, between, must_show) in [
        (block(100, 'a'), vec![], None),
        (block(101, 'a'), vec![], None),
        (block(98, 'a'), vec![], None),
        (fork(99, 'b', 'a'), vec![], None),
        (block(99, 'b'), vec![fork(98, 'b', 'a')], None),
        (block(98, 'b'), vec![fork(97, 'b', 'a')], finalized),
        (block(99, 'b'), vec![], finalized),
        (block(5, 'b'), vec![], finalized),
        (block(300, 'a'), vec![], finalized),
        // A lower head in the window is a lag, even below the finalized block.
        (block(92, 'a'), vec![], None),
    ] {
        let now = told.now();
        assert_eq!(told.tracker.must_show(head, &between, now), must_show, "{head:?}");
    }
    let (sent, now) = (told.now(), told.now());
    let change = told.tracker.observe_head(block(99, 'b'), &[], None, sent, now);
    assert_eq!((change, told.tracker.head()), (HeadChange::Unlinked, Some(block(100, 'a'))));
}

#[test]
fn refused_higher_head_makes_nothing_canonical() {
    let mut told = final_at_97();
    // A branch that forks off below the finalized block.
    let mut between = blocks(98..=104, 'b');
    between.push(fork(97, 'b', 'a'));
    assert_eq!(told.head_over(block(105, 'b'), &between), HeadChange::Lag);
    let _ = told.number(block(103, 'b'));
    assert_eq!(told.at(103), Lookup::Unknown, "the number is above `latest`");
}

#[test]
fn orphan_below_the_finalized_block_is_not_the_head() {
    let mut told = Told::shown(Rules { window: 3, ..ethereum() }, 90..=100);
    told.finalized(block(99, 'a'));
    assert_eq!(told.head_over(block(96, 'b'), &[block(97, 'a')]), HeadChange::Lag);
    assert_eq!(told.tracker.head(), Some(block(100, 'a')));
}

#[test]
fn head_contrary_to_finality_is_lag_for_ever() {
    let mut told = final_at_97();
    for _ in 0..10 {
        told.wait(10 * SECOND);
        assert_eq!(told.head_over(block(98, 'b'), &[fork(97, 'b', 'a')]), HeadChange::Lag);
        assert_eq!(told.tracker.head(), Some(block(100, 'a')));
        assert_eq!(told.at(97), Lookup::Final(hash(97, 'a')));
        assert_eq!(told.at(99), Lookup::Unknown);
    }
}

#[test]
fn a_final_head_below_the_window_is_lag() {
    let mut told = Told::shown(Rules { window: 3, ..ethereum() }, 90..=100);
    told.finalized(block(99, 'a'));
    for head in 95..=97 {
        told.number(block(head, 'a')).unwrap();
    }
    told.number(block(97, 'a')).unwrap();
    assert_eq!(told.at(97), Lookup::Final(hash(97, 'a')));
    assert_eq!(told.head(block(97, 'a')), HeadChange::Lag);
    assert_eq!(told.numbers(), [98, 99, 100]);
    assert_eq!(told.at(99), Lookup::Unknown, "99 is final, but above the head shown last");
}

#[test]
fn a_rollback_below_the_finalized_block_must_show_it() {
    let mut told = final_at_97();
    let lower = block(92, 'a');
    for _ in 0..2 {
        assert_eq!(told.head(lower), HeadChange::Lag);
        told.wait(10 * SECOND);
    }
    let now = told.now();
    assert_eq!(told.tracker.must_show(lower, &[], now), Some((BlockNumber(97), hash(97, 'a'))));
}

#[test]
fn three_contradictions_over_15_s_count() {
    let finalized = (BlockNumber(97), hash(97, 'a'));
    let deny: fn(&mut Told) -> bool = |told| {
        let now = told.now();
        let finalized = (BlockNumber(97), hash(97, 'a'));
        told.tracker.deny_finalized(finalized, BlockNumber(97), now) == Denied::Suspended
    };
    let replace: fn(&mut Told) -> bool = |told| told.confirm_final(block(97, 'b')) == Finalized::Alarm;
    for contradict in [deny, replace] {
        let mut told = final_at_97();
        let after = |seconds: u64, told: &mut Told| {
            told.wait(Duration::from_secs(seconds));
            let counts = contradict(told);
            // Meanwhile the head of the endpoint is a lag, and final blocks stay.
            if !counts {
                assert_eq!(told.head(fork(96, 'b', 'b')), HeadChange::Lag);
                assert_eq!(told.tracker.head(), Some(block(100, 'a')));
                assert_eq!(told.at(96), Lookup::Final(hash(96, 'a')));
                assert_eq!(told.tracker.finalized(), Some(finalized));
            }
            counts
        };
        assert!(!after(0, &mut told) && !after(20, &mut told), "only two");
        told.tracker.end_doubt();
        assert!(!after(1, &mut told) && !after(7, &mut told));
        assert!(!after(7, &mut told), "only 14 s since the first");
        assert!(after(1, &mut told));
        assert!(!told.tracker.is_doubted());
    }
}

#[test]
fn nothing_is_known_while_the_finalized_block_is_denied() {
    let mut told = final_at_97_of_one_node();
    let finalized = (BlockNumber(97), hash(97, 'a'));
    let now = told.now();
    assert_eq!(told.tracker.deny_finalized(finalized, BlockNumber(5), now), Denied::Suspended);
    for number in [5, 50, 96, 97, 98, 100, 101] {
        assert_eq!(told.at(number), Lookup::Unknown, "{number}");
    }
    told.number(block(50, 'b')).unwrap();
    assert!(told.tracker.take_entered().is_empty(), "no block became final");
    let now = told.now();
    assert!(!told.tracker.may_refresh(now));
    told.wait(SECOND);
    let now = told.now();
    assert!(told.tracker.may_refresh(now));
    // The endpoint shows the finalized block again.
    assert_eq!(told.head(block(100, 'a')), HeadChange::Same);
    assert!(!told.tracker.is_suspended());
    assert_eq!(told.at(96), Lookup::Final(hash(96, 'a')));
}

#[test]
fn three_denials_over_15_s_by_a_high_head_are_an_alarm() {
    let mut told = final_at_97_of_one_node();
    let finalized = (BlockNumber(97), hash(97, 'a'));
    let deny = |told: &mut Told, head: u64, wait: u64| {
        told.wait(Duration::from_secs(wait));
        let now = told.now();
        told.tracker.deny_finalized(finalized, BlockNumber(head), now)
    };
    assert_eq!(deny(&mut told, 97, 0), Denied::Suspended);
    assert_eq!(deny(&mut told, 97, 20), Denied::Suspended, "only two denials");
    assert_eq!(deny(&mut told, 96, 1), Denied::Suspended, "a head below 97 restarts the count");
    assert_eq!(deny(&mut told, 97, 1), Denied::Suspended);
    assert_eq!(deny(&mut told, 99, 7), Denied::Suspended);
    assert_eq!(deny(&mut told, 99, 7), Denied::Suspended, "only 14 s since the first denial");
    assert_eq!(deny(&mut told, 99, 1), Denied::Alarm);
    assert_eq!((told.tracker.finalized(), told.tracker.head()), (None, None));
    assert!(!told.tracker.is_suspended());
}

#[test]
fn a_head_below_the_finalized_block_for_10_minutes_is_an_alarm() {
    let mut told = final_at_97_of_one_node();
    let finalized = (BlockNumber(97), hash(97, 'a'));
    for _ in 0..10 {
        let now = told.now();
        assert_eq!(told.tracker.deny_finalized(finalized, BlockNumber(5), now), Denied::Suspended);
        told.wait(60 * SECOND);
    }
    let now = told.now();
    assert_eq!(told.tracker.deny_finalized(finalized, BlockNumber(5), now), Denied::Alarm);
}

#[test]
fn third_denial_after_15_s_is_an_alarm() {
    let mut told = final_at_97_of_one_node();
    let mut deny = |wait: u64| {
        told.wait(Duration::from_secs(wait));
        let now = told.now();
        told.tracker.deny_finalized((BlockNumber(97), hash(97, 'a')), BlockNumber(97), now)
    };
    assert_eq!([deny(0), deny(8), deny(8)], [Denied::Suspended, Denied::Suspended, Denied::Alarm]);
}

#[test]
fn block_is_its_own_ancestor_and_no_other_of_its_height() {
    let told = Told::shown(ethereum(), 95..=100);
    let ancestry = |lower, upper| told.tracker.ancestry(lower, upper);
    assert_eq!(ancestry(block(100, 'a'), block(100, 'a')), Ancestry::Ancestor);
    assert_eq!(ancestry(block(96, 'a'), block(100, 'a')), Ancestry::Ancestor);
    assert_eq!(ancestry(block(100, 'a'), block(96, 'a')), Ancestry::Apart);
    assert_eq!(ancestry(block(100, 'b'), block(100, 'a')), Ancestry::Apart);
}

#[test]
fn final_blocks_are_those_above_the_lower_bound() {
    let told = final_at_97();
    let numbers = |above: Option<u64>, up_to| {
        let blocks = told.tracker.final_blocks(above.map(BlockNumber), BlockNumber(up_to));
        blocks.into_iter().map(|(number, _)| number.0).collect::<Vec<_>>()
    };
    assert_eq!(numbers(Some(94), 96), [95, 96]);
    assert_eq!(numbers(None, 91), [90, 91]);
}

/// A replica that lags shows as its head what another one called final a moment ago.
#[test]
fn lower_block_of_a_tag_is_no_head_in_a_doubt() {
    let mut told = Told::shown(ethereum(), 100..=100);
    told.finalized(block(98, 'a'));
    told.finalized(block(96, 'a'));
    let (sent, now) = (told.now(), told.now());
    told.tracker.doubt_finalized((BlockNumber(98), hash(98, 'a')), now);
    assert!(told.tracker.is_doubted());
    told.tracker.observe_head(block(96, 'a'), &[], None, sent, now);
    assert_eq!(told.tracker.head(), Some(block(100, 'a')));
    assert_eq!(told.tracker.ancestry(block(98, 'a'), block(100, 'a')), Ancestry::Ancestor);
}

#[test]
fn final_branch_may_skip_numbers() {
    let mut told = Told::shown(ethereum(), 95..=100);
    let top = child(103, 'a', hash(100, 'a'));
    told.head(top);
    told.finalized(block(97, 'a'));
    told.finalized(top);
    let skipped = |number| told.tracker.skips(BlockNumber(number));
    assert_eq!((94..=104).filter(|number| skipped(*number)).collect::<Vec<_>>(), [101, 102]);
    assert!(told.tracker.is_newly_final(BlockNumber(101)));
}
