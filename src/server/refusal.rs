//! The answers that need no handler: one table of refusals, each a status with a JSON-RPC error.
//!
//! The id is null throughout: a refused request has not been read.

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};

use super::body::ReplyBody;

/// Methods that exist here.
pub(super) const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE, OPTIONS");

/// `Content-Type` of every JSON answer.
pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");

const INVALID_REQUEST: i32 = -32600;
const INTERNAL_ERROR: i32 = -32603;

/// Why a request goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Host,
    ForeignHost,
    Origin,
    TransferEncoding,
    Path,
    Method,
    NotAcceptable,
    BodyTooLarge,
    BodyTimeout,
    BodyBroken,
    Panic,
}

impl Refusal {
    fn status(self) -> StatusCode {
        match self {
            Self::Host | Self::TransferEncoding | Self::BodyBroken => StatusCode::BAD_REQUEST,
            Self::ForeignHost | Self::Origin => StatusCode::FORBIDDEN,
            Self::Path => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotAcceptable => StatusCode::NOT_ACCEPTABLE,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::Panic => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn code(self) -> i32 {
        match self {
            Self::BodyTooLarge | Self::Panic => INTERNAL_ERROR,
            Self::Host
            | Self::ForeignHost
            | Self::Origin
            | Self::TransferEncoding
            | Self::Path
            | Self::Method
            | Self::NotAcceptable
            | Self::BodyTimeout
            | Self::BodyBroken => INVALID_REQUEST,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Host => "Exactly one valid Host header is required, and it must agree with the request target",
            Self::ForeignHost => "This Host is not served here: use a loopback name, or configure server.public_url",
            Self::Origin => "This Origin is not allowed: add it to server.allowed_origins",
            Self::TransferEncoding => "The only transfer coding accepted is chunked",
            Self::Path => "Nothing is served at this path",
            Self::Method => "Only GET, POST, DELETE and OPTIONS are served here",
            Self::NotAcceptable => "The Accept header must allow application/json or text/event-stream",
            Self::BodyTooLarge => "The request body is larger than server.max_body allows",
            Self::BodyTimeout => "The request body did not arrive in time",
            Self::BodyBroken => "The request body broke off or is malformed",
            Self::Panic => "taskgate failed to handle this request; its log says more",
        }
    }

    fn reason(self) -> Option<&'static str> {
        (self == Self::BodyTooLarge).then_some("too_large")
    }

    /// The response to send.
    pub(super) fn response(self) -> Response<ReplyBody> {
        let mut data = serde_json::json!({ "source": "taskgate" });
        if let Some(reason) = self.reason() {
            data["reason"] = reason.into();
        }
        let error = serde_json::json!({ "code": self.code(), "message": self.text(), "data": data });
        let message = serde_json::json!({ "jsonrpc": "2.0", "id": null, "error": error });
        let mut response = Response::new(ReplyBody::full(Bytes::from(message.to_string())));
        *response.status_mut() = self.status();
        response.headers_mut().insert(CONTENT_TYPE, JSON);
        if self == Self::Method {
            response.headers_mut().insert(ALLOW, METHODS);
        }
        response
    }
}
