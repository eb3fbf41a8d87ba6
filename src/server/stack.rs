//! The guards every request passes, in order.
//!
//! They are plain calls in one function instead of a tower of layers: the list is the documentation, and the compiler
//! sees through it.

use std::convert::Infallible;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use http::header::{CONNECTION, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Request, Response, Version};
use hyper::body::Incoming;

use super::access::Line;
use super::body::ReplyBody;
use super::endpoint::Endpoint;
use super::forwarded::{self, Trusted};
use super::link::{Busy, Link};
use super::origin::Names;
use super::refusal::Refusal;
use super::{Handler, Labels, Options, cors};

/// The guards and what they protect.
#[derive(Debug)]
pub(super) struct Stack<H> {
    names: Names,
    trusted: Trusted,
    endpoint: Endpoint<H>,
}

impl<H: Handler> Stack<H> {
    pub(super) fn new(handler: H, options: &Options) -> Self {
        Self {
            names: Names::new(options),
            trusted: Trusted::new(&options.trusted_proxies),
            endpoint: Endpoint::new(handler, options),
        }
    }

    /// What requests of a connection from `peer` share.
    pub(super) fn link(&self, peer: IpAddr) -> Link {
        Link::new(peer, &self.trusted)
    }

    /// Answers one request, whatever happens on the way.
    pub(super) async fn call(
        self: Arc<Self>,
        request: Request<Incoming>,
        link: Arc<Link>,
    ) -> Result<Response<ReplyBody>, Infallible> {
        let version = request.version();
        let busy = Busy::begin(link, version);
        // The access line is begun first, so that it covers everything below.
        let mut line = Line::begin(&request);
        // A panic is a 500 for one request, not a lost connection for many.
        let guarded = AssertUnwindSafe(self.guard(request, busy.link())).catch_unwind().await;
        let (mut response, labels) = guarded.unwrap_or_else(|_| (panicked(), Labels::UNKNOWN));
        // Draining: no more requests on this connection, please (HTTP/2 says so with GOAWAY).
        if busy.link().is_draining() && version < Version::HTTP_2 {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(line) = &mut line {
            line.head(response.status(), labels);
        }
        response.body_mut().attach(busy, line);
        Ok(response)
    }

    // Not an `async fn`, which would keep its arguments twice, for every request in flight.
    #[allow(clippy::manual_async_fn)]
    fn guard<'a>(
        &'a self,
        request: Request<Incoming>,
        link: &'a Link,
    ) -> impl Future<Output = (Response<ReplyBody>, Labels)> + Send + 'a {
        async move {
            // Exactly one Host, and on a loopback listener one of ours: DNS rebinding.
            let host = match self.names.host(&request) {
                Ok(host) => host,
                Err(refusal) => return (refusal.response(), Labels::UNKNOWN),
            };
            // No Origin, or an allowed one: pages of strangers.
            let origin = match self.names.origin(request.headers()) {
                Ok(origin) => origin,
                Err(refusal) => return (refusal.response(), Labels::UNKNOWN),
            };
            // OPTIONS is answered here, without credentials.
            if let Some(mut response) = cors::options(&request) {
                cors::allow(response.headers_mut(), origin);
                return (response, Labels::UNKNOWN);
            }
            let (mut response, labels) = match self.admit(request, host, link).await {
                Ok(answered) => answered,
                Err(refusal) => (refusal.response(), Labels::UNKNOWN),
            };
            // CORS is ours, whatever the upstream says about it.
            cors::seal(response.headers_mut(), origin);
            (response, labels)
        }
    }

    // Not an `async fn`, which would keep its arguments twice, for every request in flight.
    #[allow(clippy::manual_async_fn)]
    fn admit<'a>(
        &'a self,
        mut request: Request<Incoming>,
        host: HeaderValue,
        link: &'a Link,
    ) -> impl Future<Output = Result<(Response<ReplyBody>, Labels), Refusal>> + Send + 'a {
        async move {
            // Transfer codings that hyper would pass on undecoded: request smuggling.
            check_transfer_encoding(request.headers())?;
            // Where the request comes from, for the handler and for the upstream.
            let peer = forwarded::stamp(request.headers_mut(), host, link, &self.trusted);
            // Path, method, Accept, body; then the handler.
            self.endpoint.serve(request, peer).await
        }
    }
}

fn panicked() -> Response<ReplyBody> {
    tracing::error!("a request handler panicked");
    Refusal::Panic.response()
}

fn check_transfer_encoding(headers: &HeaderMap) -> Result<(), Refusal> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => Err(Refusal::TransferEncoding),
    }
}
