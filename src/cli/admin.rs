//! Client of the admin listener of a running instance.

use std::{env, time::Duration};

use bytes::Bytes;
use clap::Args;
use http::{HeaderValue, Method, StatusCode, header};
use reqwest::Url;
use serde_json::Value;

use super::{
    client::{Advice, InstanceClient},
    failure::Failure,
    values::admin_address,
};
use crate::config::{Config, ENV_ADMIN_TOKEN};

const ADVICE: Advice = Advice {
    address: "use the address of the admin listener, and add --tls if it speaks TLS (tls.admin)",
    plain: "leave out --tls unless tls.admin is set",
};

/// The running instance to connect to.
#[derive(Clone, Debug, Args)]
pub(super) struct AdminTarget {
    /// The instance's admin listener: address or host name, and port [default: 127.0.0.1:8556]
    #[arg(long, value_name = "ADDRESS", value_parser = admin_address, env = "HOLDFAST_ADMIN")]
    admin: Option<String>,

    /// Connect by TLS, if the instance has tls.admin set; any certificate is accepted
    #[arg(long, env = "HOLDFAST_TLS__ADMIN")]
    tls: bool,
}

/// Client of the admin listener of an instance.
pub(super) struct AdminClient {
    client: InstanceClient,
    address: String,
    token: Option<HeaderValue>,
}

/// Reply of an instance.
#[derive(Debug)]
pub(super) struct AdminReply {
    pub(super) status: StatusCode,
    pub(super) text: String,
}

// === impl AdminTarget ===

impl AdminTarget {
    /// Returns the address or host name of the admin listener, and its port.
    pub(super) fn address(&self) -> String {
        self.admin.clone().unwrap_or_else(|| Config::default().admin.to_string())
    }

    /// Returns the flags that select this instance, without those that have their default.
    pub(super) fn flags(&self) -> String {
        let mut flags = String::new();
        if let Some(admin) =
            self.admin.as_ref().filter(|admin| **admin != Config::default().admin.to_string())
        {
            flags.push_str(&format!(" --admin {admin}"));
        }
        if self.tls {
            flags.push_str(" --tls");
        }
        flags
    }

    /// Creates a client with the token of the environment, if set, and a time limit for each request.
    ///
    /// # Errors
    /// If the address is no host and port, or the token cannot be sent in a header.
    pub(super) fn client(&self, timeout: Duration) -> Result<AdminClient, Failure> {
        let bad = || Failure::Other(format!("{ENV_ADMIN_TOKEN} has characters that no header allows"));
        let token = match env::var(ENV_ADMIN_TOKEN) {
            Ok(token) if !token.trim().is_empty() => {
                let mut bearer: HeaderValue =
                    format!("Bearer {}", token.trim()).parse().map_err(|_| bad())?;
                bearer.set_sensitive(true);
                Some(bearer)
            }
            Ok(_) | Err(env::VarError::NotPresent) => None,
            Err(env::VarError::NotUnicode(_)) => return Err(bad()),
        };
        let address = self.address();
        let scheme = if self.tls { "https" } else { "http" };
        let url = Url::parse(&format!("{scheme}://{address}"))
            .map_err(|error| Failure::Other(format!("{address}: {error}")))?;
        // The client connects to an address, and certificates seldom name loopback.
        Ok(AdminClient { client: InstanceClient::new(url, timeout, true, ADVICE)?, address, token })
    }
}

// === impl AdminClient ===

impl AdminClient {
    /// Sends a GET request.
    ///
    /// # Errors
    /// If there is no answer; the message gives advice.
    pub(super) async fn get(&self, path: &str) -> Result<AdminReply, String> {
        self.ask(Method::GET, path).await
    }

    /// Sends a POST request.
    ///
    /// # Errors
    /// If there is no answer; the message gives advice.
    pub(super) async fn post(&self, path: &str) -> Result<AdminReply, String> {
        self.ask(Method::POST, path).await
    }

    async fn ask(&self, method: Method, path: &str) -> Result<AdminReply, String> {
        // Only POST requests need the token, so no other request carries it.
        let token = self.token.clone().filter(|_| method == Method::POST);
        let headers = token.map(|token| (header::AUTHORIZATION, token)).into_iter().collect();
        let response = self.client.send(method, path, headers, Bytes::new()).await;
        let response = response.map_err(|why| format!("{}: {why}", self.address))?;
        Ok(AdminReply { status: response.status, text: response.text() })
    }
}

// === impl AdminReply ===

impl AdminReply {
    /// Parses the reply as JSON.
    ///
    /// # Errors
    /// If the request was refused, or if the reply is not from the admin listener. The message gives the reason or
    /// advice.
    pub(super) fn value(&self, path: &str) -> Result<Value, String> {
        let value: Option<Value> = serde_json::from_str(&self.text).ok();
        let said = value.as_ref().and_then(|value| value["error"].as_str());
        match (self.status, value.as_ref(), said) {
            (StatusCode::OK, Some(_), None) => return value.ok_or_else(String::new),
            (_, _, Some(said)) => return Err(said.to_owned()),
            // The admin listener refuses requests in plain text.
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, None, _) => {
                return Err(self.text.trim().to_owned());
            }
            _ => {}
        }
        let path = path.split('?').next().unwrap_or(path);
        Err(not_admin(path, self.status))
    }
}

/// Returns the error for a reply that the admin listener would not give.
pub(super) fn not_admin(path: &str, status: StatusCode) -> String {
    let default = Config::default().admin;
    format!(
        "this is not the admin listener (it answers {path} with HTTP status {status}); use its address, which \
         is {default} unless admin is set"
    )
}
