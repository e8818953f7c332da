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

/// The body of a response, as the outermost layer returns it.
pub trait AnswerBody: Body<Data = Portion, Error = Infallible> + Send + 'static {}

impl<B> AnswerBody for B where B: Body<Data = Portion, Error = Infallible> + Send + 'static {}

/// Parts of the edge besides the proxy service.
#[derive(Clone, Debug)]
pub struct Edge {
    /// Counts bytes being read from clients and upstreams, and answers that clients have not read yet.
    pub budget: ByteBudget,
    /// Access rules; any clone can replace them.
    pub access: Access,
    /// Address of the listener; `None` if the program itself calls the edge.
    pub listen: Option<IpAddr>,
    /// URL of the admin listener, shown to browsers.
    pub admin: Option<String>,
}

/// Returns a service that answers HTTP requests with `proxy`, under the limits in force. The service is cheap to clone
/// and never fails.
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
        // Tracing is outermost, so that it sees the final response to every request.
        .layer(TraceLayer)
        // CORS is above rescue, so that web pages can read errors, too. This layer also answers preflights.
        .layer(CorsLayer(settings.cors().clone()))
        // Rescue is above everything that can fail, so that no raw error and no panic escapes from the layers below.
        .layer(RescueLayer(edge.access.metrics().clone()))
        // Authentication is above the in-flight limit, so that a refused request takes no permit. This layer puts the
        // client's policy and rate limit into `Caller`. The layers of `proxy/stack.rs` apply both to each call, because
        // a request may contain a thousand calls.
        .layer(AuthLayer::new(edge.access, edge.listen, browser_hint(edge.admin).into()))
        // This limit refuses excess requests before their bodies are read. If they waited here instead, they would take
        // up the memory that the limit saves.
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
