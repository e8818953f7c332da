//! Reads the body of a request within the limits.

use std::pin::Pin;

use bytes::{Buf, Bytes};
use http_body::Body;
use http_body_util::BodyExt;

use crate::{
    budget::{ByteLease, Exhausted, LeasedBuffer},
    http::{config::Config, error::HttpError},
    timeout::{Elapsed, timeout},
};

/// Reads the whole body, and counts its bytes in `lease`. If the `announced` length is too large, refuses the body
/// without reading it.
pub(in crate::http) async fn body<B: Body>(
    limits: &Config,
    lease: &mut ByteLease,
    announced: Option<u64>,
    body: Pin<&mut B>,
) -> Result<Bytes, HttpError> {
    let max = limits.max_body.as_u64();
    if announced.is_some_and(|length| length > max) {
        return Err(HttpError::BodyTooLarge { max });
    }
    match timeout(limits.body_timeout, collect(body, max, lease)).await {
        Ok(read) => read,
        Err(Elapsed) => Err(HttpError::BodyTimeout { after: limits.body_timeout }),
    }
}

async fn collect<B: Body>(
    mut body: Pin<&mut B>,
    max: u64,
    lease: &mut ByteLease,
) -> Result<Bytes, HttpError> {
    let mut first = Bytes::new();
    let mut whole = LeasedBuffer::new(usize::try_from(max).unwrap_or(usize::MAX));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| HttpError::BodyBroken)?;
        let Ok(mut data) = frame.into_data() else { continue };
        let length = data.remaining();
        if (first.len() + whole.len() + length) as u64 > max {
            return Err(HttpError::BodyTooLarge { max });
        }
        // Most bodies have a single frame, which is used without a copy.
        if first.is_empty() && whole.is_empty() {
            lease.grow(length).map_err(refused)?;
            first = data.copy_to_bytes(length);
        } else {
            whole.append(&first, lease).map_err(refused)?;
            lease.hold(lease.held() - std::mem::take(&mut first).len());
            while data.has_remaining() {
                whole.append(data.chunk(), lease).map_err(refused)?;
                data.advance(data.chunk().len());
            }
        }
        // Once the announced length has arrived, there is no need to poll for the end.
        if body.is_end_stream() {
            break;
        }
    }
    Ok(if whole.is_empty() { first } else { whole.finish(lease) })
}

/// Returns the error for a request that exceeds the byte budget.
pub(in crate::http) fn refused(full: Exhausted) -> HttpError {
    match full {
        Exhausted::Total => HttpError::BytesExhausted,
        Exhausted::Client => HttpError::ClientLimit,
    }
}
