//! Questions of an upstream that nobody will answer: told so at once, so that its call goes on.

use bytes::Bytes;

use crate::jsonrpc::{ErrorObject, Id, METHOD_NOT_FOUND, error_response, result_response};
use crate::mcp::method;

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
}
