//! Errors as JSON-RPC has them.

use serde_json::value::RawValue;

use crate::call::Error;
use crate::jsonrpc::{ErrorObject, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, Object};
use crate::mcp::code::{HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION};
use crate::mcp::{STATELESS, TASKS_EXTENSION};
use crate::task::{Failure, Reason};

/// The JSON-RPC code of an error.
#[must_use]
pub fn code(error: &Error) -> i64 {
    match error {
        Error::InvalidRequest(_) | Error::SessionEnded => INVALID_REQUEST,
        Error::MethodNotFound(_) => METHOD_NOT_FOUND,
        Error::InvalidParams(_) | Error::InvalidEnvelope(_) => INVALID_PARAMS,
        Error::HeaderMismatch(_) => HEADER_MISMATCH,
        Error::TasksUndeclared(_) => MISSING_CAPABILITY,
        Error::UnsupportedVersion { .. } => UNSUPPORTED_VERSION,
        Error::ShuttingDown
        | Error::StoreUnavailable
        | Error::TooManyTasks
        | Error::Unreachable(_)
        | Error::Protocol { .. }
        | Error::OutcomeUnknown(_)
        | Error::Unanswered(_)
        | Error::MaxRuntime(_)
        | Error::TooLarge { .. } => INTERNAL_ERROR,
    }
}

/// The error object of an error.
#[must_use]
pub fn error_object(error: &Error) -> ErrorObject {
    let data = match error {
        Error::Protocol { status, .. } => data(error.reason(), *status),
        Error::TasksUndeclared(_) => required_tasks(),
        Error::UnsupportedVersion { requested } => supported_versions(requested),
        _ => data(error.reason(), None),
    };
    ErrorObject { code: code(error), message: error.to_string(), data }
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

/// What a client has to declare (2026-07-28).
fn required_tasks() -> Option<Box<RawValue>> {
    let tasks = Object::new().raw(TASKS_EXTENSION, "{}").finish();
    let capabilities = Object::new().raw("extensions", &tasks).finish();
    RawValue::from_string(Object::new().raw("requiredCapabilities", &capabilities).finish()).ok()
}

fn supported_versions(requested: &str) -> Option<Box<RawValue>> {
    let supported = format!("[\"{STATELESS}\"]");
    RawValue::from_string(Object::new().raw("supported", &supported).string("requested", requested).finish()).ok()
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
        let undeclared = error_object(&Error::TasksUndeclared("no tasks".into()));
        assert_eq!(undeclared.code, -32021);
        let required = r#"{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#;
        assert_eq!(undeclared.data.unwrap().get(), required);
        let unsupported = error_object(&Error::UnsupportedVersion { requested: "1900-01-01".into() });
        assert_eq!(unsupported.code, -32022);
        let data = unsupported.data.unwrap();
        assert_eq!(data.get(), r#"{"supported":["2026-07-28"],"requested":"1900-01-01"}"#);
    }
}
