//! CORS, answered here so that browsers reach any upstream the same way.
//!
//! Forty lines of our own instead of a layer, because a request without `Origin` (nearly all) must cost nothing.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, ALLOW, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};

use super::body::ReplyBody;
use super::refusal::METHODS;

const ALLOWED: &str = "Accept, Authorization, Content-Type, Mcp-Session-Id, MCP-Protocol-Version, Last-Event-ID, \
                       Mcp-Method, Mcp-Name";
const EXPOSED: HeaderValue =
    HeaderValue::from_static("Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Retry-After, Content-Type");
const MAX_AGE: HeaderValue = HeaderValue::from_static("7200");
const PARAMETER: &str = "mcp-param-";

/// The answer to `OPTIONS`, which never reaches the handler: browsers send it without credentials.
pub(super) fn options<B>(request: &Request<B>) -> Option<Response<ReplyBody>> {
    if request.method() != Method::OPTIONS {
        return None;
    }
    let mut response = Response::new(ReplyBody::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(ALLOW, METHODS);
    if request.headers().contains_key(ORIGIN) && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, allowed(request.headers()));
        headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        headers.append(VARY, HeaderValue::from_static("Access-Control-Request-Headers"));
    }
    Some(response)
}

/// The fixed list, and those requested that carry a call's parameters.
fn allowed(headers: &HeaderMap) -> HeaderValue {
    let mut list = ALLOWED.to_owned();
    let lines = headers.get_all(ACCESS_CONTROL_REQUEST_HEADERS).iter().filter_map(|line| line.to_str().ok());
    for name in lines.flat_map(|line| line.split(',')).map(str::trim) {
        let is_parameter = name.get(..PARAMETER.len()).is_some_and(|start| start.eq_ignore_ascii_case(PARAMETER));
        if is_parameter && HeaderName::try_from(name).is_ok() {
            list.push_str(", ");
            list.push_str(name);
        }
    }
    HeaderValue::try_from(list).unwrap_or(HeaderValue::from_static(ALLOWED))
}

/// Replaces what an upstream said about CORS; `origin` is the allowed one that asked, if any did.
pub(super) fn seal(headers: &mut HeaderMap, origin: Option<HeaderValue>) {
    let is_cors = |name: &HeaderName| name.as_str().starts_with("access-control-");
    if headers.keys().any(is_cors) {
        let theirs: Vec<HeaderName> = headers.keys().filter(|name| is_cors(name)).cloned().collect();
        for name in theirs {
            headers.remove(name);
        }
    }
    allow(headers, origin);
}

/// Lets the page at `origin` read the response.
pub(super) fn allow(headers: &mut HeaderMap, origin: Option<HeaderValue>) {
    if let Some(origin) = origin {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }
}
