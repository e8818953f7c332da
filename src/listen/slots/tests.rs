use std::{collections::BTreeMap, net::Ipv4Addr};

use http::Version;
use proptest::{collection::vec, prelude::*};

use super::*;
use crate::listen::activity::RequestGuard;

/// With this cap, eight newcomers have a place although the listener is full.
const MAX: usize = 16;

fn address(number: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, number).into()
}

fn slots() -> Arc<Slots> {
    Slots::new(MAX, Arc::new(|peer| peer == address(0)), Metrics::default())
}

/// Opens a connection and sends a request, with this key if it is not 0.
fn send(slots: &Arc<Slots>, number: u8, key: u64) -> (Slot, RequestGuard) {
    let slot = slots.take(address(number));
    let in_flight = request(&slot, key);
    (slot, in_flight)
}

fn request(slot: &Slot, key: u64) -> RequestGuard {
    let in_flight = slot.activity.begin_request(Version::HTTP_11);
    if key != 0 {
        slot.activity.key.store(key, Relaxed);
    }
    slot.count_request();
    in_flight
}

fn displaced<'a>(all: impl IntoIterator<Item = &'a (Slot, RequestGuard)>) -> usize {
    all.into_iter().filter(|(slot, _)| slot.activity.is_displaced.load(Relaxed)).count()
}

#[test]
fn newcomers_have_places_until_their_first_request() {
    let slots = slots();
    let busy: Vec<_> = (0..MAX).map(|_| send(&slots, 1, 0)).collect();
    let silent: Vec<_> = (0..spare(MAX)).map(|at| slots.take(address(if at < 3 { 2 } else { 3 }))).collect();
    assert!(displaced(&busy) == 0 && !silent.iter().any(|slot| slot.activity.is_displaced.load(Relaxed)));
    // The oldest newcomer of the network with the most newcomers goes.
    let newcomer = slots.take(address(4));
    let gone: Vec<_> = silent.iter().map(|slot| slot.activity.is_displaced.load(Relaxed)).collect();
    assert_eq!(gone, [false, false, false, true, false, false, false, false]);
    let _in_flight = request(&newcomer, 0);
    assert_eq!(displaced(&busy), 1, "a network with more connections makes room");
    assert!(!newcomer.activity.is_displaced.load(Relaxed));
}

#[test]
fn newcomers_of_a_crowd_wait_only_while_the_listener_is_full() {
    let slots = slots();
    let first = slots.take(address(1));
    assert!(!slots.must_wait(address(1)));
    let _busy: Vec<_> = (1..MAX).map(|_| send(&slots, 1, 0)).collect();
    assert!(slots.must_wait(address(1)) && !slots.must_wait(address(2)));
    let _in_flight = request(&first, 0);
    assert!(!slots.must_wait(address(1)), "its newcomer has sent a request");
}

#[test]
fn silent_connections_make_room_before_any_with_a_request() {
    let slots = slots();
    let (idle, in_flight) = send(&slots, 1, 0);
    drop(in_flight);
    let silent: Vec<_> = (1..MAX).map(|_| slots.take(address(2))).collect();
    let newcomers: Vec<_> = (0..4).map(|_| slots.take(address(3))).collect();
    let gone: Vec<_> = silent.iter().map(|slot| slot.activity.is_displaced.load(Relaxed)).take(5).collect();
    assert_eq!(gone, [true, true, true, true, false], "the oldest go first");
    assert!(!newcomers.iter().chain([&idle]).any(|slot| slot.activity.is_displaced.load(Relaxed)));
}

