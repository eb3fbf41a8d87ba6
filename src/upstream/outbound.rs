//! A request on its way to an upstream: its headers are shared, since many outlive their sending.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Uri};

/// A request, cheap to clone.
#[derive(Clone, Debug)]
pub struct Outbound {
    /// Its method.
    pub method: Method,
    /// Where it goes.
    pub uri: Uri,
    /// Its headers.
    pub headers: Arc<HeaderMap>,
    /// Its body.
    pub body: Bytes,
}

impl From<Request<Bytes>> for Outbound {
    fn from(request: Request<Bytes>) -> Self {
        let (head, body) = request.into_parts();
        Self { method: head.method, uri: head.uri, headers: Arc::new(head.headers), body }
    }
}
