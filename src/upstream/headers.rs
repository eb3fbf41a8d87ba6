//! Which headers cross taskgate: end-to-end ones do, those of one connection or of another party do not.

use bytes::BytesMut;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS,
    ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, COOKIE, EXPECT, FORWARDED, HOST, HeaderName,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderValue};

use super::Options;

/// What an upstream is always asked for: it may answer either way, whatever the client takes.
const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// Headers of one connection (RFC 9110, section 7.6.1), and the two that older software uses.
const HOP_BY_HOP: [HeaderName; 9] = [
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    CONNECTION,
];

/// Headers of a request that are another party's business, or decided anew.
const NOT_FORWARDED: [HeaderName; 7] = [HOST, CONTENT_LENGTH, ACCEPT_ENCODING, ACCEPT, COOKIE, FORWARDED, EXPECT];

/// Headers of an answer that are another party's business, or decided anew.
const NOT_RETURNED: [HeaderName; 9] = [
    SET_COOKIE,
    CONTENT_LENGTH,
    CONTENT_ENCODING,
    ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_ALLOW_CREDENTIALS,
    ACCESS_CONTROL_ALLOW_HEADERS,
    ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_EXPOSE_HEADERS,
    ACCESS_CONTROL_MAX_AGE,
];

/// Makes a client's headers those of the request to its upstream; the session and its cookies come later.
pub(super) fn to_upstream(headers: &mut HeaderMap, options: &Options) {
    strip(headers, &NOT_FORWARDED);
    if !options.forward_authorization {
        headers.remove(AUTHORIZATION);
    }
    headers.insert(ACCEPT, BOTH);
    for (name, value) in &options.headers {
        headers.insert(name.clone(), value.clone());
    }
}

/// Makes an upstream's headers those of the answer to a client.
pub fn to_client(headers: &mut HeaderMap) {
    strip(headers, &NOT_RETURNED);
}

/// The same headers in memory of their own: as parsed they hold on to all that was read from their connection, for as
/// long as a call takes.
pub(super) fn detached(headers: &HeaderMap) -> HeaderMap {
    let mut text = BytesMut::with_capacity(headers.values().map(HeaderValue::len).sum());
    let mut copy = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        text.extend_from_slice(value.as_bytes());
        let mut own = HeaderValue::from_maybe_shared(text.split().freeze()).unwrap_or_else(|_| value.clone());
        own.set_sensitive(value.is_sensitive());
        copy.append(name.clone(), own);
    }
    copy
}

fn strip(headers: &mut HeaderMap, others: &[HeaderName]) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::try_from(name.trim()).ok())
        .filter(|name| !matches!(name.as_str(), "close" | "keep-alive"))
        .collect();
    for name in HOP_BY_HOP.iter().chain(others).chain(&named) {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn options() -> Options {
        Options {
            name: "a".into(),
            path: "/mcp".into(),
            url: http::Uri::from_static("http://127.0.0.1:1/mcp"),
            connect_timeout: Duration::from_secs(1),
            idle_timeout: Duration::from_secs(1),
            headers: HeaderMap::from_iter([(HeaderName::from_static("x-key"), HeaderValue::from_static("ours"))]),
            forward_authorization: false,
            credential_header: AUTHORIZATION,
            mint_sessions: false,
        }
    }

    fn names(headers: &HeaderMap) -> Vec<String> {
        let mut names: Vec<String> = headers.iter().map(|(n, v)| format!("{n}={}", v.to_str().unwrap())).collect();
        names.sort();
        names
    }

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        list.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    #[test]
    fn b87_end_to_end_passes_and_nothing_else() {
        let mut request = headers(&[
            ("host", "evil"),
            ("cookie", "a=1"),
            ("connection", "keep-alive, x-hop"),
            ("x-hop", "1"),
            ("te", "trailers"),
            ("x-custom", "1"),
            ("x-key", "theirs"),
            ("authorization", "Bearer t"),
            ("accept", "*/*"),
            ("mcp-param-a", "1"),
        ]);
        to_upstream(&mut request, &options());
        let both = "accept=application/json, text/event-stream";
        assert_eq!(names(&request), [both, "mcp-param-a=1", "x-custom=1", "x-key=ours"]);
        let mut answer = headers(&[
            ("set-cookie", "a=1"),
            ("retry-after", "5"),
            ("access-control-allow-origin", "*"),
            ("transfer-encoding", "chunked"),
            ("content-length", "5"),
            ("mcp-session-id", "s"),
        ]);
        to_client(&mut answer);
        assert_eq!(names(&answer), ["mcp-session-id=s", "retry-after=5"]);
    }
}
