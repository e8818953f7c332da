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

/// Returns a service that answers HTTP requests with `proxy`, under the limits in force. Cheap to clone, never fails.
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
        // Outermost: sees the final response to every request.
        .layer(TraceLayer)
        // Above rescue: web pages must be able to read errors, too. Preflights end here.
        .layer(CorsLayer(settings.cors().clone()))
        // Above everything that can fail: no raw error and no panic escapes from the layers below.
        .layer(RescueLayer(edge.access.metrics().clone()))
        // Above the in-flight limit: a refused request takes no permit. `Caller` carries the client's policy and rate on to
        // `proxy/stack.rs`: rates are per call, and a request may hold a thousand calls.
        .layer(AuthLayer::new(edge.access, edge.listen, browser_hint(edge.admin).into()))
        // Sheds load before bodies are read; waiting here would hold the memory that the limit saves.
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