#[test]
fn request_without_a_key_never_displaces_one_with_a_key() {
    let slots = slots();
    let keyed: Vec<_> = (0..MAX).map(|_| send(&slots, 1, 7).0).collect();
    let strangers: Vec<_> = (0..20).map(|number| send(&slots, 2 + number, 0)).collect();
    assert!(!keyed.iter().any(|slot| slot.activity.is_displaced.load(Relaxed)));
    // A few are served although the listener is full, because none may be closed for them.
    assert_eq!(strangers.len() - displaced(&strangers), spare(MAX));
    let (other, _in_flight) = send(&slots, 1, 8);
    assert!(!other.activity.is_displaced.load(Relaxed));
    assert_eq!(strangers.len() - displaced(&strangers), spare(MAX) - 1, "one without a key makes room");
}

#[test]
fn later_key_protects_the_connection() {
    let slots = slots();
    // A web page sends a preflight without its key first.
    let (page, preflight) = send(&slots, 1, 0);
    drop(preflight);
    drop(request(&page, 7));
    let _others: Vec<_> = (2..40).map(|number| send(&slots, number, 0)).collect();
    assert!(!page.activity.is_displaced.load(Relaxed));
}

#[test]
fn trusted_proxies_are_displaced_last() {
    let slots = slots();
    let idle = |number, key| send(&slots, number, key).0;
    let proxies: Vec<_> = (1..MAX).map(|_| idle(0, 0)).collect();
    let keyed = idle(1, 7);
    let _newcomer = idle(2, 8);
    assert!(keyed.activity.is_displaced.load(Relaxed));
    assert!(!proxies.iter().any(|slot| slot.activity.is_displaced.load(Relaxed)));
}

#[derive(Clone, Debug)]
enum Step {
    Open(u8),
    Close(usize),
    Begin(usize, u64),
    End(usize),
    GiveUp,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..4_u8).prop_map(Step::Open),
        1 => any::<usize>().prop_map(Step::Close),
        6 => (any::<usize>(), 0..3_u64).prop_map(|(choice, key)| Step::Begin(choice, key)),
        2 => any::<usize>().prop_map(Step::End),
        1 => Just(Step::GiveUp),
    ]
}

proptest! {
    /// The number of open connections has a bound, a step displaces at most one, and nothing of a closed connection
    /// remains.
    #[test]
    fn slots_are_bounded_and_given_back(steps in vec(step(), 1..300)) {
        let slots = slots();
        let mut open: Vec<(Slot, Option<RequestGuard>)> = Vec::new();
        for step in steps {
            let before = slots.state.lock().ending;
            let mut closed = 0;
            match step {
                Step::Open(number) => open.push((slots.take(address(number)), None)),
                Step::Close(choice) if !open.is_empty() => {
                    let (slot, _) = open.remove(choice % open.len());
                    closed = usize::from(slot.activity.is_displaced.load(Relaxed));
                }
                Step::Begin(choice, key) if !open.is_empty() => {
                    let at = choice % open.len();
                    open[at].1 = Some(request(&open[at].0, key));
                }
                Step::End(choice) if !open.is_empty() => {
                    let at = choice % open.len();
                    open[at].1 = None;
                }
                Step::GiveUp => slots.give_up_one(),
                Step::Close(_) | Step::Begin(..) | Step::End(_) => {}
            }
            let state = slots.state.lock();
            prop_assert!(state.ending + closed <= before + 1);
            let is_new = |connection: &&Connection| connection.class == Class::New;
            let new = state.open.values().filter(is_new).count();
            prop_assert!(new <= MAX.max(spare(MAX)) && state.open.len() - new <= MAX + spare(MAX));
            prop_assert!(state.open.len() <= MAX + 2 * spare(MAX));
            let mut held = BTreeMap::new();
            for group in state.open.values().flat_map(|connection| &connection.groups) {
                *held.entry(format!("{group:?}")).or_insert(1) += 1;
            }
            let counted = state.groups.iter().map(|group| (format!("{group:?}"), Arc::strong_count(group)));
            prop_assert_eq!(held, counted.collect());
        }
        drop(open);
        let state = slots.state.lock();
        prop_assert!(state.open.is_empty() && state.groups.is_empty() && state.ending == 0);
        prop_assert_eq!(slots.metrics.open.get(), 0);
    }
}
