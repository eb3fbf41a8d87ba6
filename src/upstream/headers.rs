//! Which headers cross taskgate: end-to-end ones do, those of one connection or of another party do not.

use bytes::BytesMut;
use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, HeaderName};
use http::{HeaderMap, HeaderValue};

use super::Options;

/// What an upstream is always asked for: it may answer either way, whatever the client takes.
const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// A header of one connection (RFC 9110, section 7.6.1), or one that older software uses like that.
fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
    )
}

/// A header of a request that is another party's business, or decided anew.
fn is_not_forwarded(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "host" | "content-length" | "accept-encoding" | "accept" | "cookie" | "forwarded" | "expect"
    )
}

/// A header of an answer that is another party's business, or decided anew.
fn is_not_returned(name: &HeaderName) -> bool {
    matches!(name.as_str(), "set-cookie" | "content-length" | "content-encoding")
        || name.as_str().starts_with("access-control-")
}

/// A client's headers as those of the request to its upstream; the session's cookies come later.
///
/// They are copied into memory of their own: as parsed they hold on to all that was read from their connection, and
/// these live as long as the call.
pub(super) fn to_upstream(headers: &HeaderMap, options: &Options) -> HeaderMap {
    let named = named_by_connection(headers);
    let dropped = |name: &HeaderName| {
        is_hop_by_hop(name)
            || is_not_forwarded(name)
            || (*name == AUTHORIZATION && !options.forward_authorization)
            || named.contains(name)
    };
    let mut text = BytesMut::with_capacity(headers.values().map(HeaderValue::len).sum());
    let mut copy = HeaderMap::with_capacity(headers.len() + options.headers.len() + 2);
    for (name, value) in headers.iter().filter(|(name, _)| !dropped(name)) {
        text.extend_from_slice(value.as_bytes());
        let mut own = HeaderValue::from_maybe_shared(text.split().freeze()).unwrap_or_else(|_| value.clone());
        own.set_sensitive(value.is_sensitive());
        copy.append(name.clone(), own);
    }
    copy.insert(ACCEPT, BOTH);
    copy.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    for (name, value) in &options.headers {
        copy.insert(name.clone(), value.clone());
    }
    copy
}

/// Makes an upstream's headers those of the answer to a client.
pub fn to_client(headers: &mut HeaderMap) {
    let mut dropped = named_by_connection(headers);
    dropped.extend(headers.keys().filter(|name| is_hop_by_hop(name) || is_not_returned(name)).cloned());
    for name in &dropped {
        headers.remove(name);
    }
}

/// What `Connection` names is of this connection only.
fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|name| !name.eq_ignore_ascii_case("close") && !name.eq_ignore_ascii_case("keep-alive"))
        .filter_map(|name| HeaderName::try_from(name).ok())
        .collect()
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
            public_url: None,
            connect_timeout: Duration::from_secs(1),
            idle_timeout: Duration::from_secs(1),
            headers: HeaderMap::from_iter([(HeaderName::from_static("x-key"), HeaderValue::from_static("ours"))]),
            forward_authorization: false,
            credential_header: AUTHORIZATION,
            mint_sessions: false,
            bridging: crate::upstream::Bridging::default(),
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
        let request = headers(&[
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
        let request = to_upstream(&request, &options());
        let both = "accept=application/json, text/event-stream";
        assert_eq!(names(&request), ["accept-encoding=identity", both, "mcp-param-a=1", "x-custom=1", "x-key=ours"]);
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
