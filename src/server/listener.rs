//! Accepts connections and keeps each one honest: timeouts, limits, drain.
//!
//! An accept loop of our own, because hyper's version sniffing waits for the first byte without any limit.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::link::{Signal, signal};
use super::stack::Stack;
use super::{Handler, Options};
use crate::shutdown::Work;

const BACKLOG: u32 = 1024;
/// Request head, and how much of a body is read at a time.
const READ_BUFFER: usize = 64 * 1024;
const H2_HEADER_LIST: u32 = 64 * 1024;
const H2_STREAMS: u32 = 256;
/// How long accepting rests when the process is out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// What a connection gets to finish what it is writing when everything ends.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A bound socket, not serving yet.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    addr: SocketAddr,
    options: Options,
}

impl Listener {
    /// Binds to `options.listen`. Needs a runtime around it.
    ///
    /// # Errors
    ///
    /// Whatever the system says: the address is taken, not ours, or needs privileges.
    pub fn bind(options: &Options) -> io::Result<Self> {
        let socket = if options.listen.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(options.listen)?;
        let socket = socket.listen(BACKLOG)?;
        Ok(Self { addr: socket.local_addr()?, socket, options: options.clone() })
    }

    /// The address it is bound to, with the real port.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Serves until `work` is severed, then lets connections finish their sentence and closes them.
    ///
    /// While draining, connections and requests are still taken, since polls and cancels must be: refusing new work
    /// is the handler's part. Responses then say `Connection: close`, so that clients move on by themselves.
    /// Cancel safe: dropping it stops accepting, connections go on.
    pub async fn serve<H: Handler>(self, handler: H, work: Work) {
        let stack = Arc::new(Stack::new(handler, &self.options));
        let connections = Arc::new(Connections::new(stack, self.options, work.clone()));
        loop {
            let accepted = tokio::select! {
                biased;
                () = work.severed() => return,
                accepted = self.socket.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => drop(work.spawn(Arc::clone(&connections).serve(stream, peer))),
                Err(error) if is_about_one_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connections, resting");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

fn is_about_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// How long to wait for the rest of what may be a preface.
const PREFACE_PAUSE: Duration = Duration::from_millis(5);

/// Lets HTTP/2 spawn its streams where they are counted.
#[derive(Clone)]
struct Spawner(Work);

impl<F> Executor<F> for Spawner
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        drop(self.0.spawn(future));
    }
}

struct Connections<H> {
    http1: auto::Builder<Spawner>,
    http2: auto::Builder<Spawner>,
    stack: Arc<Stack<H>>,
    options: Options,
    work: Work,
}

impl<H: Handler> Connections<H> {
    fn new(stack: Arc<Stack<H>>, options: Options, work: Work) -> Self {
        let mut http1 = auto::Builder::new(Spawner(work.clone())).http1_only();
        // hyper's header timeout also closes idle connections and allocates per request; see `link` for ours.
        http1.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(READ_BUFFER);
        let mut http2 = auto::Builder::new(Spawner(work.clone())).http2_only();
        http2
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(options.keepalive)
            .keep_alive_timeout(options.keepalive)
            .max_concurrent_streams(H2_STREAMS)
            .max_header_list_size(H2_HEADER_LIST);
        Self { http1, http2, stack, options, work }
    }

    async fn serve(self: Arc<Self>, stream: TcpStream, peer: SocketAddr) {
        if let Err(error) = tune(&stream, self.options.keepalive) {
            tracing::debug!(%error, "cannot set socket options");
        }
        let link = Arc::new(self.stack.link(peer.ip()));
        if self.work.is_draining() {
            link.drain();
        }
        let service = {
            let (stack, link) = (Arc::clone(&self.stack), Arc::clone(&link));
            service_fn(move |request| Arc::clone(&stack).call(request, Arc::clone(&link)))
        };
        let looked = tokio::select! {
            looked = tokio::time::timeout(self.options.header_timeout, speaks_http2(&stream)) => looked,
            () = self.work.severed() => return,
        };
        let http = match looked {
            Ok(Ok(true)) => &self.http2,
            Ok(Ok(false)) => &self.http1,
            Ok(Err(_)) | Err(_) => return,
        };
        let connection = http.serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        // Polled only when it was woken itself, not with every read and write.
        let mut signals = FuturesUnordered::new();
        signals.push(signal(Arc::clone(&link), self.work.clone(), self.options.header_timeout));
        loop {
            tokio::select! {
                biased;
                ended = connection.as_mut() => return log_end(ended),
                Some(told) = signals.next() => match told {
                    Signal::Late => return,
                    Signal::Idle | Signal::Sever => break,
                    Signal::Drain => {
                        if link.is_multiplexed() {
                            connection.as_mut().graceful_shutdown();
                        }
                        signals.push(signal(Arc::clone(&link), self.work.clone(), self.options.header_timeout));
                    }
                },
            }
        }
        connection.as_mut().graceful_shutdown();
        if let Ok(ended) = tokio::time::timeout(LAST_WORDS, connection).await {
            log_end(ended);
        }
    }
}

/// Whether a client begins with the preface of HTTP/2 (RFC 9113, section 3.4). The bytes stay where they are: hyper's
/// own look takes them out, which costs each connection a larger buffer.
async fn speaks_http2(stream: &TcpStream) -> io::Result<bool> {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0";
    let mut seen = [0; PREFACE.len()];
    loop {
        let count = stream.peek(&mut seen).await?;
        if count == 0 || seen[..count] != PREFACE[..count] {
            return Ok(false);
        }
        if count == PREFACE.len() {
            return Ok(true);
        }
        // A peek is ready as long as anything is there: wait a little for the rest.
        tokio::time::sleep(PREFACE_PAUSE).await;
    }
}

fn log_end(ended: Result<(), Box<dyn std::error::Error + Send + Sync>>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended early");
    }
}

/// Small writes leave at once; a peer that is gone or has stopped reading is noticed within two keepalives.
fn tune(stream: &TcpStream, keepalive: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let probe = keepalive.max(Duration::from_secs(1));
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(probe).with_interval(probe))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(keepalive * 2))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_out_of_descriptors_is_not_about_one_connection() {
        const EMFILE: i32 = 24;
        assert!(!is_about_one_connection(&io::Error::from_raw_os_error(EMFILE)));
        assert!(is_about_one_connection(&io::ErrorKind::ConnectionAborted.into()));
    }
}
