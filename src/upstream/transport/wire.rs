//! Encodes calls as a request body, and decodes a response body into answers, for every transport.

use std::{
    io::Write,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};

use super::super::{Answers, Call, UpstreamError, node_error};
use crate::jsonrpc::{Answer, IncomingAnswer, IncomingId, read_answers};

/// Source of request ids. Holdfast never sends a client's id, because nodes reject some ids, and two clients may use
/// the same one.
#[derive(Debug, Default)]
pub(in crate::upstream) struct RequestIds(AtomicU64);

/// A request on the wire.
pub(in crate::upstream) struct WireRequest {
    pub(in crate::upstream) body: Bytes,
    /// Id of the first call. The other calls have the ids that follow it.
    first_id: u64,
    count: usize,
}

/// A response as it came off the wire.
pub(in crate::upstream) struct WireResponse {
    pub(in crate::upstream) status: StatusCode,
    pub(in crate::upstream) retry_after: Option<Duration>,
    pub(in crate::upstream) body: Bytes,
}

// === impl WireRequest ===

impl WireRequest {
    /// Writes one call as an object, several as an array.
    pub(in crate::upstream) fn write(calls: &[Call], ids: &RequestIds) -> Self {
        let first_id = ids.0.fetch_add(calls.len() as u64, Relaxed) + 1;
        let size =
            calls.iter().map(|call| call.params.as_bytes().len() + call.method.as_str().len() + 64).sum();
        let mut body = Vec::with_capacity(size);
        for (id, call) in (first_id..).zip(calls) {
            let opening: &[u8] = match (calls.len(), id == first_id) {
                (1, _) => b"",
                (_, true) => b"[",
                (_, false) => b",",
            };
            body.extend_from_slice(opening);
            // Neither write fails: a `Vec` accepts any bytes, and a method is text.
            let _ = write!(body, r#"{{"jsonrpc":"2.0","id":{id},"method":"#);
            let _ = serde_json::to_writer(&mut body, call.method.as_str());
            body.extend_from_slice(br#","params":"#);
            body.extend_from_slice(call.params.as_bytes());
            body.push(b'}');
        }
        if calls.len() != 1 {
            body.push(b']');
        }
        Self { body: body.into(), first_id, count: calls.len() }
    }

    /// Matches a response to the calls by id.
    pub(in crate::upstream) fn read(&self, incoming: &WireResponse) -> Result<Answers, UpstreamError> {
        if incoming.status == StatusCode::TOO_MANY_REQUESTS {
            let words = UpstreamError::words_of(&incoming.body);
            return Err(UpstreamError::RateLimited { retry_after: incoming.retry_after, words });
        }
        if incoming.status.is_success() {
            let answers = read_answers(&incoming.body).map_err(UpstreamError::Unreadable)?;
            return self.assign(answers);
        }
        // Some nodes send their JSON-RPC errors with an HTTP error.
        let answers = read_answers(&incoming.body)
            .ok()
            .and_then(|answers| self.assign(answers).ok())
            .filter(|answers| answers.iter().all(|answer| matches!(answer, Ok(Answer::Error(_)))))
            .ok_or_else(|| UpstreamError::Status {
                status: incoming.status,
                words: UpstreamError::words_of(&incoming.body),
            })?;
        let judged = answers.into_iter().map(|answer| match answer {
            Ok(Answer::Error(error)) if !is_about_the_call(incoming.status, &error) => {
                Err(UpstreamError::Refused { status: incoming.status, error })
            }
            answer => answer,
        });
        Ok(judged.collect())
    }

    fn assign(&self, answers: Vec<IncomingAnswer>) -> Result<Answers, UpstreamError> {
        if let [IncomingAnswer { id: IncomingId::Null, answer: Some(Answer::Error(error)) }] =
            answers.as_slice()
        {
            // The node could not parse the request, batch or not, so its error applies to every call.
            return Ok(vec![Ok(Answer::Error(error.clone())); self.count]);
        }
        let mut assigned: Vec<Option<Result<Answer, UpstreamError>>> = vec![None; self.count];
        for IncomingAnswer { id, answer } in answers {
            let place = match id {
                IncomingId::Own(id) => {
                    id.checked_sub(self.first_id).and_then(|place| usize::try_from(place).ok())
                }
                IncomingId::Null | IncomingId::Other => None,
            };
            match place.and_then(|place| assigned.get_mut(place)) {
                Some(place) => *place = Some(answer.ok_or(UpstreamError::Empty)),
                None => return Err(UpstreamError::WrongId),
            }
        }
        Ok(assigned.into_iter().map(|answer| answer.unwrap_or(Err(UpstreamError::Empty))).collect())
    }
}

/// Returns whether an error object that came with this HTTP error is the answer to the call, which any other node
/// would give, too. Otherwise the sender itself has failed: a key has expired, a quota is used up, or no backend is
/// up.
fn is_about_the_call(status: StatusCode, error: &[u8]) -> bool {
    const STATUSES: [StatusCode; 6] = [
        StatusCode::BAD_REQUEST,
        StatusCode::NOT_FOUND,
        StatusCode::METHOD_NOT_ALLOWED,
        StatusCode::PAYLOAD_TOO_LARGE,
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        StatusCode::UNPROCESSABLE_ENTITY,
    ];
    STATUSES.contains(&status)
        || node_error::is_about_the_call(error)
        // Some nodes and proxies turn every JSON-RPC error into an HTTP server error.
        || (status.is_server_error() && node_error::is_of_a_node(error))
}

/// Returns the seconds of a `retry-after` header. Nodes do not use the other form, a date.
pub(in crate::upstream) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    // A provider's mistake must not pause the endpoint for years.
    Some(Duration::from_secs(seconds).min(node_error::MAX_PAUSE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonrpc::Params;

    fn calls(count: usize) -> Vec<Call> {
        (0..count).map(|_| Call::new("eth_blockNumber", Params::EMPTY)).collect()
    }

    fn outgoing(count: usize) -> WireRequest {
        WireRequest::write(&calls(count), &RequestIds::default())
    }

    fn incoming(status: u16, body: &str) -> WireResponse {
        WireResponse {
            status: StatusCode::from_u16(status).unwrap(),
            retry_after: None,
            body: Bytes::copy_from_slice(body.as_bytes()),
        }
    }

    fn result(answer: &Result<Answer, UpstreamError>) -> &[u8] {
        match answer {
            Ok(Answer::Result(bytes)) => bytes,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn request_ids_are_our_own_and_unique() {
        let ids = RequestIds::default();
        assert_eq!(
            WireRequest::write(&calls(1), &ids).body,
            r#"{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber","params":[]}"#
        );
        let batch = WireRequest::write(&calls(2), &ids).body;
        assert!(batch.starts_with(br#"[{"jsonrpc":"2.0","id":2,"#) && batch.ends_with(b"]"), "{batch:?}");
    }

    #[test]
    fn answers_are_matched_by_id_not_by_order() {
        let answers =
            outgoing(2).read(&incoming(200, r#"[{"id":2,"result":"b"},{"id":1,"result":"a"}]"#)).unwrap();
        assert_eq!(result(&answers[0]), br#""a""#);
        assert_eq!(result(&answers[1]), br#""b""#);
    }

    #[test]
    fn failures_map_to_specific_errors() {
        let read = |status, body| outgoing(1).read(&incoming(status, body));
        assert!(matches!(read(200, r#"{"id":9,"result":1}"#), Err(UpstreamError::WrongId)));
        assert!(matches!(read(200, r#"{"id":"1","result":1}"#), Err(UpstreamError::WrongId)));
        assert!(matches!(read(200, r#"{"id":null,"result":1}"#), Err(UpstreamError::WrongId)));
        assert!(matches!(read(200, "<html>"), Err(UpstreamError::Unreadable(_))));
        assert!(matches!(
            read(500, "<html>"),
            Err(UpstreamError::Status { status: StatusCode::INTERNAL_SERVER_ERROR, .. })
        ));
        assert!(matches!(read(500, r#"{"id":1,"result":1}"#), Err(UpstreamError::Status { .. })));
        assert!(matches!(read(429, r#"{"id":1,"error":{}}"#), Err(UpstreamError::RateLimited { .. })));
        assert!(matches!(read(200, r#"{"id":1}"#).unwrap()[0], Err(UpstreamError::Empty)));
        assert!(matches!(read(200, "[]").unwrap()[0], Err(UpstreamError::Empty)));
    }

    /// Tests each HTTP status with each code of an error object.
    #[test]
    fn http_status_and_code_tell_answers_from_failures() {
        const ANY: [i64; 8] = [3, -32601, -32602, -32600, -32000, -32603, -32010, -32013];
        const OF_THE_CALL: [i64; 3] = [3, -32601, -32602];
        for (status, answers) in [
            (200, &ANY[..]),
            (400, &ANY),
            (404, &ANY),
            (405, &ANY),
            (413, &ANY),
            (415, &ANY),
            (422, &ANY),
            // "Must be authenticated!" is a provider's own -32600, not about the call.
            (401, &OF_THE_CALL),
            (402, &OF_THE_CALL),
            (403, &OF_THE_CALL),
            (407, &OF_THE_CALL),
            (301, &OF_THE_CALL),
            (500, &OF_THE_CALL),
            (502, &OF_THE_CALL),
            (503, &OF_THE_CALL),
            (504, &OF_THE_CALL),
        ] {
            for code in ANY {
                let object = format!(r#"{{"code":{code},"message":"no"}}"#);
                let body = format!(r#"{{"id":1,"error":{object}}}"#);
                let read = outgoing(1).read(&incoming(status, &body)).unwrap().remove(0);
                match read {
                    Ok(Answer::Error(error)) => {
                        assert!(answers.contains(&code), "{status} {code}");
                        assert_eq!(error, object);
                    }
                    Err(UpstreamError::Refused { status: with, error }) => {
                        assert!(!answers.contains(&code), "{status} {code}");
                        assert_eq!((with.as_u16(), &error[..]), (status, object.as_bytes()));
                    }
                    other => panic!("{status} {code}: {other:?}"),
                }
            }
        }
        // A contract's message is about the call, whatever the code.
        let reverted = r#"{"id":1,"error":{"code":-32000,"message":"execution reverted: no"}}"#;
        assert!(outgoing(1).read(&incoming(500, reverted)).unwrap()[0].is_ok());
        assert!(matches!(outgoing(1).read(&incoming(429, reverted)), Err(UpstreamError::RateLimited { .. })));
    }

    #[test]
    fn error_about_the_call_is_an_answer_at_any_status() {
        for message in [
            "header not found",
            "block not found",
            "Block with such an ID is pruned",
            "missing trie node 1f (path )",
            "pruned history unavailable",
            "transaction not found",
            "filter not found",
            "nonce too low: next nonce 5, tx nonce 4",
            "insufficient funds for gas * price + value: balance 0",
            "already known",
            "replacement transaction underpriced",
            "intrinsic gas too low: gas 1, minimum needed 21000",
            "execution reverted",
            "out of gas",
            "invalid opcode: INVALID",
        ] {
            let body = format!(r#"{{"id":1,"error":{{"code":-32000,"message":"{message}"}}}}"#);
            for status in [400, 404, 500, 502, 503] {
                assert!(outgoing(1).read(&incoming(status, &body)).unwrap()[0].is_ok(), "{status} {message}");
            }
        }
    }

    #[test]
    fn error_about_the_provider_is_no_answer() {
        for (status, code, message) in [
            (500, -32000, "internal error"),
            (500, -32000, "project not found"),
            (500, -32603, "header not found: database is closed"),
            (502, -32000, "backend not found"),
            (503, -32000, "no healthy upstream"),
            (503, -32000, "quota exceeded"),
            (500, -32000, "rate limit exceeded for transaction not found in plan"),
            (402, -32000, "insufficient funds for this plan"),
            (401, -32000, "api key already known to be revoked"),
            (403, -32000, "transaction not found in your allowance"),
            (503, -32005, "block not found: too many requests"),
        ] {
            let body = format!(r#"{{"id":1,"error":{{"code":{code},"message":"{message}"}}}}"#);
            let read = outgoing(1).read(&incoming(status, &body)).unwrap().remove(0);
            assert!(matches!(read, Err(UpstreamError::Refused { .. })), "{status} {message}");
        }
    }

    #[test]
    fn error_without_an_id_answers_every_call() {
        let answers = outgoing(3).read(&incoming(200, r#"{"id":null,"error":{"code":-32600}}"#)).unwrap();
        assert_eq!(answers.len(), 3);
    }
}
