//! Chooses among the available endpoints by the power of two choices.

use std::sync::Arc;

use super::super::endpoint::{Endpoint, Score};

/// Draws two random endpoints and returns the better one. Draws from the suitable endpoints that come first by
/// priority, or from all if none is suitable. The better of two is nearly as good as the best of all, and calls do not
/// all rush to the endpoint that was best a moment ago.
pub(in crate::upstream) fn choose(available: &[(Score, Arc<Endpoint>)]) -> Option<&Arc<Endpoint>> {
    let fit = available.iter().filter(|(score, _)| score.is_fit());
    let first = fit.map(|(_, endpoint)| endpoint.priority()).min();
    let mut group: Vec<_> = available
        .iter()
        .filter(|(score, endpoint)| first.is_none_or(|first| score.is_fit() && endpoint.priority() == first))
        .collect();
    let one = draw(&mut group)?;
    let two = draw(&mut group).unwrap_or(one);
    Some(if one.0 <= two.0 { &one.1 } else { &two.1 })
}

/// Removes one endpoint at random, by weight.
fn draw<'a>(group: &mut Vec<&'a (Score, Arc<Endpoint>)>) -> Option<&'a (Score, Arc<Endpoint>)> {
    let total: u64 = group.iter().map(|(_, endpoint)| u64::from(endpoint.weight())).sum();
    let mut left = fastrand::u64(..total.max(1));
    let at = group.iter().position(|(_, endpoint)| {
        let weight = u64::from(endpoint.weight());
        let drawn = left < weight;
        left = left.saturating_sub(weight);
        drawn
    })?;
    Some(group.swap_remove(at))
}
