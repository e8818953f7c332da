//! Builds from a configuration the parts that can fail: a start and a reload both do.

use tower::util::BoxCloneSyncService;
use tracing::warn;

use super::error::StartError;
use crate::{
    budget::ByteBudget,
    config::{Config, Problem},
    listen::{TlsConfig, TlsIdentity},
    upstream::{self, EndpointAddress, EndpointConfig, EndpointParts, HeadFeed, HttpTransport},
};

/// Checks whether the program would start with this configuration. Reads the files that it names, and connects to nothing.
/// Does not bind its addresses, since the program may be running.
///
/// # Errors
/// The error of a start.
pub fn check(config: &Config) -> Result<(), StartError> {
    let budget = ByteBudget::new(config.max_bytes_in_flight.as_u64(), None);
    endpoints(config, &budget).map_err(StartError::Config)?;
    feed(&config.upstream).map_err(StartError::Config)?;
    certificate(&config.tls).map_err(StartError::Config)?;
    Ok(())
}

/// The certificate to show, if there is one.
pub(super) fn certificate(config: &TlsConfig) -> Result<Option<TlsIdentity>, Problem> {
    config.read().map_err(|error| Problem::new(format!("tls.{}", error.key()), error))
}

/// Works as it is configured, and is seldom meant so.
pub(super) fn log_warnings(config: &Config) {
    for warning in config.warnings() {
        warn!("{warning}");
    }
}

/// Is it one node that does not contradict itself? Two do not agree from call to call.
pub(super) fn is_consistent(endpoints: &[EndpointConfig]) -> bool {
    matches!(endpoints, [endpoint] if endpoint.consistent)
}

/// The nodes, and how they are reached.
pub(super) fn endpoints(config: &Config, budget: &ByteBudget) -> Result<Vec<EndpointParts>, Problem> {
    let listeners = [("listen", config.listen), ("admin", config.admin)];
    let config = &config.upstream;
    if config.endpoints.is_empty() {
        return Err(Problem::new(
            "upstream.endpoints",
            "no node is named; use --upstream http://127.0.0.1:8545, say",
        ));
    }
    let mut known: Vec<EndpointAddress> = Vec::new();
    let part = |(at, endpoint): (usize, &EndpointConfig)| {
        let problem = |error: String| Problem::new(format!("upstream.endpoints.{at}"), error);
        let address = EndpointAddress::resolve(endpoint).map_err(|error| problem(error.to_string()))?;
        if let Some((key, own)) = listeners.into_iter().find(|(_, own)| address.url().is_listener(*own)) {
            return Err(problem(format!(
                "{own} is where Holdfast itself listens ({key}); name the node, or listen elsewhere"
            )));
        }
        // It would be asked again where it has failed, and at twice its rate.
        if let Some(same) = known.iter().position(|other| *other == address) {
            return Err(problem(format!(
                "is reached with the same url and headers as upstream.endpoints.{same}; leave one out (one that is to \
                 take more of the calls has a higher weight)"
            )));
        }
        known.push(address.clone());
        let transport = HttpTransport::try_new(&address, config, budget.clone())
            .map_err(|error| problem(error.to_string()))?;
        let transport = BoxCloneSyncService::new(transport);
        let name = address.url().to_string().into();
        Ok(EndpointParts { name, address: Some(address), transport, config: endpoint.clone() })
    };
    config.endpoints.iter().enumerate().map(part).collect()
}

/// Where the first endpoint that does tells of new heads.
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
