//! `holdfast health`

use std::{net::SocketAddr, sync::Arc, time::Duration};

use clap::Args;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time,
};
use tokio_rustls::TlsConnector;

use super::{Failure, address, run, say};
use crate::config::{Config, LogConfig};

/// Longer than a healthy process ever takes, shorter than a container's patience.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Ask a running instance whether it is well; for containers.
///
/// Exits with 0 if it is, with 1 and the reason if it is not. Alive is enough by default, since an
/// upstream that is down is no reason to restart its proxy.
#[derive(Debug, Args)]
pub(super) struct Health {
    /// The instance's admin listener [default: 127.0.0.1:8556]
    #[arg(long, value_name = "ADDRESS", value_parser = address, env = "HOLDFAST_ADMIN")]
    admin: Option<SocketAddr>,

    /// Ask whether it can answer calls, not only whether it is alive
    #[arg(long)]
    ready: bool,

    /// The instance speaks TLS there (tls.admin); any certificate is taken
    #[arg(long, env = "HOLDFAST_TLS__ADMIN")]
    tls: bool,
}

/// Takes whatever certificate it is shown: it asks an address for its health, tells it nothing, and a
/// certificate seldom names loopback.
#[derive(Debug)]
struct Unverified(WebPkiSupportedAlgorithms);

// === impl Health ===

impl Health {
    pub(super) fn run(self) -> Result<(), Failure> {
        let admin = self.admin.unwrap_or(Config::default().admin);
        let path = if self.ready { "/ready" } else { "/live" };
        run(&LogConfig::default(), async move {
            let asked = time::timeout(TIMEOUT, get(admin, self.tls, path)).await;
            let failed = |reason: String| Failure::Other(format!("{admin}: {reason}"));
            let (status, text) = asked
                .map_err(|_| failed(format!("no answer within {} s", TIMEOUT.as_secs())))?
                .map_err(|error| failed(explained(&*error, self.tls)))?;
            let is_well = status == StatusCode::OK && text.trim() == &path[1..];
            // Operators are told in plain text, clients in JSON; and the path is one that is served to operators.
            let is_known =
                !matches!(status, StatusCode::OK | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED);
            if !is_well && (!is_known || text.starts_with('{')) {
                let default = Config::default().admin;
                return Err(failed(format!(
                    "this is not the admin listener (it answers {path} with HTTP status {status}); name that one, \
                     which is {default} unless admin is set"
                )));
            }
            say(text.trim())?;
            if is_well { Ok(()) } else { Err(Failure::Said) }
        })
    }
}

type Asked = Result<(StatusCode, String), Box<dyn std::error::Error>>;

/// In words that say what to do, where the library's are about HTTP.
fn explained(error: &(dyn std::error::Error + 'static), tls: bool) -> String {
    let http = error.downcast_ref::<hyper::Error>();
    if let Some(error) = http.filter(|_| !tls) {
        if error.is_parse() {
            return "what listens there does not speak HTTP; name the admin listener, and add --tls if it speaks TLS \
                    (tls.admin)"
                .to_owned();
        }
        if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
            return "the connection was closed without an answer; name the admin listener, and add --tls if it speaks \
                    TLS (tls.admin)"
                .to_owned();
        }
    }
    match http {
        None if tls && error.downcast_ref::<std::io::Error>().is_some_and(is_no_tls) => {
            format!(
                "what listens there does not speak TLS ({error}); leave out --tls unless tls.admin is set"
            )
        }
        _ => error.to_string(),
    }
}

fn is_no_tls(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof)
}

async fn get(admin: SocketAddr, tls: bool, path: &str) -> Asked {
    let stream = TcpStream::connect(admin).await?;
    if !tls {
        return get_over(stream, admin, path).await;
    }
    let provider = ring::default_provider();
    let unverified = Unverified(provider.signature_verification_algorithms);
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(unverified))
        .with_no_client_auth();
    let name = ServerName::from(admin.ip());
    get_over(TlsConnector::from(Arc::new(config)).connect(name, stream).await?, admin, path).await
}

async fn get_over<S>(stream: S, admin: SocketAddr, path: &str) -> Asked
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request =
        Request::get(path).header(header::HOST, admin.to_string()).body(Empty::<bytes::Bytes>::new())?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    let text = String::from_utf8_lossy(&response.into_body().collect().await?.to_bytes()).into_owned();
    Ok((status, text))
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
