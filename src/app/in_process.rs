//! The program without sockets, for tests and for programs that embed it.

use std::{convert::Infallible, fmt, sync::Arc};

use ::http::{Request, Response};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tower::{Service, ServiceExt, util::BoxCloneSyncService};

use super::assemble::Assembly;
use crate::{
    cache::Tiers,
    http::Portion,
    proxy::{self, Answered, CallError},
    upstream::{HeadFeed, Upstream},
};

type HttpService =
    BoxCloneSyncService<Request<Full<Bytes>>, Response<UnsyncBoxBody<Portion, Infallible>>, Infallible>;

/// The program without listeners: HTTP requests in, HTTP responses out. Cheap to clone.
#[derive(Clone)]
pub struct InProcess {
    service: HttpService,
    registry: Arc<Registry>,
    upstream: Upstream,
    tiers: Tiers,
    /// Keeps the channel open, because the poller stops waiting for another feed when the sender is dropped.
    _feed: Arc<watch::Sender<Option<HeadFeed>>>,
}

// === impl InProcess ===

impl InProcess {
    /// Spawns the background tasks of `assembly` on the current runtime.
    pub(super) fn start<P>(assembly: Assembly<P>) -> Self
    where
        P: Service<proxy::Request, Response = Answered, Error = CallError, Future: Send>
            + Clone
            + Send
            + Sync
            + 'static,
    {
        let service = assembly.service::<Full<Bytes>>(None, None);
        let service = service.map_response(|response: Response<_>| response.map(BodyExt::boxed_unsync));
        let Assembly { registry, upstream, feed, tiers, proxy, .. } = assembly;
        tokio::spawn(upstream.watch_identity());
        tokio::spawn(proxy.follower.run(feed.subscribe()));
        Self {
            service: BoxCloneSyncService::new(service),
            registry: Arc::new(registry),
            upstream,
            tiers,
            _feed: Arc::new(feed),
        }
    }

    /// Sends a JSON-RPC packet, and returns the response with its whole body.
    pub async fn post(&self, packet: impl Into<Bytes>) -> Response<Bytes> {
        let request = Request::post("/").header("content-type", "application/json");
        let request = request.body(Full::from(packet.into())).expect("the parts of the request are valid");
        let (parts, body) = self.request(request).await.into_parts();
        let Ok(body) = body.collect().await;
        Response::from_parts(parts, body.to_bytes())
    }

    /// Sends a request, and returns the response as it would be written to a connection.
    pub async fn request(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Response<UnsyncBoxBody<Portion, Infallible>> {
        let Ok(response) = self.service.clone().oneshot(request).await;
        response
    }

    /// Returns the registry of the program's metrics.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Returns the upstream.
    pub fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// Returns the cache tiers behind the cache in memory.
    pub fn tiers(&self) -> &Tiers {
        &self.tiers
    }
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcess").field("upstream", &self.upstream).finish_non_exhaustive()
    }
}
