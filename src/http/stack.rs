//! The edge's layers, in the order a request meets them.

use std::{convert::Infallible, net::IpAddr};

use http::{Request, Response};
use http_body::Body;
use tower::{Service, ServiceBuilder};

use super::{
    access::{auth::AuthLayer, cors::CorsLayer, rules::Access},
    reloadable::Reloadable,
    request::{in_flight::InFlightLayer, packet::Packets, rpc::Rpc},
    response::{body::Portion, rescue::RescueLayer},
    trace::TraceLayer,
};
use crate::{
    budget::ByteBudget,
    listen::Peer,
    proxy::{self, Answered, CallError},
};

/// The body of a response, with what the layers put around it.
pub trait AnswerBody: Body<Data = Portion, Error = Infallible> + Send + 'static {}

impl<B> AnswerBody for B where B: Body<Data = Portion, Error = Infallible> + Send + 'static {}

/// What an edge is made of besides the service that answers calls.
#[derive(Clone, Debug)]
pub struct Edge {
    /// Counts bytes that are read from clients and upstreams, and answers that wait for their clients.
    pub budget: ByteBudget,
    /// Who may come in; the one who keeps a clone can replace it.
    pub access: Access,
    /// Where it listens; nowhere, if it is called by the program itself.
    pub listen: Option<IpAddr>,
    /// The URL of the admin listener, for a person who comes here with a browser.
    pub admin: Option<String>,
}

/// A service that answers HTTP requests with `proxy`, under the limits of the moment. Cheap to clone, never
/// fails.
pub fn stack<P, B>(
    settings: Reloadable,
    edge: Edge,
    proxy: P,
) -> impl Service<Request<B>, Response = Response<impl AnswerBody>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ Sync
+ 'static
where
    P: Service<proxy::Request, Response = Answered, Error = CallError, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
    B: Body<Data: Send> + Peer + Send + 'static,
{
    let in_flight = InFlightLayer::new(settings.in_flight());
    let rpc = Rpc::new(
        Packets { proxy, bytes: edge.budget.clone(), metrics: edge.access.metrics().clone() },
        edge.budget,
        settings.config().clone(),
    );
    ServiceBuilder::new()
        // Outermost: sees what every other layer makes of a request.
        .layer(TraceLayer)
        // Above rescue: a page must be able to read errors too. Preflights end here.
        .layer(CorsLayer(settings.cors().clone()))
        // Above everything that can fail: nothing under here escapes as a raw error or a panic.
        .layer(RescueLayer(edge.access.metrics().clone()))
        // Above what is scarce: who may not come in takes nobody's place. What they may do goes on in the caller:
        // rates are per call, and a request may hold a thousand, so they are kept in `proxy/stack.rs`.
        .layer(AuthLayer::new(edge.access, edge.listen, browser_hint(edge.admin).into()))
        // Sheds before bodies are read; waiting here would hold memory that is to be saved.
        .layer(in_flight)
        .service(rpc)
}

fn browser_hint(admin: Option<String>) -> String {
    let hint = "This is an Ethereum JSON-RPC endpoint: point a wallet at it, or POST calls to it.\n";
    match admin {
        Some(admin) => format!("{hint}Its status is at {admin}/\n"),
        None => hint.to_owned(),
    }
}
