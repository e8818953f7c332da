use proptest::prelude::*;

use super::*;

const MAX: u64 = 1000;
const CLIENT_MAX: u64 = 400;

fn budget() -> ByteBudget {
    ByteBudget::new(MAX, Some(CLIENT_MAX))
}

/// Leases as many parts of `bytes` each as the budget allows.
fn fill(budget: &ByteBudget, client: Option<Client>, bytes: usize) -> Vec<ByteLease> {
    let next = || {
        let mut lease = budget.lease_of_part(client);
        lease.grow(bytes).ok().map(|()| lease)
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn leases_share_the_budget_and_return_bytes() {
    let budget = budget();
    let (mut one, mut two) = (budget.lease_of_part(None), budget.lease_of_part(None));
    one.grow(1).unwrap();
    one.grow(249).unwrap();
    two.grow(750).unwrap();
    for _ in 0..100 {
        assert_eq!(one.grow(1), Err(Exhausted::Total));
    }
    drop(two);
    one.grow(750).unwrap();
    drop(one);
    assert_eq!(budget.held(), 0);
}

#[test]
fn one_client_leaves_room_for_others() {
    let budget = budget();
    let [greedy, modest] = [1, 2].map(|key| Some(Client::Key(key)));
    let held = fill(&budget, greedy, 50);
    assert_eq!(held.len(), 8);
    assert_eq!(budget.lease_of_part(greedy).grow(1), Err(Exhausted::Client));
    let others = fill(&budget, modest, 50);
    assert_eq!(others.len(), 8);
    // Without a client, only the total limit applies.
    assert_eq!(fill(&budget, None, 50).len(), 4);
    drop((held, others));
    assert!(budget.0.clients.is_empty());
}

#[test]
fn small_leases_are_not_counted() {
    let budget = ByteBudget::new(MAX, None);
    let mut all = budget.lease_of_part(None);
    all.grow(1000).unwrap();
    let mut small = budget.lease(Some(Client::Key(1)));
    small.grow(100).unwrap();
    small.grow(SMALL - 100).unwrap();
    assert_eq!((budget.held(), small.held()), (MAX, SMALL));
    assert_eq!(small.grow(1), Err(Exhausted::Client));
    small.hold(SMALL + 1);
    assert_eq!(budget.held(), MAX + SMALL as u64 + 1);
    small.resize(SMALL).unwrap();
    assert_eq!(budget.held(), MAX);
}

#[test]
fn bytes_in_memory_are_held_even_over_the_limit() {
    let budget = budget();
    let client = Some(Client::Key(1));
    let (mut one, mut two) = (budget.lease_of_part(client), budget.lease_of_part(client));
    one.hold(800);
    two.hold(800);
    assert_eq!(budget.lease_of_part(None).grow(1), Err(Exhausted::Total));
    one.absorb(two);
    assert_eq!((one.held(), budget.0.clients.of(Client::Key(1))), (1600, 1600));
    one.hold(399);
    assert_eq!(one.grow(2), Err(Exhausted::Client));
    one.grow(1).unwrap();
    drop(one);
    assert_eq!(budget.held(), 0);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Open(Option<u64>),
    Grow(usize, usize),
    Hold(usize, usize),
    Absorb(usize, usize),
    Drop(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let at = || 0_usize..20;
    prop_oneof![
        3 => prop::option::of(0_u64..3).prop_map(Step::Open),
        6 => (at(), 0_usize..300).prop_map(|(at, bytes)| Step::Grow(at, bytes)),
        1 => (at(), 0_usize..300).prop_map(|(at, bytes)| Step::Hold(at, bytes)),
        1 => (at(), at()).prop_map(|(at, other)| Step::Absorb(at, other)),
        2 => at().prop_map(Step::Drop),
    ]
}

proptest! {
    #[test]
    fn limits_hold_and_all_bytes_are_returned(steps in prop::collection::vec(step(), 0..80)) {
        let budget = budget();
        let mut leases: Vec<(Option<u64>, ByteLease)> = Vec::new();
        let of = |leases: &[(Option<u64>, ByteLease)], client| {
            leases.iter().filter(|(of, _)| *of == Some(client)).map(|(_, lease)| lease.held() as u64).sum::<u64>()
        };
        for step in steps {
            let before = budget.held();
            match step {
                Step::Open(client) => leases.push((client, budget.lease_of_part(client.map(Client::Key)))),
                Step::Grow(at, bytes) => if at < leases.len() {
                    let client = leases[at].0;
                    let own = client.map_or(0, |client| of(&leases, client));
                    let fits = before + bytes as u64 <= MAX;
                    let may = bytes == 0 || (fits && (client.is_none() || own + bytes as u64 <= CLIENT_MAX));
                    let lease = &mut leases[at].1;
                    let had = lease.held();
                    prop_assert_eq!(lease.grow(bytes).is_ok(), may);
                    prop_assert_eq!(lease.held(), if may { had + bytes } else { had });
                },
                Step::Hold(at, bytes) => if let Some((_, lease)) = leases.get_mut(at) {
                    lease.hold(bytes);
                    prop_assert_eq!(lease.held(), bytes);
                },
                Step::Absorb(at, other) => if at < other && other < leases.len() && leases[at].0 == leases[other].0 {
                    let (_, other) = leases.remove(other);
                    leases[at].1.absorb(other);
                    prop_assert_eq!(budget.held(), before);
                },
                Step::Drop(at) => if at < leases.len() {
                    leases.remove(at);
                },
            }
            let held: usize = leases.iter().map(|(_, lease)| lease.held()).sum();
            prop_assert_eq!(budget.held(), held as u64);
            for client in 0..3 {
                prop_assert_eq!(budget.0.clients.of(Client::Key(client)), of(&leases, client));
            }
        }
        drop(leases);
        prop_assert_eq!(budget.held(), 0);
        prop_assert!(budget.0.clients.is_empty());
    }
}
