//! Builds endpoints from their configuration, reusing those that existed before.

use std::sync::Arc;

use super::super::{
    Config, EndpointConfig, Metrics,
    endpoint::Endpoint,
    identity::PinnedChain,
    transport::{EndpointAddress, Transport, TransportSettings, with_deadline},
};

/// An endpoint's configuration and transport.
#[derive(Clone, Debug)]
pub struct EndpointParts {
    /// Name in logs and metrics: the configured one, or the URL without secrets. Endpoints with the same name get a
    /// number.
    pub name: Arc<str>,
    /// URL and headers, which identify the endpoint after a reload; `None` if unknown.
    pub address: Option<EndpointAddress>,
    /// The transport.
    pub transport: Transport,
    /// The configuration.
    pub config: EndpointConfig,
}

/// Returns the endpoints for these parts, in order: existing ones where address and name match, otherwise new ones.
pub(in crate::upstream) fn assemble(
    mut before: Vec<Arc<Endpoint>>,
    parts: Vec<EndpointParts>,
    pinned_chain: Option<&Arc<PinnedChain>>,
    config: &Config,
    metrics: &Metrics,
) -> Vec<Arc<Endpoint>> {
    let settings = TransportSettings::from(config);
    let mut again = |parts: &EndpointParts| {
        let is_same = |endpoint: &Arc<Endpoint>| {
            endpoint.has_address(parts.address.as_ref()) && has_name(endpoint.name(), parts)
        };
        let at = before.iter().position(is_same)?;
        Some(before.remove(at))
    };
    let again: Vec<_> = parts.iter().map(&mut again).collect();
    let mut names: Vec<_> = again.iter().flatten().map(|endpoint| endpoint.name().clone()).collect();
    let assembled = parts.into_iter().zip(again).map(|(parts, again)| {
        // The time-out applies to every transport.
        let transport = with_deadline(parts.transport, config.timeout);
        if let Some(endpoint) = again {
            endpoint.update(&parts.config, transport, settings);
            return endpoint;
        }
        let name = unused(parts.name, &names);
        names.push(name.clone());
        let metrics = metrics.for_endpoint(&name);
        Arc::new(Endpoint::new(
            name,
            parts.address,
            transport,
            settings,
            &parts.config,
            pinned_chain,
            metrics,
        ))
    });
    assembled.collect()
}

/// Returns whether an existing endpoint has the name that these parts ask for. A name that is not configured may have a
/// number at its end.
fn has_name(name: &str, parts: &EndpointParts) -> bool {
    match &parts.config.name {
        Some(configured) => name == configured,
        None => name.starts_with(&*parts.name),
    }
}

/// Returns `name`, or adds a number if `names` contains it: two URLs may differ only in their secrets, which a name
/// omits.
fn unused(name: Arc<str>, names: &[Arc<str>]) -> Arc<str> {
    if !names.contains(&name) {
        return name;
    }
    let mut numbered = (2..).map(|number| Arc::from(format!("{name} ({number})")));
    numbered.find(|numbered| !names.contains(numbered)).unwrap_or(name)
}
