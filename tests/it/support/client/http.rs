//! A bare HTTP/1.1 client: one connection per request, closed when the reply is dropped.
//!
//! Dropping a future or a reply is how a story lets a client vanish.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::super::soon;
use super::sse::Events;

/// Where requests go.
#[derive(Clone, Copy, Debug)]
pub struct Http {
    addr: SocketAddr,
}

/// Ends the connection when it goes out of scope.
#[derive(Debug)]
pub(super) struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An HTTP answer whose body has not been read yet.
#[derive(Debug)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Headers of the answer.
    pub headers: HeaderMap,
    body: Incoming,
    connection: Connection,
    _sender: http1::SendRequest<Full<Bytes>>,
}

impl Http {
    /// A client of this address.
    pub fn new(addr: SocketAddr) -> Self {
        Self { addr }
    }

    /// Sends a request on a connection of its own and returns once the head of the answer is there.
    pub async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Reply {
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            request = request.header("host", self.addr.to_string());
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).expect("a well-formed request");
        soon("an answer's head", self.exchange(request)).await
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Reply {
        let tcp = TcpStream::connect(self.addr).await.expect("somebody listens");
        tcp.set_nodelay(true).expect("TCP has no delay");
        let (mut sender, connection) = http1::handshake(TokioIo::new(tcp)).await.expect("a fresh connection");
        let connection = Connection(tokio::spawn(async move { drop(connection.await) }));
        let response = sender.send_request(request).await.expect("an HTTP answer");
        let (head, body) = response.into_parts();
        Reply { status: head.status.as_u16(), headers: head.headers, body, connection, _sender: sender }
    }
}

impl Reply {
    /// A header's only value.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        let first = values.next()?;
        assert!(values.next().is_none(), "{name} came twice: {:?}", self.headers);
        Some(first.to_str().expect("headers of these tests are ASCII"))
    }

    /// Whether the answer is an event stream.
    pub fn is_sse(&self) -> bool {
        self.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"))
    }

    /// The whole body.
    pub async fn bytes(self) -> Bytes {
        soon("an answer's body", self.body.collect()).await.expect("a complete body").to_bytes()
    }

    /// The whole body as text.
    pub async fn text(self) -> String {
        String::from_utf8(self.bytes().await.to_vec()).expect("UTF-8")
    }

    /// How long the body is, without keeping it.
    pub async fn length(mut self) -> usize {
        let mut length = 0;
        while let Some(frame) = soon("more of a body", self.body.frame()).await {
            length += frame.expect("a complete body").data_ref().map_or(0, Bytes::len);
        }
        length
    }

    /// The body as events, live.
    pub fn events(self) -> Events {
        assert!(self.is_sse(), "no event stream: {} {:?}", self.status, self.headers);
        Events::new(self.body, self.connection)
    }
}

/// One HTTP/2 connection for many requests side by side.
pub struct H2 {
    authority: String,
    sender: http2::SendRequest<Full<Bytes>>,
    _connection: Connection,
}

impl H2 {
    /// Connects without an upgrade, as clients that know the peer do.
    pub async fn connect(addr: SocketAddr) -> Self {
        let tcp = TcpStream::connect(addr).await.expect("somebody listens");
        let io = TokioIo::new(tcp);
        let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.expect("a fresh connection");
        let connection = Connection(tokio::spawn(async move { drop(connection.await) }));
        Self { authority: addr.to_string(), sender, _connection: connection }
    }

    /// Sends a request to `/mcp` and returns the status and the whole body.
    pub async fn send(&self, method: &str, headers: &[(&str, &str)], body: String) -> (u16, String) {
        let uri = format!("http://{}/mcp", self.authority);
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).expect("a well-formed request");
        let mut sender = self.sender.clone();
        let response = soon("an answer's head", sender.send_request(request)).await.expect("an HTTP answer");
        let status = response.status().as_u16();
        let body = soon("an answer's body", response.into_body().collect()).await.expect("a complete body");
        (status, String::from_utf8(body.to_bytes().to_vec()).expect("UTF-8"))
    }
}

/// Sends raw bytes and returns all that comes back until the peer closes or `enough` is true.
pub async fn raw_exchange(addr: SocketAddr, bytes: &[u8], enough: impl Fn(&str) -> bool) -> String {
    let mut tcp = TcpStream::connect(addr).await.expect("somebody listens");
    tcp.write_all(bytes).await.expect("the peer reads");
    let mut seen = Vec::new();
    let reading = async {
        let mut buffer = [0; 4096];
        while !enough(&String::from_utf8_lossy(&seen)) {
            match tcp.read(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(count) => seen.extend_from_slice(&buffer[..count]),
            }
        }
    };
    soon("raw bytes", reading).await;
    String::from_utf8_lossy(&seen).into_owned()
}
