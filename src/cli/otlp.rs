//! Exports spans to a receiver by OTLP over HTTP.
//!
//! Finished spans wait in a queue for a thread that sends them. Calls never wait for the export: if the queue is
//! full, new spans are dropped. The export does not depend on the log level. It does not trace itself, because it
//! collects only spans of this program, and sending spans creates none.

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

/// Default service name of the spans.
const SERVICE: &str = env!("CARGO_PKG_NAME");

/// Path that is appended to the URL of the receiver.
const PATH: &str = "v1/traces";

/// Capacity of the queue in spans. They take a few MiB, and cover one second at a thousand calls per second.
const MOST_WAITING: usize = 4096;

/// Maximum number of spans in one request.
const MOST_AT_ONCE: usize = 512;

/// Time that a span waits for other spans, so that one request sends them together.
const DELAY: Duration = Duration::from_secs(1);

/// Time limit of one request.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit for sending the remaining spans at shutdown.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// Outcomes of an upstream attempt that are not failures: a result, or the node's own error.
const ANSWERED: [&str; 2] = ["result", "error"];

/// The running export, if a receiver is configured.
pub(super) struct Export(Option<SdkTracerProvider>);

/// The receiver of the spans.
#[derive(Clone, Debug)]
struct Receiver {
    poster: Poster,
    /// URL without secrets, for the log.
    name: Arc<str>,
    /// Runs the requests, because the sending thread has no runtime of its own.
    runtime: Handle,
    log_throttle: Arc<LogThrottle>,
}

/// Adds kind and status to spans before it exports them.
#[derive(Debug)]
struct Completed(OtlpExporter);

// === impl Export ===

impl Export {
    /// Starts the export, and returns the layer that collects the spans; no layer if no receiver is configured.
    ///
    /// # Errors
    /// If the configuration is invalid.
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
            // `Receiver` ignores this URL and uses its own. It is set so that the library does not read a URL from
            // the environment.
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
            // Source locations and threads do not help operators.
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

    /// Sends the remaining spans, within a time limit.
    pub(super) async fn finish(self) {
        let Some(provider) = self.0 else { return };
        // `spawn_blocking`, because the shutdown blocks its thread. The result is ignored, because `Receiver` has
        // logged any failure.
        let _ = task::spawn_blocking(move || provider.shutdown_with_timeout(LAST_WORDS)).await;
    }
}

/// Returns the attributes of this instance. `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` override the defaults.
fn resource() -> Resource {
    let named = env::var("OTEL_SERVICE_NAME").ok().filter(|name| !name.is_empty());
    // `OTEL_SERVICE_NAME` comes first, as the specification says. The library would prefer
    // `OTEL_RESOURCE_ATTRIBUTES`.
    let name = named.or_else(|| {
        let attribute = Resource::builder().build().get(&Key::from_static_str("service.name"))?.to_string();
        // The library uses this name if no other is set.
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
            warn!(%error, receiver = %self.name, "span export failed; spans are lost");
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
            // Only the body of the library's request is used: URL and headers come from the configuration.
            let (poster, body) = (self.poster.clone(), request.into_body());
            let protobuf = HeaderValue::from_static("application/x-protobuf");
            let sending = self.runtime.spawn(async move { poster.post(protobuf, body).await });
            let status = match sending.await {
                Ok(Ok(status)) => status,
                Ok(Err(error)) => {
                    self.warn(&error);
                    return Err(error.to_string().into());
                }
                // The runtime is shutting down.
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

/// Sets the kind and the status of a span. This happens before the export instead of where spans are created, because
/// the log would show fields that are set there.
fn complete(span: &mut SpanData) {
    let value_of = |key: &str| {
        span.attributes
            .iter()
            .find(|attribute| attribute.key.as_str() == key)
            .map(|attribute| attribute.value.as_str())
    };
    let outcome = value_of("outcome");
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
