//! The listener and everything that speaks HTTP to clients.
//!
//! Whatever stands behind it sees a checked request with its whole body ([`Inbound`]) and says what to answer
//! ([`Handled`]); connections, guards, status codes and the choice between JSON and SSE stay in this room.

mod accept;
mod access;
mod body;
mod cors;
mod endpoint;
mod forwarded;
mod link;
mod listener;
mod options;
mod origin;
mod refusal;
mod reply;
mod sse;
mod stack;

use std::future::Future;
use std::net::IpAddr;

use bytes::Bytes;
use http::{HeaderMap, Method, Uri};
use tokio::time::Instant;

use crate::call::Outgoing;

pub use listener::Listener;
pub use options::Options;

/// A request that passed the guards, with its whole body.
#[derive(Debug)]
pub struct Inbound {
    /// `GET`, `POST` or `DELETE`.
    pub method: Method,
    /// Request target as the client sent it.
    pub uri: Uri,
    /// The client's headers; `X-Forwarded-{For,Proto,Host}` are already what an upstream should see.
    pub headers: HeaderMap,
    /// The client's address, trusted proxies taken off.
    pub peer: IpAddr,
    /// The whole body, at most `max_body` bytes.
    pub body: Bytes,
    /// When the last byte of the body had come.
    pub received: Instant,
    /// Whether its client reads event streams.
    pub takes_events: bool,
}

impl Inbound {
    /// The path as [`Handler::accepts`] saw it: without a trailing slash.
    #[must_use]
    pub fn path(&self) -> &str {
        endpoint::trimmed(self.uri.path())
    }
}

/// What the handler made of a request.
#[derive(Debug)]
pub struct Handled {
    /// What goes back.
    pub outgoing: Outgoing,
    /// Whether waiting may turn into an event stream.
    pub upgrade: Upgrade,
    /// What the request was, for the access line.
    pub labels: Labels,
}

/// Whether a waiting request may become an event stream at `keepalive`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upgrade {
    /// If the client accepts SSE.
    Allowed,
    /// Never: the headers of the answer matter (`initialize`).
    Never,
}

/// What a request was, from a bounded set of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Labels {
    /// JSON-RPC method, `"other"` for one that is not known.
    pub method: &'static str,
    /// Dialect that answered, `"none"` where none did.
    pub dialect: &'static str,
}

impl Labels {
    /// Nothing is known about the request.
    pub const UNKNOWN: Self = Self { method: "none", dialect: "none" };
}

/// Whoever answers requests.
pub trait Handler: Clone + Send + Sync + 'static {
    /// Whether there is anything at `path` (trailing slash taken off). Asked before the body is read: cheap.
    fn accepts(&self, path: &str) -> bool;

    /// Answers one request.
    ///
    /// The future, and later the receiver in [`Outgoing::Later`], are dropped when the client leaves: work that must
    /// go on belongs in a task of its own. No keepalive is sent before this future is done, so it should return
    /// [`Outgoing::Later`] rather than wait itself. On a stream that is already open, a [`crate::call::Body::Pass`]
    /// answer becomes one event if it is JSON of a success and is left out otherwise: what is not JSON comes as
    /// [`crate::call::Body::Foreign`], with the message that takes its place, since only the handler knows the id.
    fn handle(&self, inbound: Inbound) -> impl Future<Output = Handled> + Send;
}

#[cfg(test)]
mod tests;
