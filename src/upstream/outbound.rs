//! A request on its way to an upstream: its headers are shared, since many outlive their sending.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Method, Request, Uri};

/// A request, cheap to clone.
#[derive(Clone, Debug)]
pub struct Outbound {
    /// Its method.
    pub method: Method,
    /// Where it goes.
    pub uri: Uri,
    /// Its headers, without those that frame it, and asking for an answer without encoding.
    pub headers: Arc<HeaderMap>,
    /// Its body.
    pub body: Bytes,
}

impl From<Request<Bytes>> for Outbound {
    fn from(request: Request<Bytes>) -> Self {
        let (mut head, body) = request.into_parts();
        own_headers(&mut head.headers);
        Self { method: head.method, uri: head.uri, headers: Arc::new(head.headers), body }
    }
}

/// What frames the request is decided here alone.
fn own_headers(headers: &mut HeaderMap) {
    headers.remove(HOST);
    headers.remove(CONTENT_LENGTH);
    headers.remove(TRANSFER_ENCODING);
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
}
