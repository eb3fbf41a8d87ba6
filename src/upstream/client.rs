//! One request to one upstream: pooled connections, redirects on the same server, decoded bodies.
//!
//! It never sends a request again whose bytes may have left, and it never gives up on a silent server: a tool may
//! take minutes.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::connect::Connector;
use super::{Body, Error, Options, Outbound, Public, body, redirect};

/// Sends requests to one upstream over pooled HTTP/1.1 connections. Cheap to clone; clones share the pool.
#[derive(Clone)]
pub struct Client {
    inner: Arc<legacy::Client<Connector, Full<Bytes>>>,
    public: Option<Arc<Public>>,
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
        Ok(Self { inner: Arc::new(inner), public: Public::new(options).map(Arc::new) })
    }

    /// Sends `request` and returns as soon as the answer's head is there.
    ///
    /// The request goes out with the headers that [`Outbound`] has: `Host` and `Content-Length` are not among them,
    /// they are made here. A 307 or 308 on the same server is followed with method and body; any other is returned. The
    /// challenges of a 401 or 403 point to the public address, if there is one. There is no limit on the time the answer
    /// takes. Not cancel safe: dropping the future closes the connection, and the request may have been executed.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if nothing was sent, [`Error::Broken`], [`Error::Encoding`] or [`Error::Protocol`]
    /// if it may have been.
    pub async fn send(&self, request: impl Into<Outbound>) -> Result<Response<Body>, Error> {
        let mut request = request.into();
        let mut redirects = 0;
        loop {
            let mut response = self.once(&request).await?;
            if let Some(public) = &self.public {
                public.challenges(response.status(), response.headers_mut());
            }
            match redirect::target(&request.uri, &response) {
                Some(target) if redirects < redirect::LIMIT => request.uri = target,
                _ => return body::decoded(response).await,
            }
            redirects += 1;
        }
    }

    async fn once(&self, outbound: &Outbound) -> Result<Response<Incoming>, Error> {
        let mut request = Request::new(Full::new(outbound.body.clone()));
        *request.method_mut() = outbound.method.clone();
        *request.uri_mut() = outbound.uri.clone();
        *request.headers_mut() = HeaderMap::clone(&outbound.headers);
        self.inner.request(request).await.map_err(|error| Error::sending(&error))
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client(..)")
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, HOST};
    use std::time::Duration;

    use http::StatusCode;
    use http_body_util::BodyExt;
    use tokio::net::TcpListener;

    use super::*;
    use crate::upstream::testing::{Reply, Upstream, client, options, post};

    const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

    async fn text(response: Response<Body>) -> String {
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    async fn failure(client: &Client, request: Request<Bytes>) -> Error {
        client.send(request).await.err().expect("an error")
    }

    #[tokio::test]
    async fn sends_what_it_is_given_and_frames_it_itself() {
        let upstream = Upstream::new(vec![Reply::keep(OK)]).await;
        let mut request = upstream.post();
        request.headers_mut().insert(HOST, HeaderValue::from_static("elsewhere"));
        request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("999"));
        request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        assert_eq!(text(upstream.client().send(request).await.unwrap()).await, "ok");
        let seen = &upstream.seen()[0];
        assert!(seen.starts_with("POST /mcp HTTP/1.1\r\n") && seen.ends_with("\r\n\r\n{\"id\":1}"), "{seen}");
        for header in [&format!("host: {}", upstream.address), "content-length: 8", "accept-encoding: identity"] {
            assert!(seen.lines().any(|line| line == header), "{header} in {seen}");
        }
        assert!(!seen.contains("elsewhere") && !seen.contains("gzip"), "{seen}");
    }

    #[tokio::test]
    async fn connections_are_used_again() {
        let upstream = Upstream::new(vec![Reply::keep(OK)]).await;
        let client = upstream.client();
        for _ in 0..5 {
            text(client.send(upstream.post()).await.unwrap()).await;
        }
        assert_eq!((upstream.seen().len(), upstream.connections()), (5, 1));
    }

    #[tokio::test]
    async fn what_was_never_sent_is_unreachable() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}/mcp", listener.local_addr().unwrap()).parse().unwrap();
        drop(listener);
        let error = failure(&client(&uri), post(uri.clone())).await;
        assert!(matches!(&error, Error::Unreachable(text) if text.contains("refused")), "{error}");

        let uri = "http://nowhere.invalid./mcp".parse().unwrap();
        let error = failure(&client(&uri), post(uri.clone())).await;
        assert!(matches!(&error, Error::Unreachable(text) if text.contains("resolved")), "{error}");

        let error = failure(&client(&uri), post("/mcp".parse().unwrap())).await;
        assert!(matches!(&error, Error::Unreachable(_)), "{error}");
    }

    #[tokio::test]
    async fn a_server_without_tls_is_unreachable_over_https() {
        let upstream = Upstream::new(vec![Reply::close(OK)]).await;
        let uri = upstream.uri().to_string().replace("http:", "https:").parse().unwrap();
        // A server that waits for a plain request head never answers the handshake.
        let options = Options { connect_timeout: Duration::from_millis(80), ..options(&uri) };
        let silent = failure(&Client::new(&options).unwrap(), post(uri.clone())).await;
        assert_eq!(silent, Error::Unreachable("connecting took too long".into()));

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri: http::Uri = format!("https://{}/mcp", listener.local_addr().unwrap()).parse().unwrap();
        let answering = crate::shutdown::Work::new().spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            tokio::io::AsyncWriteExt::write_all(&mut socket, b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
            socket
        });
        let error = failure(&client(&uri), post(uri.clone())).await;
        assert!(matches!(&error, Error::Unreachable(text) if text.starts_with("TLS: ")), "{error}");
        drop(answering.await.unwrap());
    }

    #[tokio::test]
    async fn a_request_that_may_have_run_is_not_sent_again() {
        let upstream = Upstream::new(vec![Reply::keep(OK), Reply::close("")]).await;
        let client = upstream.client();
        text(client.send(upstream.post()).await.unwrap()).await;
        let error = failure(&client, upstream.post()).await;
        assert!(matches!(&error, Error::Broken(_)) && error.may_have_run(), "{error}");
        assert_eq!((upstream.seen().len(), upstream.connections()), (2, 1));
    }

    #[tokio::test]
    async fn an_answer_that_is_not_http_is_an_error() {
        let upstream = Upstream::new(vec![Reply::close("SSH-2.0-OpenSSH_9.2\r\n\r\n")]).await;
        let error = failure(&upstream.client(), upstream.post()).await;
        assert_eq!(error, Error::Protocol("not an HTTP answer".into()));
    }

    #[tokio::test]
    async fn connections_are_dropped_before_the_server_closes_them() {
        let upstream = Upstream::start(vec![Reply::keep(OK)], Duration::from_millis(50)).await;
        let options = Options { idle_timeout: Duration::from_millis(30), ..options(&upstream.uri()) };
        let client = Client::new(&options).unwrap();
        for call in 0..50_u64 {
            text(client.send(upstream.post()).await.unwrap()).await;
            tokio::time::sleep(Duration::from_millis(5 + call % 10 * 6)).await;
        }
        assert_eq!(upstream.seen().len(), 50);
        assert!(upstream.connections() > 1);
    }

    fn redirect(status: &str, location: &str) -> Reply {
        Reply::sized(status, &format!("location: {location}\r\n"), b"moved")
    }

    #[tokio::test]
    async fn a_redirect_on_the_same_server_is_followed_with_its_body() {
        let replies = vec![redirect("307 Temporary Redirect", "/mcp/"), redirect("308 P", "/v2?x=1"), Reply::keep(OK)];
        let upstream = Upstream::new(replies).await;
        assert_eq!(text(upstream.client().send(upstream.post()).await.unwrap()).await, "ok");
        let seen = upstream.seen();
        let lines: Vec<_> = seen.iter().map(|request| request.lines().next().unwrap()).collect();
        assert_eq!(lines, ["POST /mcp HTTP/1.1", "POST /mcp/ HTTP/1.1", "POST /v2?x=1 HTTP/1.1"]);
        assert!(seen.iter().all(|request| request.ends_with("{\"id\":1}") && request.contains("application/json")));
    }

    #[tokio::test]
    async fn other_redirects_are_the_answer() {
        for location in ["http://127.0.0.1:1/mcp", "https://example.com/", "http://example.com/mcp"] {
            let upstream = Upstream::new(vec![redirect("307 Temporary Redirect", location)]).await;
            let response = upstream.client().send(upstream.post()).await.unwrap();
            assert_eq!(response.status(), StatusCode::TEMPORARY_REDIRECT);
            assert_eq!((text(response).await.as_str(), upstream.seen().len()), ("moved", 1));
        }
        let upstream = Upstream::new(vec![redirect("302 Found", "/mcp/")]).await;
        assert_eq!(upstream.client().send(upstream.post()).await.unwrap().status(), StatusCode::FOUND);
    }

    #[tokio::test]
    async fn redirects_in_a_circle_end() {
        let upstream = Upstream::new(vec![redirect("308 Permanent Redirect", "/mcp")]).await;
        let response = upstream.client().send(upstream.post()).await.unwrap();
        assert_eq!((response.status(), upstream.seen().len()), (StatusCode::PERMANENT_REDIRECT, 4));
    }
}
