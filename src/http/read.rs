//! Reads a request's body as far as the limits let it.

use std::{pin::pin, time::Duration};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body::Body;
use http_body_util::BodyExt;
use tokio::time;

use super::HttpError;
use crate::budget::{ByteBudget, Lease};

/// The limits of one body.
#[derive(Clone, Debug)]
pub(super) struct BodyLimits {
    pub(super) max: u64,
    pub(super) timeout: Duration,
    pub(super) budget: ByteBudget,
}

// === impl BodyLimits ===

impl BodyLimits {
    /// The whole body, and the lease on its bytes.
    pub(super) async fn read<B>(&self, headers: &HeaderMap, body: B) -> Result<(Bytes, Lease), HttpError>
    where
        B: Body,
    {
        let announced =
            headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|length| length > self.max) {
            return Err(self.too_large());
        }
        match time::timeout(self.timeout, self.collect(body)).await {
            Ok(read) => read,
            Err(_) => Err(HttpError::BodyTimeout { after: self.timeout }),
        }
    }

    async fn collect<B: Body>(&self, body: B) -> Result<(Bytes, Lease), HttpError> {
        let mut body = pin!(body);
        let mut lease = self.budget.lease();
        let mut first = Bytes::new();
        let mut whole = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| HttpError::BodyBroken)?;
            let Ok(mut data) = frame.into_data() else { continue };
            let length = data.remaining();
            if (first.len() + whole.len() + length) as u64 > self.max {
                return Err(self.too_large());
            }
            lease.grow(length).map_err(|_| HttpError::Overloaded)?;
            // Most bodies are one frame, which needs no copy.
            if first.is_empty() && whole.is_empty() {
                first = data.copy_to_bytes(length);
                continue;
            }
            whole.extend_from_slice(&std::mem::take(&mut first));
            whole.put(data);
        }
        Ok((if whole.is_empty() { first } else { whole.freeze() }, lease))
    }

    fn too_large(&self) -> HttpError {
        HttpError::BodyTooLarge { max: self.max }
    }
}
