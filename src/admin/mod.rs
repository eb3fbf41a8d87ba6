//! The admin listener: health, readiness, metrics.
//!
//! Its own socket, so that it answers while the public one is drained, full or firewalled; its own few lines on hyper,
//! because three read-only pages need no router.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http::header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use sha2::Sha256;
use tokio::net::{TcpListener, TcpStream};

use crate::shutdown::Work;
use crate::telemetry::Metrics;
pub use crate::telemetry::Readiness;

const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// `[admin]`, resolved.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Bearer token; required off loopback.
    pub token: Option<String>,
    /// Whether `/metrics` asks for the token as well (health and readiness never do).
    pub metrics_token: bool,
}

/// A bound admin socket, not serving yet.
#[derive(Debug)]
pub struct Admin {
    socket: TcpListener,
    addr: SocketAddr,
    options: Options,
}

impl Admin {
    /// Binds to `options.listen`.
    ///
    /// # Errors
    ///
    /// Whatever the system says: the address is taken, not ours, or needs privileges.
    pub async fn bind(options: &Options) -> io::Result<Self> {
        let socket = TcpListener::bind(options.listen).await?;
        Ok(Self { addr: socket.local_addr()?, socket, options: options.clone() })
    }

    /// The address it is bound to, with the real port.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Serves until `work` is severed, also while draining. Cancel safe.
    pub async fn serve(self, readiness: Readiness, metrics: Metrics, work: Work) {
        let token = self.options.token.filter(|_| self.options.metrics_token);
        let pages = Arc::new(Pages { readiness, metrics, token, work: work.clone() });
        loop {
            let accepted = tokio::select! {
                biased;
                () = work.severed() => return,
                accepted = self.socket.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => drop(work.spawn(Arc::clone(&pages).connection(stream))),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept admin connections, resting");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

struct Pages {
    readiness: Readiness,
    metrics: Metrics,
    token: Option<String>,
    work: Work,
}

impl Pages {
    async fn connection(self: Arc<Self>, stream: TcpStream) {
        let pages = Arc::clone(&self);
        let service = service_fn(move |request: Request<Incoming>| {
            let response = pages.answer(&request);
            async { Ok::<_, Infallible>(response) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service);
        tokio::select! {
            () = self.work.severed() => {}
            ended = connection => if let Err(error) = ended {
                tracing::debug!(%error, "admin connection ended early");
            },
        }
    }

    fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = page(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD\n");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match request.uri().path() {
            "/healthz" => page(StatusCode::OK, TEXT, "ok\n"),
            "/readyz" => self.ready(),
            "/metrics" if self.is_let_in(request.headers()) => {
                page(StatusCode::OK, OPEN_METRICS, self.metrics.encode())
            }
            "/metrics" => {
                let mut response = page(StatusCode::UNAUTHORIZED, TEXT, "the admin token is required\n");
                response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                response
            }
            _ => page(StatusCode::NOT_FOUND, TEXT, "/healthz, /readyz and /metrics are here\n"),
        }
    }

    fn ready(&self) -> Response<Full<Bytes>> {
        let mut text = String::new();
        if self.work.is_draining() {
            text.push_str("draining\n");
        }
        for reason in self.readiness.reasons().iter().filter(|reason| **reason != "draining") {
            writeln!(text, "{reason}").expect("a string takes whatever is written");
        }
        match text.as_str() {
            "" => page(StatusCode::OK, TEXT, "ready\n"),
            _ => page(StatusCode::SERVICE_UNAVAILABLE, TEXT, text),
        }
    }

    fn is_let_in(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else { return true };
        let given = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
        let (scheme, given) = given.split_at_checked(b"Bearer ".len()).unwrap_or_default();
        scheme.eq_ignore_ascii_case(b"Bearer ") && is_same(token.as_bytes(), given.trim_ascii())
    }
}

/// Compares in a time that tells nothing about where the two differ.
fn is_same(secret: &[u8], given: &[u8]) -> bool {
    let seal = |text: &[u8]| Hmac::<Sha256>::new_from_slice(secret).expect("keys of any length fit").chain_update(text);
    seal(given).verify(&seal(secret).finalize().into_bytes()).is_ok()
}

fn page(status: StatusCode, content_type: HeaderValue, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    struct Running {
        addr: SocketAddr,
        readiness: Readiness,
        metrics: Metrics,
        work: Work,
    }

    async fn start(token: Option<&str>) -> Running {
        let options = Options {
            listen: "127.0.0.1:0".parse().unwrap(),
            token: token.map(str::to_owned),
            metrics_token: token.is_some(),
        };
        let (readiness, metrics, work) = (Readiness::new(), Metrics::new(), Work::new());
        let admin = Admin::bind(&options).await.unwrap();
        let addr = admin.addr();
        drop(work.spawn(admin.serve(readiness.clone(), metrics.clone(), work.clone())));
        Running { addr, readiness, metrics, work }
    }

    impl Running {
        async fn ask(&self, head: &str) -> String {
            let mut stream = TcpStream::connect(self.addr).await.unwrap();
            let request = format!("{head}Host: localhost\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        }
    }

    #[tokio::test]
    async fn readiness_goes_red_with_a_line_per_reason_and_health_stays_green() {
        let admin = start(None).await;
        assert!(admin.ask("GET /readyz HTTP/1.1\r\n").await.starts_with("HTTP/1.1 200"));
        admin.readiness.set("store unavailable");
        admin.work.drain();
        let red = admin.ask("GET /readyz HTTP/1.1\r\n").await;
        assert!(red.starts_with("HTTP/1.1 503"), "{red}");
        assert!(red.ends_with("\r\n\r\ndraining\nstore unavailable\n"), "{red}");
        assert!(admin.ask("GET /healthz HTTP/1.1\r\n").await.starts_with("HTTP/1.1 200"));
        admin.work.cut();
        assert!(admin.work.finished(Duration::from_secs(5)).await);
    }

    #[tokio::test]
    async fn metrics_ask_for_the_token_where_told_to() {
        let open = start(None).await;
        open.metrics.sessions(5);
        let text = open.ask("GET /metrics HTTP/1.1\r\n").await;
        assert!(text.contains("application/openmetrics-text") && text.contains("taskgate_sessions 5\n"), "{text}");

        let guarded = start(Some("s3cret")).await;
        for credential in ["", "Authorization: Bearer s3cre\r\n", "Authorization: s3cret\r\n", "Authorization: B\r\n"] {
            let answer = guarded.ask(&format!("GET /metrics HTTP/1.1\r\n{credential}")).await;
            assert!(answer.starts_with("HTTP/1.1 401"), "{credential}: {answer}");
        }
        let answer = guarded.ask("GET /metrics HTTP/1.1\r\nAuthorization: bearer s3cret\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(guarded.ask("GET /readyz HTTP/1.1\r\n").await.starts_with("HTTP/1.1 200"));
    }

    #[tokio::test]
    async fn only_reads_and_only_three_pages() {
        let admin = start(None).await;
        assert!(admin.ask("POST /healthz HTTP/1.1\r\n").await.starts_with("HTTP/1.1 405"));
        assert!(admin.ask("GET / HTTP/1.1\r\n").await.starts_with("HTTP/1.1 404"));
        let head = admin.ask("HEAD /healthz HTTP/1.1\r\n").await;
        assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
    }
}
