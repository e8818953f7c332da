//! Makes endpoints of their configuration, and knows those again that were there before.

use std::sync::Arc;

use super::super::{
    Config, EndpointConfig, Metrics,
    endpoint::Endpoint,
    identity::PinnedChain,
    transport::{EndpointAddress, Transport, TransportSettings, with_deadline},
};

/// An endpoint, and how it is reached.
#[derive(Clone, Debug)]
pub struct EndpointParts {
    /// What logs and metrics call it, if no other is called so: its URL without what is secret in it.
    pub name: Arc<str>,
    /// What it is reached with, by which it is known again; `None` where that cannot be told.
    pub address: Option<EndpointAddress>,
    /// How it is reached.
    pub transport: Transport,
    /// What is said of it.
    pub config: EndpointConfig,
}

/// The endpoints for these parts, in their order: those that were there before, and new ones.
pub(in crate::upstream) fn assemble(
    mut before: Vec<Arc<Endpoint>>,
    parts: Vec<EndpointParts>,
    pinned_chain: Option<&Arc<PinnedChain>>,
    config: &Config,
    metrics: &Metrics,
) -> Vec<Arc<Endpoint>> {
    let settings = TransportSettings::from(config);
    let mut again = |parts: &EndpointParts| {
        let at = before.iter().position(|endpoint| endpoint.has_address(parts.address.as_ref()))?;
        Some(before.remove(at))
    };
    let again: Vec<_> = parts.iter().map(&mut again).collect();
    let mut names: Vec<_> = again.iter().flatten().map(|endpoint| endpoint.name().clone()).collect();
    let assembled = parts.into_iter().zip(again).map(|(parts, again)| {
        // Whatever the transport does, it has no longer than this.
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

/// A name that none of these has: what tells two of them apart may be what must not be shown.
fn unused(name: Arc<str>, names: &[Arc<str>]) -> Arc<str> {
    if !names.contains(&name) {
        return name;
    }
    let mut numbered = (2..).map(|number| Arc::from(format!("{name} ({number})")));
    numbered.find(|numbered| !names.contains(numbered)).unwrap_or(name)
}
