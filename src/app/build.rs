//! Builds the parts of the program whose construction can fail, for a start and for a reload.

use tower::util::BoxCloneSyncService;
use tracing::warn;

use super::error::StartError;
use crate::{
    budget::ByteBudget,
    config::{Config, Problem},
    listen::{TlsConfig, TlsIdentity},
    upstream::{self, EndpointAddress, EndpointConfig, EndpointParts, HeadFeed, HttpTransport},
};

/// Checks whether the program would start with this configuration. Reads the files that the configuration names, but
/// connects to nothing and binds no address, because an instance may be running.
///
/// # Errors
/// The error that a start would return.
pub fn check(config: &Config) -> Result<(), StartError> {
    let budget = ByteBudget::new(config.max_bytes_in_flight.as_u64(), None);
    endpoints(config, &budget).map_err(StartError::Config)?;
    feed(&config.upstream).map_err(StartError::Config)?;
    certificate(&config.tls).map_err(StartError::Config)?;
    Ok(())
}

/// Reads the TLS certificate and key, if they are configured.
pub(super) fn certificate(config: &TlsConfig) -> Result<Option<TlsIdentity>, Problem> {
    config.read().map_err(|error| Problem::new(format!("tls.{}", error.key()), error))
}

/// Logs warnings about settings that are valid but probably unintended.
pub(super) fn log_warnings(config: &Config) {
    for warning in config.warnings() {
        warn!("{warning}");
    }
}

/// Returns whether there is only one endpoint, and it is `consistent`. Several endpoints can contradict each other from
/// call to call.
pub(super) fn is_consistent(endpoints: &[EndpointConfig]) -> bool {
    matches!(endpoints, [endpoint] if endpoint.consistent)
}

/// Resolves the endpoints and builds their transports.
pub(super) fn endpoints(config: &Config, budget: &ByteBudget) -> Result<Vec<EndpointParts>, Problem> {
    let listeners = [("listen", config.listen), ("admin", config.admin)];
    let config = &config.upstream;
    if config.endpoints.is_empty() {
        return Err(Problem::new(
            "upstream.endpoints",
            "no node is configured; use --upstream URL, such as http://127.0.0.1:8545",
        ));
    }
    let mut known: Vec<EndpointAddress> = Vec::new();
    let part = |(at, endpoint): (usize, &EndpointConfig)| {
        let problem = |error: String| Problem::new(format!("upstream.endpoints.{at}"), error);
        let address = EndpointAddress::resolve(endpoint).map_err(|error| problem(error.to_string()))?;
        if let Some((key, own)) = listeners.into_iter().find(|(_, own)| address.url().is_listener(*own)) {
            return Err(problem(format!(
                "{own} is Holdfast's own address ({key}); name the node, or listen on another address"
            )));
        }
        // A duplicate would receive the retries of its own failures, and calls at twice its rate.
        if let Some(same) = known.iter().position(|other| *other == address) {
            return Err(problem(format!(
                "has the same url and headers as upstream.endpoints.{same}; leave one out (to send more calls to an \
                 endpoint, raise its weight)"
            )));
        }
        known.push(address.clone());
        let transport = HttpTransport::try_new(&address, config, budget.clone())
            .map_err(|error| problem(error.to_string()))?;
        let transport = BoxCloneSyncService::new(transport);
        let name = endpoint.name.clone().unwrap_or_else(|| address.url().to_string()).into();
        Ok(EndpointParts { name, address: Some(address), transport, config: endpoint.clone() })
    };
    config.endpoints.iter().enumerate().map(part).collect()
}

/// Returns the `newHeads` feed of the first endpoint that has one.
pub(super) fn feed(config: &upstream::Config) -> Result<Option<HeadFeed>, Problem> {
    for (at, endpoint) in config.endpoints.iter().enumerate() {
        let feed = HeadFeed::try_new(endpoint, config);
        let feed = feed.map_err(|error| Problem::new(format!("upstream.endpoints.{at}"), error))?;
        if feed.is_some() {
            return Ok(feed);
        }
    }
    Ok(None)
}
