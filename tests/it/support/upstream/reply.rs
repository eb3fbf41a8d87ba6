//! One answer on its way out: a head, then a body in as many pieces as the script wants.
//!
//! The script runs apart from the connection, as the handlers of real servers do, so that a client that leaves is
//! noticed and written down instead of ending the script.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use http_body_util::StreamBody;
use hyper::body::Frame;
use socket2::{SockRef, Socket};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::record::Log;

type Chunks = mpsc::UnboundedReceiver<Bytes>;

/// The TCP connection an answer goes out on.
#[derive(Debug)]
pub struct Line {
    end: CancellationToken,
    socket: Mutex<Option<Socket>>,
}

impl Line {
    pub(super) fn new(tcp: &TcpStream, end: CancellationToken) -> Self {
        let socket = SockRef::from(tcp).try_clone().expect("a socket can be duplicated");
        Self { end, socket: Mutex::new(Some(socket)) }
    }

    /// Closes the connection; with `linger` zero the peer sees a reset.
    pub(super) fn close(&self, linger: Option<Duration>) {
        if let (Some(socket), true) = (self.socket.lock().unwrap().take(), linger.is_some()) {
            socket.set_linger(linger).expect("linger can be set");
        }
        self.end.cancel();
    }
}

/// Notices when the peer leaves before the answer is complete.
pub(super) struct Presence {
    over: Arc<AtomicBool>,
    gone: watch::Sender<bool>,
    log: Arc<Log>,
    n: usize,
}

impl Drop for Presence {
    fn drop(&mut self) {
        if !self.over.load(Ordering::SeqCst) {
            self.gone.send_replace(true);
            self.log.disconnected(self.n);
        }
    }
}

/// The body: ends when the script lets go of its side.
pub(super) struct Outflow {
    chunks: Chunks,
    presence: Presence,
}

impl Stream for Outflow {
    type Item = io::Result<Frame<Bytes>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let chunk = std::task::ready!(self.chunks.poll_recv(cx));
        if chunk.is_none() {
            self.presence.over.store(true, Ordering::SeqCst);
        }
        Poll::Ready(chunk.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// What the connection waits for.
pub(super) struct Awaited {
    head: oneshot::Receiver<Response<Chunks>>,
    presence: Presence,
}

impl Awaited {
    /// The response, once the script has sent its head; an error closes the connection without one.
    pub(super) async fn response(self) -> io::Result<Response<StreamBody<Outflow>>> {
        let Self { head, presence } = self;
        match head.await {
            Ok(response) => Ok(response.map(|chunks| StreamBody::new(Outflow { chunks, presence }))),
            Err(_) => {
                presence.over.store(true, Ordering::SeqCst);
                Err(io::Error::other("the script ended without a head"))
            }
        }
    }
}

/// The script's side.
pub struct Reply {
    head: Option<oneshot::Sender<Response<Chunks>>>,
    body: Option<mpsc::UnboundedSender<Bytes>>,
    headers: HeaderMap,
    over: Arc<AtomicBool>,
    gone: watch::Receiver<bool>,
    line: Arc<Line>,
}

impl Reply {
    pub(super) fn pair(log: Arc<Log>, n: usize, line: Arc<Line>, headers: HeaderMap) -> (Self, Awaited) {
        let (sender, head) = oneshot::channel();
        let (gone, seen) = watch::channel(false);
        let over = Arc::new(AtomicBool::new(false));
        let presence = Presence { over: over.clone(), gone, log, n };
        let reply = Self { head: Some(sender), body: None, headers, over, gone: seen, line };
        (reply, Awaited { head, presence })
    }

    /// Adds a header to the head that has not been sent yet.
    pub fn header(&mut self, name: &str, value: &str) {
        let name = HeaderName::try_from(name).expect("a header name");
        self.headers.append(name, HeaderValue::try_from(value).expect("a header value"));
    }

    /// Whether the head is out.
    pub fn begun(&self) -> bool {
        self.head.is_none()
    }

    /// Sends the head; more of the body may follow.
    pub fn open(&mut self, status: u16) {
        let Some(head) = self.head.take() else { panic!("the head was sent before") };
        let (sender, chunks) = mpsc::unbounded_channel();
        self.body = Some(sender);
        let mut response = Response::new(chunks);
        *response.status_mut() = status.try_into().expect("a status");
        *response.headers_mut() = std::mem::take(&mut self.headers);
        drop(head.send(response)); // the peer may have left: that is written down elsewhere
    }

    /// Sends a piece of the body.
    pub fn write(&mut self, bytes: impl Into<Bytes>) {
        let body = self.body.as_ref().expect("the head was sent and the body is open");
        drop(body.send(bytes.into()));
    }

    /// Ends the body.
    pub fn finish(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        self.body = None;
    }

    /// A whole answer.
    pub fn whole(&mut self, status: u16, headers: &[(&str, &str)], body: impl Into<Bytes>) {
        let body = body.into();
        for (name, value) in headers {
            self.header(name, value);
        }
        self.header("content-length", &body.len().to_string());
        self.open(status);
        if !body.is_empty() {
            self.write(body);
        }
        self.finish();
    }

    /// Closes the connection once what was written so far had time to leave.
    pub async fn cut(&mut self, linger: Option<Duration>) {
        tokio::time::sleep(super::super::ms(20)).await;
        self.over.store(true, Ordering::SeqCst);
        self.line.close(linger);
        tokio::time::sleep(super::super::ms(20)).await; // a body that ended here would end in good order
    }

    /// Resolves when the peer has left.
    pub async fn gone(&mut self) {
        if self.gone.wait_for(|gone| *gone).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
