//! How a connection to an upstream is made: name, TCP, TLS, all within one limit.
//!
//! The HTTP client clones its connector for every request, so the parts sit behind one reference count.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::{Service, ServiceExt};

use super::error::reason;
use super::{Error, Options, Resolver, tls};

/// Probes on idle connections: the only way to notice a dead upstream host that is silent for minutes by right.
const KEEPALIVE: Duration = Duration::from_secs(60);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Connects to one upstream.
#[derive(Clone)]
pub(super) struct Connector {
    inner: Arc<HttpsConnector<HttpConnector<Resolver>>>,
    limit: Duration,
}

impl Connector {
    /// The system's trust anchors are read only for an upstream that needs them.
    pub(super) fn new(options: &Options) -> Result<Self, Error> {
        let tls = if options.url.scheme() == Some(&Scheme::HTTPS) {
            tls::with_system_roots()?
        } else {
            tls::with_public_roots()
        };
        let resolver = Resolver::new().map_err(|error| Error::Setup(reason(&error)))?;
        let mut http = HttpConnector::new_with_resolver(resolver);
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_keepalive(Some(KEEPALIVE));
        http.set_connect_timeout(Some(options.connect_timeout));
        let https =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(http);
        Ok(Self { inner: Arc::new(https), limit: options.connect_timeout })
    }
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = HttpsConnector::clone(&self.inner).oneshot(uri);
        let limit = self.limit;
        Box::pin(async move {
            tokio::time::timeout(limit, connecting)
                .await
                .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "connecting took too long"))?
        })
    }
}
