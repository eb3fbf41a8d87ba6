//! The room as a client sees it: a toy handler behind real loopback sockets.
//!
//! Requests are written by hand, since most of what is tested here no client library would send.

mod connections;
mod guards;
mod replies;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::*;
use crate::call::{Answer, Step};
use crate::shutdown::Work;

const PATIENCE: Duration = Duration::from_secs(5);

type Answering = dyn Fn(Inbound) -> Handled + Send + Sync;

#[derive(Clone)]
struct Toy(Arc<Answering>);

impl Handler for Toy {
    fn accepts(&self, path: &str) -> bool {
        path == "/mcp" || path.starts_with("/.well-known/oauth-")
    }

    async fn handle(&self, inbound: Inbound) -> Handled {
        (self.0)(inbound)
    }
}

fn handled(outgoing: impl Into<Outgoing>) -> Handled {
    let labels = Labels { method: "tools/call", dialect: "job" };
    Handled { outgoing: outgoing.into(), upgrade: Upgrade::Allowed, labels }
}

fn options() -> Options {
    Options {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        public_url: None,
        allowed_origins: vec!["localhost".into()],
        trusted_proxies: Vec::new(),
        max_body: 64 * 1024,
        keepalive: Duration::from_secs(15),
        header_timeout: Duration::from_secs(10),
    }
}

/// A running listener.
struct Gate {
    addr: SocketAddr,
    work: Work,
}

impl Gate {
    #[allow(clippy::needless_pass_by_value)] // options are written in place
    fn start(options: Options, answer: impl Fn(Inbound) -> Handled + Send + Sync + 'static) -> Self {
        let listener = Listener::bind(&options).unwrap();
        let (addr, work) = (listener.addr(), Work::new());
        drop(work.spawn(listener.serve(Toy(Arc::new(answer)), work.clone())));
        Self { addr, work }
    }

    /// A listener that answers `{"ok":true}`.
    fn fine(options: Options) -> Self {
        Self::start(options, |_| handled(Answer::message(StatusCode::OK, "{\"ok\":true}")))
    }

    /// A listener whose answers are fed from the other end of the returned channel: one sender per request.
    fn fed(options: Options) -> (Self, mpsc::UnboundedReceiver<mpsc::Sender<Step>>) {
        let (calls, called) = mpsc::unbounded_channel();
        let gate = Self::start(options, move |_| {
            let (steps, outgoing) = mpsc::channel(8);
            calls.send(steps).unwrap();
            handled(Outgoing::Later(outgoing.into()))
        });
        (gate, called)
    }

    async fn connect(&self) -> Client {
        Client { stream: TcpStream::connect(self.addr).await.unwrap(), seen: String::new() }
    }

    /// Sends `request` and reads until the connection closes.
    async fn ask(&self, request: &str) -> String {
        let mut client = self.connect().await;
        client.send(request).await;
        client.rest().await
    }
}

/// A client that shows every byte.
struct Client {
    stream: TcpStream,
    seen: String,
}

impl Client {
    async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads until `text` has been seen; returns everything up to its end and forgets it.
    async fn until(&mut self, text: &str) -> String {
        loop {
            if let Some(at) = self.seen.find(text) {
                let rest = self.seen.split_off(at + text.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            assert!(self.read().await, "closed before {text:?}: {:?}", self.seen);
        }
    }

    /// Everything until the connection closes, however it closes.
    async fn rest(mut self) -> String {
        while self.read().await {}
        self.seen
    }

    async fn read(&mut self) -> bool {
        let mut chunk = [0; 4096];
        let read = tokio::time::timeout(PATIENCE, self.stream.read(&mut chunk)).await.expect("bytes in time");
        let read = read.unwrap_or(0);
        self.seen.push_str(std::str::from_utf8(&chunk[..read]).unwrap());
        read > 0
    }
}

const BOTH: &str = "application/json, text/event-stream";

/// A complete request on a connection that closes after it. `headers` are whole lines.
fn post(accept: &str, headers: &str) -> String {
    format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\nConnection: close\r\nContent-Length: 2\r\n{headers}\r\n{{}}"
    )
}

/// `POST` with both forms accepted, on a connection that stays.
const STAYING: &str = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: application/json, text/event-stream\r\n\
                       Content-Length: 2\r\n\r\n{}";

#[track_caller]
fn assert_status(answer: &str, status: u16) {
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{status} expected: {answer}");
}

/// The header lines of an answer, lower case.
fn head(answer: &str) -> String {
    answer.split("\r\n\r\n").next().unwrap().to_lowercase()
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}
