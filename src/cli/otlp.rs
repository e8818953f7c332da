//! Sends spans to a receiver: OTLP over HTTP.
//!
//! Spans that have ended wait in a queue for a thread that sends them. No call waits for that: where the queue is full, a
//! span is dropped. What is sent does not depend on what is logged, and is never about the sending itself: only spans of
//! this program are, and it makes none for that.

use std::{env, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Request, Response};
use opentelemetry::{
    Key, KeyValue,
    trace::{SpanKind, Status, TracerProvider},
};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, SpanExporter as OtlpExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider, SpanData, SpanExporter},
};
use tokio::{runtime::Handle, task};
use tracing::{level_filters::LevelFilter, warn};
use tracing_subscriber::{Layer, Registry, filter::filter_fn};

use super::log::SpanLayer;
use crate::{
    config::{Problem, TracingConfig},
    log_throttle::LogThrottle,
    upstream::Poster,
};

/// Who it is to whoever receives spans, unless OTEL_SERVICE_NAME says otherwise.
const SERVICE: &str = env!("CARGO_PKG_NAME");

/// What is added to the URL of a receiver.
const PATH: &str = "v1/traces";

/// Spans that wait to be sent: some MiB at most, and a second's at a thousand calls.
const MOST_WAITING: usize = 4096;

/// Spans in a request.
const MOST_AT_ONCE: usize = 512;

/// How long a span waits for others to be sent with.
const DELAY: Duration = Duration::from_secs(1);

/// For one request. A receiver that takes longer is as good as none.
const TIMEOUT: Duration = Duration::from_secs(5);

/// For what is left at the end. Whoever ends the program waits for it.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// What an attempt comes to that has not failed: an answer, or the node's own error.
const ANSWERED: [&str; 2] = ["result", "error"];

/// Sends spans, as long as it is there.
pub(super) struct Export(Option<SdkTracerProvider>);

/// Who takes them.
#[derive(Clone, Debug)]
struct Receiver {
    poster: Poster,
    /// As it may be shown.
    name: Arc<str>,
    /// The thread that sends has no clock and no sockets of its own.
    runtime: Handle,
    log_throttle: Arc<LogThrottle>,
}

/// Adds what spans do not say of themselves.
#[derive(Debug)]
struct Completed(OtlpExporter);

// === impl Export ===

impl Export {
    /// Starts to send what comes through the layer, if there is anybody to send it to.
    ///
    /// # Errors
    /// If the configuration is no good.
    pub(super) fn start(
        config: &TracingConfig,
        runtime: &Handle,
    ) -> Result<(Self, Option<SpanLayer>), Problem> {
        let Some(address) = config.receiver()? else { return Ok((Self(None), None)) };
        let problem = |error: &dyn std::fmt::Display| Problem::new("tracing.otlp", error);
        let receiver = Receiver {
            poster: Poster::try_new(&address, PATH, TIMEOUT).map_err(|error| problem(&error))?,
            name: address.url().to_string().into(),
            runtime: runtime.clone(),
            log_throttle: Arc::default(),
        };
        let exporter = OtlpExporter::builder()
            .with_http()
            .with_http_client(receiver)
            // Where it goes is the receiver's to know: this is set so that nothing is taken from the environment.
            .with_endpoint("http://localhost/v1/traces")
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(TIMEOUT)
            .build()
            .map_err(|error| problem(&error))?;
        let queue = BatchConfigBuilder::default()
            .with_max_queue_size(MOST_WAITING)
            .with_max_export_batch_size(MOST_AT_ONCE)
            .with_scheduled_delay(DELAY)
            .build();
        let sender = BatchSpanProcessor::builder(Completed(exporter)).with_batch_config(queue).build();
        let provider = SdkTracerProvider::builder()
            .with_span_processor(sender)
            .with_resource(resource())
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(config.sample.as_f64()))))
            .build();
        let layer = tracing_opentelemetry::layer::<Registry>()
            .with_tracer(provider.tracer(SERVICE))
            // Where in the source a span is made, and by which thread, is nobody's business.
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_level(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false)
            .with_filter(
                filter_fn(|metadata| metadata.is_span() && metadata.target().starts_with(SERVICE))
                    .with_max_level_hint(LevelFilter::DEBUG),
            );
        Ok((Self(Some(provider)), Some(layer.boxed())))
    }

    /// Sends what is left, for so long and no longer.
    pub(super) async fn finish(self) {
        let Some(provider) = self.0 else { return };
        // Waits in place. What goes wrong meanwhile has been said.
        let _ = task::spawn_blocking(move || provider.shutdown_with_timeout(LAST_WORDS)).await;
    }
}

/// Who sends: `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` count, as whoever deploys it knows best what to call it.
fn resource() -> Resource {
    let named = env::var("OTEL_SERVICE_NAME").ok().filter(|name| !name.is_empty());
    // The library has it that the other variable counts more, which is against the standard.
    let name = named.or_else(|| {
        let attribute = Resource::builder().build().get(&Key::from_static_str("service.name"))?.to_string();
        // What the library says where nobody has said anything.
        (!attribute.starts_with("unknown_service")).then_some(attribute)
    });
    Resource::builder()
        .with_service_name(name.unwrap_or_else(|| SERVICE.to_owned()))
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build()
}

// === impl Receiver ===

impl Receiver {
    fn warn(&self, error: &dyn std::fmt::Display) {
        if self.log_throttle.is_due("undelivered") {
            warn!(%error, receiver = %self.name, "spans could not be delivered, and are lost");
        }
    }
}

impl HttpClient for Receiver {
    fn send_bytes<'a, 'f>(
        &'a self,
        request: Request<Bytes>,
    ) -> BoxFuture<'f, Result<Response<Bytes>, HttpError>>
    where
        'a: 'f,
        Self: 'f,
    {
        Box::pin(async move {
            // Of what was made for anybody only the body counts: what else is sent, and where, the configuration says.
            let (poster, body) = (self.poster.clone(), request.into_body());
            let protobuf = HeaderValue::from_static("application/x-protobuf");
            let sending = self.runtime.spawn(async move { poster.post(protobuf, body).await });
            let status = match sending.await {
                Ok(Ok(status)) => status,
                Ok(Err(error)) => {
                    self.warn(&error);
                    return Err(error.to_string().into());
                }
                // The program has ended.
                Err(error) => return Err(error.into()),
            };
            if !status.is_success() {
                self.warn(&status);
            }
            let mut response = Response::new(Bytes::new());
            *response.status_mut() = status;
            Ok(response)
        })
    }
}

// === impl Completed ===

impl SpanExporter for Completed {
    async fn export(&self, mut spans: Vec<SpanData>) -> OTelSdkResult {
        for span in &mut spans {
            complete(span);
        }
        self.0.export(spans).await
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}

/// Which side of a request a span is, and whether it failed: said here, and not where spans are made, since the log shows what
/// is said there.
fn complete(span: &mut SpanData) {
    let log_throttle = |key: &str| {
        span.attributes
            .iter()
            .find(|log_throttle| log_throttle.key.as_str() == key)
            .map(|log_throttle| log_throttle.value.as_str())
    };
    let outcome = log_throttle("outcome");
    match &*span.name {
        "request" => span.span_kind = SpanKind::Server,
        "upstream" => {
            if let Some(failure) = outcome.filter(|outcome| !ANSWERED.contains(&&**outcome)) {
                span.status = Status::error(failure.into_owned());
            }
            span.span_kind = SpanKind::Client;
        }
        _ => {}
    }
}
