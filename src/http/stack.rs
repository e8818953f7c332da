//! The edge's layers, in the order a request meets them.

use std::{convert::Infallible, net::IpAddr};

use http::{HeaderName, Request, Response};
use http_body::Body;
use tower::{Service, ServiceBuilder};
use tower_http::{request_id::PropagateRequestIdLayer, trace::TraceLayer};
use tracing::{Span, debug_span};

use super::{
    Access, Live, auth::AuthLayer, cors::CorsLayer, in_flight::InFlightLayer, packet::Packets,
    read::BodyLimits, rescue::RescueLayer, rpc::Rpc,
};
use crate::{
    budget::ByteBudget,
    jsonrpc::Rope,
    listen::Peer,
    proxy::{self, Answered, CallError},
};

pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The body of a response, with what the layers put around it.
pub trait AnswerBody: Body<Data = Rope, Error = Infallible> + Send + 'static {}

impl<B> AnswerBody for B where B: Body<Data = Rope, Error = Infallible> + Send + 'static {}

/// What an edge is made of besides the service that answers calls.
#[derive(Clone, Debug)]
pub struct Edge {
    /// Bytes that are being read, from clients and upstreams together.
    pub budget: ByteBudget,
    /// Bytes of answers that wait to be taken.
    pub waiting: ByteBudget,
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
    live: Live,
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
    let config = live.config();
    let in_flight = InFlightLayer::new(live.in_flight());
    let cors = CorsLayer(live.clone());
    let rpc = Rpc {
        packets: Packets {
            proxy,
            concurrency: config.batch_concurrency,
            max_answer: config.max_batch_answer.as_u64(),
            waiting: edge.waiting,
        },
        body: BodyLimits { max: config.max_body.as_u64(), timeout: config.body_timeout, budget: edge.budget },
        max_batch: config.max_batch,
        live,
    };
    ServiceBuilder::new()
        // Outermost: sees what every other layer makes of a request. Without paths, which may hold keys.
        .layer(
            TraceLayer::new_for_http()
                .make_span_with(request_span)
                .on_request(())
                .on_body_chunk(())
                .on_eos(())
                .on_failure(()),
        )
        .layer(PropagateRequestIdLayer::new(REQUEST_ID))
        // Above rescue: a page must be able to read errors too. Preflights end here.
        .layer(cors)
        // Above everything that can fail: nothing under here escapes as a raw error or a panic.
        .layer(RescueLayer { hint: browser_hint(edge.admin).into() })
        // Above what is scarce: who may not come in takes nobody's place. What they may do goes on in the caller:
        // rates are per call, and a request may hold a thousand, so they are kept in `proxy/stack.rs`.
        .layer(AuthLayer::new(edge.access, edge.listen))
        // Sheds before bodies are read; waiting here would hold memory that is to be saved.
        .layer(in_flight)
        .service(rpc)
}

fn request_span<B>(request: &Request<B>) -> Span {
    let id = request.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok());
    debug_span!("request", method = %request.method(), version = ?request.version(), id)
}

fn browser_hint(admin: Option<String>) -> String {
    let hint = "This is an Ethereum JSON-RPC endpoint: point a wallet at it, or POST calls to it.\n";
    match admin {
        Some(admin) => format!("{hint}Its status is at {admin}/\n"),
        None => hint.to_owned(),
    }
}
