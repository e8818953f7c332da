//! Checks whether the configuration of an endpoint is usable.

use super::{
    super::{Config, EndpointConfig},
    EndpointAddress, EndpointError, HeadFeed,
};

/// Maximum length of an endpoint's name. It appears in every log line and metric of the endpoint.
const MAX_NAME: usize = 40;

fn is_name(name: &str) -> bool {
    let is_printable = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_printable) && name.trim() == name
}

/// Checks an endpoint's configuration, including its secrets. Does not connect.
///
/// # Errors
/// If the name, a secret, URL or header is invalid, or the weight or a rate is zero.
pub fn check_endpoint(endpoint: &EndpointConfig) -> Result<(), EndpointError> {
    if endpoint.name.as_deref().is_some_and(|name| !is_name(name)) {
        return Err(EndpointError::Name);
    }
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
