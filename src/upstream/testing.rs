//! A scripted upstream on a real socket.
//!
//! Canned bytes, so that tests decide what is on the wire to the byte; no server library tidies it up.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Uri};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{Client, Options};
use crate::shutdown::Work;

/// What is answered to one request: parts with a pause between them.
#[derive(Clone)]
pub(crate) struct Reply {
    parts: Vec<Vec<u8>>,
    pause: Duration,
    close: bool,
}

impl Reply {
    /// Bytes, then the next request on this connection.
    pub(crate) fn keep(bytes: impl Into<Vec<u8>>) -> Self {
        Self { parts: vec![bytes.into()], pause: Duration::ZERO, close: false }
    }

    /// Bytes, then the connection is closed.
    pub(crate) fn close(bytes: impl Into<Vec<u8>>) -> Self {
        Self { close: true, ..Self::keep(bytes) }
    }

    /// An answer with a length.
    pub(crate) fn sized(status: &str, headers: &str, body: &[u8]) -> Self {
        Self::keep([head(status, &format!("{headers}content-length: {}\r\n", body.len())).as_bytes(), body].concat())
    }

    /// A chunked answer.
    pub(crate) fn chunked(headers: &str, chunks: &[&[u8]]) -> Self {
        let mut parts = vec![head("200 OK", &format!("{headers}transfer-encoding: chunked\r\n")).into_bytes()];
        for chunk in chunks {
            parts.push([format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
        }
        parts.push(b"0\r\n\r\n".to_vec());
        Self { parts, pause: Duration::ZERO, close: false }
    }

    /// An event stream that ends with its connection.
    pub(crate) fn events(stream: &str) -> Self {
        Self::close(head("200 OK", "content-type: text/event-stream\r\n") + stream)
    }

    /// Waits between the parts.
    pub(crate) fn paced(self, pause: Duration) -> Self {
        Self { pause, ..self }
    }
}

fn head(status: &str, headers: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}\r\n")
}

/// An upstream that answers request by request and remembers what it was asked.
pub(crate) struct Upstream {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
    connections: Arc<Mutex<usize>>,
}

impl Upstream {
    /// Answers the n-th request with the n-th reply, and all later ones with the last; a connection that idles
    /// longer than `idle` is closed.
    pub(crate) async fn start(replies: Vec<Reply>, idle: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, connections) = (Arc::default(), Arc::default());
        let upstream = Self { address, seen, connections };
        let (seen, connections) = (upstream.seen.clone(), upstream.connections.clone());
        let work = Work::new();
        work.clone().spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                *connections.lock().unwrap() += 1;
                work.spawn(serve(socket, replies.clone(), seen.clone(), idle));
            }
        });
        upstream
    }

    pub(crate) async fn new(replies: Vec<Reply>) -> Self {
        Self::start(replies, Duration::from_secs(60)).await
    }

    /// Every request so far, head and body.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    /// How many connections were made.
    pub(crate) fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }

    pub(crate) fn uri(&self) -> Uri {
        format!("http://{}/mcp", self.address).parse().unwrap()
    }

    pub(crate) fn post(&self) -> Request<Bytes> {
        post(self.uri())
    }

    pub(crate) fn client(&self) -> Client {
        client(&self.uri())
    }
}

async fn serve(mut socket: TcpStream, replies: Vec<Reply>, seen: Arc<Mutex<Vec<String>>>, idle: Duration) {
    while let Ok(Some(request)) = tokio::time::timeout(idle, read_request(&mut socket)).await {
        let reply = {
            let mut seen = seen.lock().unwrap();
            seen.push(request);
            replies[(seen.len() - 1).min(replies.len() - 1)].clone()
        };
        for part in &reply.parts {
            if socket.write_all(part).await.is_err() {
                return;
            }
            tokio::time::sleep(reply.pause).await;
        }
        if reply.close {
            return;
        }
    }
}

async fn read_request(socket: &mut TcpStream) -> Option<String> {
    let mut request = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
            if body.len() >= length.unwrap_or(0) {
                return Some(text);
            }
        }
        if socket.read_buf(&mut request).await.ok()? == 0 {
            return None;
        }
    }
}

pub(crate) fn options(uri: &Uri) -> Options {
    Options {
        name: "test".into(),
        path: "/mcp".into(),
        url: uri.clone(),
        public_url: None,
        connect_timeout: Duration::from_millis(500),
        idle_timeout: Duration::from_secs(4),
        headers: http::HeaderMap::new(),
        forward_authorization: true,
        credential_header: http::header::AUTHORIZATION,
        mint_sessions: false,
        bridging: crate::upstream::Bridging::default(),
    }
}

pub(crate) fn client(uri: &Uri) -> Client {
    Client::new(&options(uri)).unwrap()
}

pub(crate) fn post(uri: Uri) -> Request<Bytes> {
    Request::post(uri).header("content-type", "application/json").body(Bytes::from_static(b"{\"id\":1}")).unwrap()
}
