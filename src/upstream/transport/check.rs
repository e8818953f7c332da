//! Checks whether the configuration of an endpoint is usable.

use super::{
    super::{Config, EndpointConfig},
    EndpointAddress, EndpointError, HeadFeed,
};

/// Checks an endpoint's configuration, including its secrets. Does not connect.
///
/// # Errors
/// If a secret, URL or header is invalid, or the weight or a rate is zero.
pub fn check_endpoint(endpoint: &EndpointConfig) -> Result<(), EndpointError> {
    if endpoint.weight == 0 {
        return Err(EndpointError::Weight);
    }
    let of_rate = endpoint.rate.map(|rate| [("per_second", rate.per_second), ("burst", rate.burst)]);
    if let Some((key, _)) = of_rate.into_iter().flatten().find(|(_, value)| *value == 0) {
        return Err(EndpointError::Rate { key });
    }
    EndpointAddress::resolve(endpoint)?;
    HeadFeed::try_new(endpoint, &Config::default()).map(drop)
}
