//! Errors as JSON-RPC has them.

use serde_json::value::RawValue;

use crate::call::Error;
use crate::jsonrpc::{ErrorObject, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, Object};
use crate::task::{Failure, Reason};

/// The JSON-RPC code of an error.
#[must_use]
pub fn code(error: &Error) -> i64 {
    match error {
        Error::InvalidRequest(_) | Error::SessionEnded => INVALID_REQUEST,
        Error::MethodNotFound(_) => METHOD_NOT_FOUND,
        Error::InvalidParams(_) => INVALID_PARAMS,
        Error::ShuttingDown
        | Error::StoreUnavailable
        | Error::TooManyTasks
        | Error::Unreachable(_)
        | Error::Protocol { .. }
        | Error::OutcomeUnknown(_)
        | Error::MaxRuntime(_)
        | Error::TooLarge { .. } => INTERNAL_ERROR,
    }
}

/// The error object of an error.
#[must_use]
pub fn error_object(error: &Error) -> ErrorObject {
    let status = match error {
        Error::Protocol { status, .. } => *status,
        _ => None,
    };
    ErrorObject { code: code(error), message: error.to_string(), data: data(error.reason(), status) }
}

/// The error object of a failed task.
pub(super) fn failure_object(failure: &Failure) -> ErrorObject {
    match failure {
        Failure::Upstream(error) => error.clone(),
        Failure::Lost { reason, text } => {
            ErrorObject { code: INTERNAL_ERROR, message: text.clone(), data: data(Some(*reason), None) }
        }
    }
}

fn data(reason: Option<Reason>, status: Option<u16>) -> Option<Box<RawValue>> {
    let mut data = Object::new().string("source", "taskgate").string("reason", reason?.word());
    if let Some(status) = status {
        data = data.number("status", status.into());
    }
    RawValue::from_string(data.finish()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_who_and_why() {
        let object = error_object(&Error::Protocol { text: "HTTP 502".into(), status: Some(502) });
        assert_eq!(object.code, INTERNAL_ERROR);
        let data = object.data.unwrap();
        assert_eq!(data.get(), r#"{"source":"taskgate","reason":"upstream_protocol","status":502}"#);
        assert!(error_object(&Error::InvalidParams("x".into())).data.is_none());
    }
}
