//! Client of the admin listener of a running instance.

use std::{env, sync::Arc, time::Duration};

use bytes::Bytes;
use clap::Args;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time,
};
use tokio_rustls::TlsConnector;

use super::{failure::Failure, values::admin_address};
use crate::{
    config::{Config, ENV_ADMIN_TOKEN},
    display::Time,
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

/// Client of an instance. Connects when it is first used, and reuses the connection.
pub(super) struct AdminClient {
    target: AdminTarget,
    timeout: Duration,
    token: Option<HeaderValue>,
    connection: Option<SendRequest<Empty<Bytes>>>,
}

/// Reply of an instance.
#[derive(Debug)]
pub(super) struct AdminReply {
    pub(super) status: StatusCode,
    /// Value of the header `retry-after`.
    pub(super) retry_after: Option<Duration>,
    pub(super) text: String,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Accepts any certificate, because the client connects to an address, and certificates seldom name loopback.
#[derive(Debug)]
struct Unverified(WebPkiSupportedAlgorithms);

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
    /// If the token cannot be sent in a header.
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
        Ok(AdminClient { target: self.clone(), timeout, token, connection: None })
    }
}

// === impl AdminClient ===

impl AdminClient {
    /// Sends a GET request.
    ///
    /// # Errors
    /// If there is no answer; the message gives advice.
    pub(super) async fn get(&mut self, path: &str) -> Result<AdminReply, String> {
        self.ask(Method::GET, path).await
    }

    /// Sends a POST request.
    ///
    /// # Errors
    /// If there is no answer; the message gives advice.
    pub(super) async fn post(&mut self, path: &str) -> Result<AdminReply, String> {
        self.ask(Method::POST, path).await
    }

    async fn ask(&mut self, method: Method, path: &str) -> Result<AdminReply, String> {
        let (admin, tls, timeout) = (self.target.address(), self.target.tls, self.timeout);
        let asked = time::timeout(timeout, self.send(method, path)).await;
        asked
            .unwrap_or_else(|_| {
                self.connection = None;
                Err(format!("no answer within {}", Time(timeout)).into())
            })
            .map_err(|error| format!("{admin}: {}", explained(&*error, tls)))
    }

    async fn send(&mut self, method: Method, path: &str) -> Result<AdminReply, BoxError> {
        let mut connection = self.connection.take();
        // Detects most connections that the instance has closed since the last request. If it misses one, this
        // request fails and the next request reconnects.
        if let Some(open) = &mut connection
            && open.ready().await.is_err()
        {
            connection = None;
        }
        let mut connection = match connection {
            Some(connection) => connection,
            None => connect(&self.target.address(), self.target.tls).await?,
        };
        let mut request = Request::builder().method(&method).uri(path);
        request = request.header(header::HOST, self.target.address());
        // Only POST requests need the token, so no other request carries it.
        if let Some(token) = self.token.clone().filter(|_| method == Method::POST) {
            request = request.header(header::AUTHORIZATION, token);
        }
        let response = connection.send_request(request.body(Empty::new())?).await?;
        let status = response.status();
        let retry_after = response.headers().get(header::RETRY_AFTER);
        let retry_after = retry_after.and_then(|after| after.to_str().ok()?.parse().ok());
        let text = String::from_utf8_lossy(&response.into_body().collect().await?.to_bytes()).into_owned();
        self.connection = Some(connection);
        Ok(AdminReply { status, retry_after: retry_after.map(Duration::from_secs), text })
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

/// Replaces errors of the HTTP library by advice to the user.
fn explained(error: &(dyn std::error::Error + 'static), tls: bool) -> String {
    let http = error.downcast_ref::<hyper::Error>();
    if let Some(error) = http.filter(|_| !tls) {
        if error.is_parse() {
            return "this address does not speak HTTP; use the address of the admin listener, and add --tls if it speaks \
                    TLS (tls.admin)"
                .to_owned();
        }
        if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
            return "the connection was closed without an answer; use the address of the admin listener, and add --tls \
                    if it speaks TLS (tls.admin)"
                .to_owned();
        }
    }
    match http {
        None if tls && error.downcast_ref::<std::io::Error>().is_some_and(is_no_tls) => {
            format!("this address does not speak TLS ({error}); leave out --tls unless tls.admin is set")
        }
        _ => error.to_string(),
    }
}

fn is_no_tls(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof)
}

async fn connect(admin: &str, tls: bool) -> Result<SendRequest<Empty<Bytes>>, BoxError> {
    let stream = TcpStream::connect(admin).await?;
    if !tls {
        return speak(stream).await;
    }
    let provider = ring::default_provider();
    let unverified = Unverified(provider.signature_verification_algorithms);
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(unverified))
        .with_no_client_auth();
    let host = admin.rsplit_once(':').map_or(admin, |(host, _)| host);
    let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())?;
    speak(TlsConnector::from(Arc::new(config)).connect(name, stream).await?).await
}

async fn speak<S>(stream: S) -> Result<SendRequest<Empty<Bytes>>, BoxError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

// === impl Unverified ===

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
