use std::{collections::HashSet, iter};

use http::Version;
use proptest::{collection::vec, prelude::*, sample::select};
use tokio::time::Instant;

use super::*;
use crate::listen::activity::RequestGuard;

const MAX: usize = 16;

/// What a test knows of a connection.
#[derive(Clone, Debug)]
struct Peer {
    class: Class,
    address: IpAddr,
    key: u64,
    phase: Phase,
}

/// Addresses that have a network of each length in common, or none.
const ADDRESSES: [&str; 8] = [
    "10.0.0.1",
    "10.0.0.2",
    "::ffff:10.0.0.2",
    "2001:db8:1::1",
    "2001:db8:1::2",
    "2001:db8:1:1::1",
    "2001:db8:1:100::1",
    "2001:db8:2::1",
];

fn peer() -> impl Strategy<Value = Peer> {
    let class = prop_oneof![
        1 => Just(Class::New),
        4 => Just(Class::Keyless),
        2 => Just(Class::Keyed),
        1 => Just(Class::Proxy),
    ];
    let address = select(&ADDRESSES).prop_map(|address| address.parse().unwrap());
    let phase = select(&[Phase::Head, Phase::Idle, Phase::Busy, Phase::Busy]);
    (class, address, 1..4_u64, phase).prop_map(|(class, address, key, phase)| Peer {
        class,
        address,
        key,
        phase: if class == Class::New { Phase::FirstByte } else { phase },
    })
}

/// Opens the connections. Their ids are their places in the list.
fn open(peers: &[Peer]) -> (Open, Vec<RequestGuard>) {
    let (mut groups, mut in_flight) = (HashSet::<Arc<Group>>::new(), Vec::new());
    let connections = peers.iter().map(|peer| {
        let activity = Arc::new(Activity::default());
        match peer.phase {
            Phase::Busy => in_flight.push(activity.begin_request(Version::HTTP_11)),
            Phase::Idle => drop(activity.begin_request(Version::HTTP_11)),
            Phase::Head => {
                drop(activity.begin_request(Version::HTTP_11));
                activity.has_read.store(true, Relaxed);
            }
            _ => {}
        }
        let own = Group::of(peer.class, peer.address, peer.key).into_iter();
        let own = own.map(|group| {
            groups.insert(Arc::new(group));
            groups.get(&group).unwrap().clone()
        });
        Connection { class: peer.class, groups: own.collect(), activity }
    });
    ((0..).zip(connections).collect(), in_flight)
}

/// Returns whether two connections count together at this level: 0 for an IPv6 /48, 1 for a /56, 2 for a /64.
fn is_same(one: &Peer, other: &Peer, level: usize) -> bool {
    one.class == other.class
        && match (one.class, one.address.to_canonical(), other.address.to_canonical()) {
            (Class::Keyed, ..) => one.key == other.key,
            (_, IpAddr::V6(one), IpAddr::V6(other)) => {
                one.octets()[..6 + level] == other.octets()[..6 + level]
            }
            (_, one, other) => one == other,
        }
}

fn held(peers: &[Peer], peer: &Peer) -> [usize; 3] {
    array::from_fn(|level| peers.iter().filter(|other| is_same(peer, other, level)).count())
}

/// Compares what two connections' networks or keys hold, where they differ first.
fn compared(peers: &[Peer], one: &Peer, other: &Peer) -> Ordering {
    (0..3)
        .find(|level| !is_same(one, other, *level))
        .map_or(Ordering::Equal, |level| held(peers, one)[level].cmp(&held(peers, other)[level]))
}

