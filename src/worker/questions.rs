//! Questions of an upstream that nobody will answer: told so at once, so that its call goes on.

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::jsonrpc::{ErrorObject, Id, METHOD_NOT_FOUND, Object, error_response, result_response};
use crate::mcp::method;
use crate::task::Reason;

/// What is answered for a client that is not there: a ping is answered, a question is declined.
#[must_use]
pub fn refusal(id: &Id, method: &str) -> Bytes {
    match method {
        method::PING => result_response(id, "{}"),
        method::ELICITATION_CREATE => result_response(id, r#"{"action":"decline"}"#),
        method::SAMPLING_CREATE => {
            error_response(Some(id), &ErrorObject::new(-1, "sampling declined: the client is no longer waiting"))
        }
        _ => error_response(Some(id), &ErrorObject::new(METHOD_NOT_FOUND, "the client is no longer waiting")),
    }
}

/// What is answered when the client had its time: as a refusal, with the reason where there is room for one.
#[must_use]
pub(super) fn unanswered(id: &Id, method: &str) -> Bytes {
    if method == method::ELICITATION_CREATE {
        return refusal(id, method);
    }
    let data = Object::new().string("source", "taskgate").string("reason", Reason::InputTimeout.word()).finish();
    let error =
        ErrorObject { code: -1, message: "nobody answered in time".into(), data: RawValue::from_string(data).ok() };
    error_response(Some(id), &error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declined_in_the_words_of_each_question() {
        let id = Id::from_string("q");
        assert_eq!(refusal(&id, "ping"), r#"{"jsonrpc":"2.0","id":"q","result":{}}"#);
        assert!(String::from_utf8(refusal(&id, "elicitation/create").to_vec()).unwrap().contains("decline"));
        for method in ["sampling/createMessage", "roots/list", "x/y"] {
            assert!(String::from_utf8(refusal(&id, method).to_vec()).unwrap().contains("error"), "{method}");
        }
    }

    #[test]
    fn a_late_answer_is_refused_with_the_reason() {
        let id = Id::from_string("q");
        assert!(String::from_utf8(unanswered(&id, "elicitation/create").to_vec()).unwrap().contains("decline"));
        assert!(String::from_utf8(unanswered(&id, "roots/list").to_vec()).unwrap().contains("input_timeout"));
    }
}
