use std::{collections::HashMap, net::Ipv4Addr};

use http::Version;
use proptest::{collection::vec, prelude::*};

use super::*;

const MAX: usize = 6;

fn address(number: u8) -> Option<IpAddr> {
    Some(Ipv4Addr::new(10, 0, 0, number).into())
}

fn slots() -> Arc<Slots> {
    Arc::new(Slots::new(MAX, Arc::new(|peer| Some(peer) == address(0))))
}

/// Returns the number of slots of each address.
fn held(slots: &Slots) -> HashMap<Option<IpAddr>, usize> {
    slots.state.lock().holders.iter().map(|(holder, held)| (holder.network, held.len())).collect()
}

#[tokio::test]
async fn address_with_most_connections_is_displaced() {
    let slots = slots();
    let _few = [slots.take(address(1)).unwrap(), slots.take(address(1)).unwrap()];
    let many: Vec<_> = (0..4).map(|_| slots.take(address(2)).unwrap()).collect();
    let newcomers: Vec<_> = (3..=4).map(|number| slots.take(address(number)).unwrap()).collect();
    assert_eq!(held(&slots)[&address(1)], 2);
    assert_eq!(held(&slots)[&address(2)], 2);
    // The oldest connections are displaced.
    let displaced: Vec<_> = many.iter().map(|slot| slot.activity.is_displaced()).collect();
    assert_eq!(displaced, [true, true, false, false]);
    // A displaced connection that ends frees no second slot.
    drop(many);
    assert_eq!(slots.state.lock().taken, 4);
    drop(newcomers);
    assert_eq!(slots.state.lock().taken, 2);
}

#[tokio::test]
async fn busy_connections_yield_only_to_an_address_with_fewer() {
    let slots = slots();
    let busy: Vec<_> = (0..MAX).map(|_| slots.take(address(1)).unwrap()).collect();
    let requests: Vec<_> = busy.iter().map(|slot| slot.activity.begin_request(Version::HTTP_11)).collect();
    assert!(slots.take(address(1)).is_none(), "the newcomer waits");
    let newcomers: Vec<_> = (0..3).map_while(|_| slots.take(address(2))).collect();
    assert_eq!(newcomers.len(), 3);
    let _requests: Vec<_> =
        newcomers.iter().map(|slot| slot.activity.begin_request(Version::HTTP_11)).collect();
    assert!(slots.take(address(2)).is_none(), "both addresses have three connections");
    drop(requests);
    assert!(slots.take(address(1)).is_some(), "a connection of the same address is idle");
}

#[tokio::test]
async fn trusted_proxies_are_displaced_last() {
    let slots = slots();
    let _trusted: Vec<_> = (1..MAX).map(|_| slots.take(address(0)).unwrap()).collect();
    let stranger = slots.take(address(1)).unwrap();
    let _newcomer = slots.take(address(2)).unwrap();
    assert!(stranger.activity.is_displaced());
    assert_eq!(held(&slots)[&address(0)], MAX - 1);
    let _another = slots.take(address(0)).unwrap();
    let _last = slots.take(address(3)).unwrap();
    assert_eq!(held(&slots)[&address(0)], MAX - 1, "all other connections are gone");
}

#[tokio::test]
async fn idle_connections_of_larger_addresses_are_displaced() {
    let slots = slots();
    let _trusted: Vec<_> = (1..MAX).map(|_| slots.take(address(0)).unwrap()).collect();
    let busy = slots.take(address(1)).unwrap();
    let _request = busy.activity.begin_request(Version::HTTP_11);
    let _another = slots.take(address(0)).expect("an address displaces its own connection");
    let _newcomer = slots.take(address(2)).expect("an address with more has idle connections");
    assert!(!busy.activity.is_displaced());
}

#[tokio::test]
async fn address_displaces_its_own_idle_connection_first() {
    let slots = slots();
    let busy: Vec<_> = (0..3).map(|_| slots.take(address(1)).unwrap()).collect();
    let _requests: Vec<_> = busy.iter().map(|slot| slot.activity.begin_request(Version::HTTP_11)).collect();
    let own: Vec<_> = (0..2).map(|_| slots.take(address(2)).unwrap()).collect();
    let other = slots.take(address(3)).unwrap();
    let _newcomer = slots.take(address(2)).unwrap();
    assert!(own[0].activity.is_displaced());
    assert!(!other.activity.is_displaced() && !busy.iter().any(|slot| slot.activity.is_displaced()));
}

#[derive(Clone, Debug)]
enum Step {
    Open(u8),
    Close(usize),
    Begin(usize),
    End(usize),
    GiveUp,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..4_u8).prop_map(Step::Open),
        2 => any::<usize>().prop_map(Step::Close),
        2 => any::<usize>().prop_map(Step::Begin),
        2 => any::<usize>().prop_map(Step::End),
        1 => Just(Step::GiveUp),
    ]
}

proptest! {
    /// The cap is never exceeded. An address loses a connection only if no other address holds more, or to a newcomer
    /// of its own, or to an address that holds fewer. A newcomer waits only if neither its own address nor an address
    /// that holds more has an idle connection.
    #[test]
    fn newcomers_displace_only_the_largest_address(steps in vec(step(), 1..120)) {
        let slots = slots();
        let mut open = Vec::new();
        for step in steps {
            let before = held(&slots);
            match step {
                Step::Open(number) => {
                    let own = before.get(&address(number)).copied().unwrap_or_default();
                    let may_lose = |loser: &Option<IpAddr>, count: usize| {
                        let is_largest = before
                            .iter()
                            .all(|(other, most)| *most <= count || (*other == address(0) && *loser != address(0)));
                        is_largest || *loser == address(number) || own + 1 < count
                    };
                    let is_idle = |(slot, request): &(Slot, Option<_>)| {
                        request.is_none() && !slot.activity.is_displaced()
                    };
                    let idle: Vec<_> =
                        open.iter().filter(|open| is_idle(open)).map(|(slot, _)| slot.holder.network).collect();
                    let is_settling = slots.is_settling();
                    if let Some(slot) = slots.take(address(number)) {
                        open.push((slot, None));
                    } else {
                        prop_assert_eq!(slots.state.lock().taken, MAX);
                        let gives = |holder: &Option<IpAddr>| *holder == address(number) || own + 1 < before[holder];
                        prop_assert!(is_settling || !idle.iter().any(gives), "{:?}: {:?}", idle, before);
                    }
                    for (loser, count) in &before {
                        let lost = held(&slots).get(loser).copied().unwrap_or_default() < *count;
                        prop_assert!(!lost || may_lose(loser, *count), "{:?} of {:?}", loser, before);
                    }
                }
                Step::Close(choice) if !open.is_empty() => drop(open.remove(choice % open.len())),
                Step::Begin(choice) if !open.is_empty() => {
                    let at = choice % open.len();
                    let (slot, request): &mut (Slot, Option<_>) = &mut open[at];
                    *request = Some(slot.activity.begin_request(Version::HTTP_11));
                }
                Step::End(choice) if !open.is_empty() => {
                    let at = choice % open.len();
                    open[at].1 = None;
                }
                Step::GiveUp => slots.give_up_one(),
                Step::Close(_) | Step::Begin(_) | Step::End(_) => {}
            }
            let taken = held(&slots).values().sum::<usize>();
            prop_assert_eq!(slots.state.lock().taken, taken);
            prop_assert!(taken <= MAX);
        }
        drop(open);
        prop_assert_eq!(slots.state.lock().taken, 0);
    }
}
