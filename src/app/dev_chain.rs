//! A development chain as an upstream in this process.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::StatusCode;

use crate::{
    devchain::{DevChain, NodeResponse},
    upstream::{InProcessNode, InProcessResponse, UpstreamError},
};

/// Number of bytes of a dripping (slowly sent) answer that arrive after each pause.
const DRIP: usize = 16;

/// Responds as the chain would over a socket.
impl InProcessNode for DevChain {
    async fn respond(&self, body: Bytes) -> Result<InProcessResponse, UpstreamError> {
        match self.serve(body).await {
            NodeResponse::Hang => std::future::pending().await,
            NodeResponse::Reset { .. } => {
                Err(UpstreamError::Disconnected(Arc::from(Box::<dyn std::error::Error + Send + Sync>::from(
                    "reset",
                ))))
            }
            NodeResponse::Reply { status, headers, body, drip } => {
                let pauses = u32::try_from(body.len() / DRIP).unwrap_or(u32::MAX);
                tokio::time::sleep(drip.unwrap_or_default().saturating_mul(pauses)).await;
                let seconds = headers.iter().find(|(name, _)| *name == "retry-after");
                Ok(InProcessResponse {
                    status: StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
                    retry_after: seconds.and_then(|(_, value)| value.parse().ok()).map(Duration::from_secs),
                    body,
                })
            }
        }
    }
}
