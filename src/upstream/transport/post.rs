//! Posts data to a server other than a node (a trace collector), with the time-outs, headers and TLS of an endpoint.

use std::{error::Error, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use reqwest::{Client, Url};

use super::{super::Config, EndpointAddress, EndpointError, cause::root_cause, client::build_client};

/// Maximum number of bytes to read of a response. A response that is read to its end allows the connection to be
/// reused.
const MAX_READ: usize = 64 * 1024;

/// A client that posts to one URL. Cheap to clone; its `Debug` output shows no secrets.
#[derive(Clone)]
pub struct Poster {
    client: Client,
    url: Url,
    timeout: Duration,
}

// === impl Poster ===

impl Poster {
    /// Prepares posts to `path` below the URL of `address`, with `timeout` for each; does not connect yet.
    ///
    /// # Errors
    /// If the TLS setup fails.
    pub fn try_new(address: &EndpointAddress, path: &str, timeout: Duration) -> Result<Self, EndpointError> {
        let config = Config { timeout, ..Config::default() };
        let client = build_client(address.url(), address.headers().clone(), &config)
            .map_err(|error| EndpointError::Client(root_cause(&error)))?;
        let mut url = address.url().as_url().clone();
        url.set_path(&format!("{}/{path}", url.path().trim_end_matches('/')));
        Ok(Self { client, url, timeout })
    }

    /// Posts `body` and returns the status of the response.
    ///
    /// # Errors
    /// If there is no complete response. The error does not show the URL.
    pub async fn post(
        &self,
        content_type: HeaderValue,
        body: Bytes,
    ) -> Result<StatusCode, Arc<dyn Error + Send + Sync>> {
        let request = self.client.post(self.url.clone()).timeout(self.timeout);
        let sent = request.header(header::CONTENT_TYPE, content_type).body(body).send().await;
        let named = |error: reqwest::Error| root_cause(&error.without_url());
        let mut response = sent.map_err(named)?;
        let (status, mut read) = (response.status(), 0);
        while let Some(chunk) = response.chunk().await.map_err(named)? {
            read += chunk.len();
            if read > MAX_READ {
                break;
            }
        }
        Ok(status)
    }
}

impl std::fmt::Debug for Poster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poster").finish_non_exhaustive()
    }
}