/// Returns the connection to close according to the order in `docs/guarantees.md`.
fn expected(peers: &[Peer], newcomer: usize) -> Option<usize> {
    let known = &peers[newcomer];
    let new = peers.iter().filter(|peer| peer.class == Class::New).count();
    let largest = |fits: &dyn Fn(&Peer) -> bool| {
        let fitting = (0..peers.len()).filter(|at| *at != newcomer && fits(&peers[*at]));
        fitting.min_by_key(|at| (Reverse(held(peers, &peers[*at])), peers[*at].phase == Phase::Busy, *at))
    };
    if known.class == Class::New {
        return match MAX.saturating_sub(peers.len() - new) {
            _ if peers.len() <= MAX || new <= spare(MAX) => None,
            free if free >= new => None,
            free if free > spare(MAX) => peers.iter().position(|peer| peer.class == Class::New),
            _ => {
                let all = (0..peers.len()).filter(|at| peers[*at].class == Class::New);
                all.min_by_key(|at| (Reverse(held(peers, &peers[*at])), *at))
            }
        };
    }
    if peers.len() - new <= MAX {
        return None;
    }
    let has_right = known.class != Class::Keyless;
    let is_busy = |peer: &Peer| peer.phase == Phase::Busy;
    let holds = |peer: &Peer| compared(peers, peer, known);
    let steps: [&dyn Fn(&Peer) -> bool; 5] = [
        &|peer| peer.class == Class::Keyless && peer.phase == Phase::Head,
        &|peer| peer.class == Class::Keyless && !is_busy(peer) && (has_right || holds(peer).is_ge()),
        &|peer| peer.class == Class::Keyless && is_busy(peer) && (has_right || holds(peer).is_gt()),
        &|peer| {
            let is_more = if is_busy(peer) { holds(peer).is_gt() } else { holds(peer).is_ge() };
            peer.class == Class::Keyed && known.class == Class::Keyed && is_more
        },
        &|peer| peer.class == Class::Proxy && !is_busy(peer),
    ];
    let itself = (peers.len() - new > MAX + spare(MAX)).then_some(newcomer);
    steps.into_iter().find_map(largest).or(itself)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn full_listener_closes_connections_in_order(peers in vec(peer(), 1..40), newcomer in any::<usize>()) {
        let newcomer = newcomer % peers.len();
        let (open, _in_flight) = open(&peers);
        let victim = victim(&open, Some(newcomer as u64), MAX).map(|id| usize::try_from(id).unwrap());
        prop_assert_eq!(victim, expected(&peers, newcomer));
        // The promises that matter most, whatever the order.
        if let Some(victim) = victim && victim != newcomer {
            let (victim, newcomer) = (&peers[victim], &peers[newcomer]);
            prop_assert!(victim.class != Class::Keyed || newcomer.class == Class::Keyed);
            prop_assert!(victim.class != Class::Proxy || victim.phase != Phase::Busy);
            prop_assert_eq!(victim.class == Class::New, newcomer.class == Class::New);
        }
    }

    #[test]
    fn no_busy_connection_is_closed_for_a_file_descriptor(peers in vec(peer(), 0..40)) {
        let (open, _in_flight) = open(&peers);
        let victim = victim(&open, None, MAX).map(|id| &peers[usize::try_from(id).unwrap()]);
        prop_assert_eq!(victim.is_none(), peers.iter().all(|peer| peer.phase == Phase::Busy));
        prop_assert!(victim.is_none_or(|victim| victim.phase != Phase::Busy));
        let is_new = |peer: &Peer| peer.class == Class::New;
        prop_assert_eq!(victim.is_some_and(is_new), peers.iter().any(is_new));
    }
}

/// A full listener of 2,000 connections of as many IPv6 networks, the worst case. The search must be cheap, because each
/// newcomer causes one: about 50 µs in a release build, ten times as long in a debug build.
#[test]
fn search_among_thousands_is_fast() {
    let peer = |at: u16| Peer {
        class: Class::Keyless,
        address: [0x2001, 0xdb8, at, 0, 0, 0, 0, 1].into(),
        key: 0,
        phase: Phase::Idle,
    };
    let peers: Vec<_> = (0..2000).map(peer).collect();
    let (open, _in_flight) = open(&peers);
    let searched = iter::repeat_with(|| {
        let begun = Instant::now();
        assert_eq!(victim(&open, Some(1999), 1999), Some(0));
        begun.elapsed()
    });
    let fastest = searched.take(20).min().unwrap();
    println!("one search among 2,000 connections: {fastest:?}");
    assert!(fastest.as_millis() < 5, "{fastest:?}");
}
