//! Properties of the answer parser for arbitrary bytes from a node.

use bytes::Bytes;
use holdfast::jsonrpc::{Answer, AnswerError, IncomingAnswer, IncomingId, read_answers};
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// Parses `data` as a node's answers, and panics if a property does not hold.
pub fn answer(data: &[u8]) {
    let body = Bytes::copy_from_slice(data);
    let read = read_answers(&body);
    let Ok(text) = std::str::from_utf8(data) else {
        assert!(matches!(read, Err(AnswerError::NotUtf8 { .. })), "{read:?}");
        return;
    };
    let is_json = serde_json::from_str::<IgnoredAny>(text).is_ok();
    match read {
        Ok(answers) => {
            assert!(is_json, "{text:?}");
            check_count(text, &answers);
            answers.iter().for_each(|answer| check_payload(answer, &body));
            check_cut(text.trim());
        }
        Err(AnswerError::NotUtf8 { .. }) => panic!("is UTF-8: {text:?}"),
        Err(AnswerError::Truncated { len }) => {
            assert!(!is_json, "{text:?}");
            assert_eq!(len, text.len());
        }
        Err(AnswerError::NotJson(error)) => {
            assert!(!is_json, "{text:?}: {error}");
            assert!(error.at < text.len(), "{text:?}: {error}");
        }
        // The parser stops at the first element that is no object, so the rest may be anything.
        Err(AnswerError::NotAResponse) => assert!(!text.trim_start().starts_with('{'), "{text:?}"),
    }
}

/// Checks that an object is one answer, and an array one for each element.
fn check_count(text: &str, answers: &[IncomingAnswer]) {
    match serde_json::from_str::<Vec<IgnoredAny>>(text) {
        Ok(elements) => assert_eq!(answers.len(), elements.len(), "{text:?}"),
        Err(_) => assert_eq!(answers.len(), 1, "{text:?}"),
    }
}

/// Checks that the payload is JSON and a slice of the body, and that the body contains the id.
fn check_payload(incoming: &IncomingAnswer, body: &Bytes) {
    let text = match &incoming.answer {
        Some(Answer::Result(result)) => result,
        Some(Answer::Error(error)) => {
            assert!(error.starts_with(b"{"), "{error:?}");
            error
        }
        None => return,
    };
    let (part, whole) = (text.as_ptr_range(), body.as_ptr_range());
    assert!(whole.start <= part.start && part.end <= whole.end, "{text:?} is a copy");
    let value: &RawValue = serde_json::from_slice(text).expect("a payload is JSON");
    assert_eq!(value.get().as_bytes(), text, "has white space around it");
    if let IncomingId::Own(id) = incoming.id {
        assert!(body.windows(id.to_string().len()).any(|window| window == id.to_string().as_bytes()));
    }
}

/// Checks that the first half of an answer is reported as truncated, not as malformed.
fn check_cut(answer: &str) {
    let half = answer.floor_char_boundary(answer.len() / 2);
    let cut = read_answers(&Bytes::copy_from_slice(&answer.as_bytes()[..half]));
    assert_eq!(cut, Err(AnswerError::Truncated { len: half }), "{:?}", &answer[..half]);
}
