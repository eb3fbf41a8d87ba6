//! Where a redirected request may go: the same server, and nowhere else.
//!
//! Servers answer `/mcp` with a redirect to `/mcp/`; a redirect to another host would carry credentials there.

use http::header::LOCATION;
use http::uri::PathAndQuery;
use http::{Response, StatusCode, Uri};

/// How many redirects of one request are followed.
pub(super) const LIMIT: usize = 3;

/// The URI that a 307 or 308 sends the request to, if it lies on the same scheme, host and port.
pub(super) fn target<B>(from: &Uri, response: &Response<B>) -> Option<Uri> {
    if !matches!(response.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT) {
        return None;
    }
    resolve(from, response.headers().get(LOCATION)?.to_str().ok()?)
}

/// Resolves a reference (RFC 3986 §5.2, without dot segments) and keeps it only if it stays on the server.
fn resolve(from: &Uri, location: &str) -> Option<Uri> {
    let location = location.split('#').next().unwrap_or_default();
    if location.contains("://") || location.starts_with("//") {
        let absolute =
            if location.starts_with("//") { format!("{}:{location}", from.scheme_str()?) } else { location.to_owned() };
        let to: Uri = absolute.parse().ok()?;
        return same_server(from, &to).then(|| with_path(from, to.path_and_query()?.as_str())).flatten();
    }
    match location.as_bytes().first()? {
        b'/' => with_path(from, location),
        b'?' => with_path(from, &format!("{}{location}", from.path())),
        _ => {
            let directory = &from.path()[..=from.path().rfind('/')?];
            with_path(from, &format!("{directory}{location}"))
        }
    }
}

fn with_path(from: &Uri, path: &str) -> Option<Uri> {
    let mut parts = from.clone().into_parts();
    parts.path_and_query = Some(path.parse::<PathAndQuery>().ok()?);
    Uri::from_parts(parts).ok()
}

/// Whether both have the same scheme, host and port.
pub(super) fn same_server(one: &Uri, other: &Uri) -> bool {
    let host = |uri: &Uri| uri.host().map(str::to_ascii_lowercase);
    one.scheme() == other.scheme() && host(one) == host(other) && port(one) == port(other)
}

fn port(uri: &Uri) -> Option<u16> {
    uri.port_u16().or(match uri.scheme_str() {
        Some("https") => Some(443),
        Some("http") => Some(80),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_stays_on_its_server() {
        let table = [
            ("http://a/mcp", "/mcp/", Some("http://a/mcp/")),
            ("http://a/mcp", "http://a/mcp/", Some("http://a/mcp/")),
            ("http://a/mcp", "HTTP://A:80/mcp/?x=1#top", Some("http://a/mcp/?x=1")),
            ("https://a:443/mcp", "https://a/x", Some("https://a:443/x")),
            ("http://a:8/mcp", "//a:8/x", Some("http://a:8/x")),
            ("http://a/v1/mcp", "mcp/", Some("http://a/v1/mcp/")),
            ("http://a/mcp?old", "?new", Some("http://a/mcp?new")),
            ("https://a/mcp", "http://a/mcp/", None),
            ("http://a/mcp", "https://a/mcp/", None),
            ("http://a/mcp", "http://b/mcp", None),
            ("http://a/mcp", "//b/mcp", None),
            ("http://a:1/mcp", "http://a:2/mcp", None),
            ("http://a/mcp", "http://a@b/mcp", None),
            ("http://a/mcp", "/\\b/ ", None),
            ("http://a/mcp", "", None),
        ];
        for (from, location, to) in table {
            let found = resolve(&from.parse().unwrap(), location);
            assert_eq!(found.map(|uri| uri.to_string()).as_deref(), to, "{from} -> {location}");
        }
    }
}
