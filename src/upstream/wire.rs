//! Calls as a request body, and a response body as answers: the same for every leaf.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};

use super::{Answers, Call, UpstreamError, limited};
use crate::jsonrpc::{Answer, IncomingAnswer, IncomingId, read_answers};

/// Gives out ids. Never the client's: nodes refuse some of those, and two clients may use the same.
#[derive(Debug, Default)]
pub(super) struct Ids(AtomicU64);

/// A request on the wire.
pub(super) struct Outgoing {
    pub(super) body: Bytes,
    /// The calls' ids are consecutive from here.
    first_id: u64,
    count: usize,
}

/// A response as it came off the wire.
pub(super) struct Incoming {
    pub(super) status: StatusCode,
    pub(super) retry_after: Option<Duration>,
    pub(super) body: Bytes,
}

// === impl Outgoing ===

impl Outgoing {
    /// Writes one call as an object, several as an array.
    pub(super) fn write(calls: &[Call], ids: &Ids) -> Self {
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
            let method = serde_json::Value::from(call.method.as_str());
            body.extend_from_slice(
                format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":"#).as_bytes(),
            );
            body.extend_from_slice(call.params.as_bytes());
            body.push(b'}');
        }
        if calls.len() != 1 {
            body.push(b']');
        }
        Self { body: body.into(), first_id, count: calls.len() }
    }

    /// Matches a response to the calls by id.
    pub(super) fn read(&self, incoming: &Incoming) -> Result<Answers, UpstreamError> {
        if incoming.status == StatusCode::TOO_MANY_REQUESTS {
            return Err(UpstreamError::RateLimited { retry_after: incoming.retry_after });
        }
        if incoming.status.is_success() {
            let answers = read_answers(&incoming.body).map_err(UpstreamError::Unreadable)?;
            return self.assign(answers);
        }
        // Some nodes send their JSON-RPC errors with an HTTP error: then it is still their answer.
        read_answers(&incoming.body)
            .ok()
            .and_then(|answers| self.assign(answers).ok())
            .filter(|answers| answers.iter().all(|answer| matches!(answer, Ok(Answer::Error(_)))))
            .ok_or(UpstreamError::Status(incoming.status))
    }

    fn assign(&self, answers: Vec<IncomingAnswer>) -> Result<Answers, UpstreamError> {
        if let [IncomingAnswer { id: IncomingId::Null, answer: Some(Answer::Error(error)) }] =
            answers.as_slice()
        {
            // The node could not make out the request, batch or not: that is all it has to say.
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

/// The seconds of a `retry-after` header; the other form, a date, is not used by nodes.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    // A slip of a provider's is not to last for years.
    Some(Duration::from_secs(seconds).min(limited::LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonrpc::Params;

    fn calls(count: usize) -> Vec<Call> {
        (0..count).map(|_| Call::new("eth_blockNumber", Params::EMPTY)).collect()
    }

    fn outgoing(count: usize) -> Outgoing {
        Outgoing::write(&calls(count), &Ids::default())
    }

    fn incoming(status: u16, body: &str) -> Incoming {
        Incoming {
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
    fn ids_are_our_own_and_never_twice() {
        let ids = Ids::default();
        assert_eq!(
            Outgoing::write(&calls(1), &ids).body,
            r#"{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber","params":[]}"#
        );
        let batch = Outgoing::write(&calls(2), &ids).body;
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
    fn failures_have_their_names() {
        let read = |status, body| outgoing(1).read(&incoming(status, body));
        assert!(matches!(read(200, r#"{"id":9,"result":1}"#), Err(UpstreamError::WrongId)));
        assert!(matches!(read(200, r#"{"id":"1","result":1}"#), Err(UpstreamError::WrongId)));
        assert!(matches!(read(200, r#"{"id":null,"result":1}"#), Err(UpstreamError::WrongId)));
        assert!(matches!(read(200, "<html>"), Err(UpstreamError::Unreadable(_))));
        assert!(matches!(read(500, "<html>"), Err(UpstreamError::Status(StatusCode::INTERNAL_SERVER_ERROR))));
        assert!(matches!(read(500, r#"{"id":1,"result":1}"#), Err(UpstreamError::Status(_))));
        assert!(matches!(read(429, r#"{"id":1,"error":{}}"#), Err(UpstreamError::RateLimited { .. })));
        assert!(matches!(read(200, r#"{"id":1}"#).unwrap()[0], Err(UpstreamError::Empty)));
        assert!(matches!(read(200, "[]").unwrap()[0], Err(UpstreamError::Empty)));
    }

    #[test]
    fn a_nodes_error_is_an_answer_whatever_the_status() {
        for status in [200, 400, 500] {
            let answers = outgoing(1).read(&incoming(status, r#"{"id":1,"error":{"code":3}}"#)).unwrap();
            assert!(matches!(&answers[0], Ok(Answer::Error(error)) if error == r#"{"code":3}"#));
        }
        let answers = outgoing(3).read(&incoming(200, r#"{"id":null,"error":{"code":-32600}}"#)).unwrap();
        assert_eq!(answers.len(), 3);
    }
}
