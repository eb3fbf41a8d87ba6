//! One request to one upstream: pooled connections, redirects on the same server, decoded bodies.
//!
//! It never sends a request again whose bytes may have left, and it never gives up on a silent server: a tool may
//! take minutes.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Request, Response, Version};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::connect::Connector;
use super::{Body, Error, Options, body, redirect};

/// Sends requests to one upstream over pooled HTTP/1.1 connections. Cheap to clone; clones share the pool.
#[derive(Clone)]
pub struct Client {
    inner: Arc<legacy::Client<Connector, Full<Bytes>>>,
}

impl Client {
    /// A client for one upstream.
    ///
    /// # Errors
    /// [`Error::Setup`]: the trust anchors named by `SSL_CERT_FILE` cannot be read.
    pub fn new(options: &Options) -> Result<Self, Error> {
        let connector = Connector::new(options)?;
        let inner = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(options.idle_timeout)
            .pool_max_idle_per_host(usize::MAX)
            .build(connector);
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Sends `request` and returns as soon as the answer's head is there.
    ///
    /// The request goes out with the headers that it has, save `Host`, `Content-Length` and `Accept-Encoding`, which
    /// are set here. A 307 or 308 on the same server is followed with method and body; any other is returned. There
    /// is no limit on the time the answer takes. Not cancel safe: dropping the future closes the connection, and the
    /// request may have been executed.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if nothing was sent, [`Error::Broken`], [`Error::Encoding`] or [`Error::Protocol`]
    /// if it may have been.
    pub async fn send(&self, request: Request<Bytes>) -> Result<Response<Body>, Error> {
        let (mut head, content) = request.into_parts();
        own_headers(&mut head.headers);
        for _ in 0..redirect::LIMIT {
            let mut request = Request::new(Full::new(content.clone()));
            *request.method_mut() = head.method.clone();
            *request.uri_mut() = head.uri.clone();
            *request.headers_mut() = head.headers.clone();
            let response = self.once(request).await?;
            match redirect::target(&head.uri, &response) {
                Some(target) => head.uri = target,
                None => return body::decoded(response).await,
            }
        }
        head.version = Version::HTTP_11;
        head.extensions.clear();
        body::decoded(self.once(Request::from_parts(head, Full::new(content))).await?).await
    }

    async fn once(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Error> {
        self.inner.request(request).await.map_err(|error| Error::sending(&error))
    }
}

/// What frames the request is decided here alone.
fn own_headers(headers: &mut HeaderMap) {
    headers.remove(HOST);
    headers.remove(CONTENT_LENGTH);
    headers.remove(TRANSFER_ENCODING);
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
}
