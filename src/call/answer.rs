//! What goes back to the client, before anybody has decided how it is framed.
//!
//! The gateway says *what* (steps), the server says *how* (JSON or SSE, comments, status): one place per decision.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body::{Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;

use crate::jsonrpc::Rope;

use super::outlet::Steps;

/// Why a passed-through body broke off.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// A body that streams through untouched.
pub type PassBody = UnsyncBoxBody<Bytes, BodyError>;

/// One server-sent event as it came from the upstream, without its framing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// `id:` field, where there was one.
    pub id: Option<String>,
    /// `event:` field, where there was one.
    pub event: Option<String>,
    /// All `data:` lines, joined by LF; `None` when the event had none.
    pub data: Option<Bytes>,
    /// `retry:` field in milliseconds.
    pub retry: Option<u64>,
}

/// Messages up to this many bytes are copied together: one write is cheaper then.
const COPIED: usize = 64 * 1024;

/// One step of answering a request. Small, since room for several is set aside with every request.
#[derive(Debug)]
pub enum Step {
    /// The upstream opened an event stream: its end-to-end headers. At most once, before any event.
    Open(Box<HeaderMap>),
    /// Nothing yet, and it may take long: the client's stream begins now. At most once, first of all.
    Hold,
    /// Something to relay ahead of the answer.
    Event(Box<Event>),
    /// The answer; always the last step. With the id it has where it ends a stream that can be taken up again.
    Done(Box<Answer>, Option<Box<str>>),
}

/// The end of a request: status, end-to-end headers and body.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status; the server keeps it unless the head has already left.
    pub status: StatusCode,
    /// End-to-end headers of the upstream or of taskgate, without content type and length where `body` is a message.
    pub headers: HeaderMap,
    /// What it says.
    pub body: Body,
}

/// The body of an [`Answer`].
#[derive(Debug)]
pub enum Body {
    /// No body at all, as for 202.
    Empty,
    /// One JSON-RPC message: framed as JSON or as the last event of a stream, as the client accepts.
    Message(Bytes),
    /// Bytes that pass as they come; the headers carry their content type.
    Pass(PassBody),
    /// Bytes that pass as they come, unless the head of an event stream has left: then a message takes their place.
    Foreign(PassBody, Bytes),
    /// The response stream ends without a message (the call was cancelled by its client).
    Silence,
}

/// The answer to one request: there at once, or step by step.
#[derive(Debug)]
pub enum Outgoing {
    /// Complete.
    Now(Answer),
    /// Steps as they come; a channel that closes without [`Step::Done`] is a silent end.
    Later(Steps),
}

impl Step {
    /// An event stream was opened.
    #[must_use]
    pub fn open(headers: HeaderMap) -> Self {
        Self::Open(Box::new(headers))
    }

    /// An event to relay.
    #[must_use]
    pub fn event(event: Event) -> Self {
        Self::Event(Box::new(event))
    }

    /// The answer.
    #[must_use]
    pub fn done(answer: Answer) -> Self {
        Self::Done(Box::new(answer), None)
    }
}

impl Answer {
    /// A JSON-RPC message with a status.
    #[must_use]
    pub fn message(status: StatusCode, message: impl Into<Bytes>) -> Self {
        Self { status, headers: HeaderMap::new(), body: Body::Message(message.into()) }
    }

    /// A JSON-RPC message in pieces; a large one goes out piece by piece, without being copied together.
    #[must_use]
    pub fn rope(message: Rope) -> Self {
        if message.len() <= COPIED {
            return Self::message(StatusCode::OK, message.join());
        }
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let body = PassBody::new(Pieces(message.into_pieces().into()));
        Self { status: StatusCode::OK, headers, body: Body::Pass(body) }
    }

    /// A status alone.
    #[must_use]
    pub fn empty(status: StatusCode) -> Self {
        Self { status, headers: HeaderMap::new(), body: Body::Empty }
    }
}

impl From<Answer> for Outgoing {
    fn from(answer: Answer) -> Self {
        Self::Now(answer)
    }
}

/// A body of pieces that are there already.
struct Pieces(VecDeque<Bytes>);

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|piece| piece.len() as u64).sum())
    }
}
