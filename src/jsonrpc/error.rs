//! The error object of a response, and the codes that JSON-RPC 2.0 reserves.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Not JSON at all.
pub const PARSE_ERROR: i64 = -32700;
/// JSON, but no request.
pub const INVALID_REQUEST: i64 = -32600;
/// No such method here.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// The parameters do not fit.
pub const INVALID_PARAMS: i64 = -32602;
/// It went wrong on this side.
pub const INTERNAL_ERROR: i64 = -32603;

/// `error` of a response; `data` keeps its text.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ErrorObject {
    /// The code.
    pub code: i64,
    /// One sentence for people.
    #[serde(default)]
    pub message: String,
    /// Anything more, untouched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
}

impl ErrorObject {
    /// An error without data.
    #[must_use]
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }
}

impl PartialEq for ErrorObject {
    fn eq(&self, other: &Self) -> bool {
        let data = |error: &Self| error.data.as_ref().map(|data| data.get().to_owned());
        self.code == other.code && self.message == other.message && data(self) == data(other)
    }
}
