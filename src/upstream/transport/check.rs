//! Whether an endpoint can be used as it is configured.

use super::{
    super::{Config, EndpointConfig},
    EndpointAddress, EndpointError, HeadFeed,
};

/// Checks an endpoint's configuration: looks up its secrets, and connects to nothing.
///
/// # Errors
/// If the endpoint's secrets, URLs or headers are no good, or its share or rate is nothing.
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
