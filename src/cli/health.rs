//! `holdfast health`

use std::{net::SocketAddr, time::Duration};

use clap::Args;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time};

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
}

// === impl Health ===

impl Health {
    pub(super) fn run(self) -> Result<(), Failure> {
        let admin = self.admin.unwrap_or(Config::default().admin);
        let path = if self.ready { "/ready" } else { "/live" };
        run(&LogConfig::default(), async move {
            let asked = time::timeout(TIMEOUT, get(admin, path)).await;
            let failed = |reason: String| Failure::Other(format!("{admin}: {reason}"));
            let (status, text) = asked
                .map_err(|_| failed(format!("no answer within {} s", TIMEOUT.as_secs())))?
                .map_err(|error| failed(error.to_string()))?;
            say(text.trim());
            if status == StatusCode::OK { Ok(()) } else { Err(Failure::Said) }
        })
    }
}

async fn get(admin: SocketAddr, path: &str) -> Result<(StatusCode, String), Box<dyn std::error::Error>> {
    let stream = TokioIo::new(TcpStream::connect(admin).await?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    tokio::spawn(connection);
    let request =
        Request::get(path).header(header::HOST, admin.to_string()).body(Empty::<bytes::Bytes>::new())?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    let text = String::from_utf8_lossy(&response.into_body().collect().await?.to_bytes()).into_owned();
    Ok((status, text))
}
