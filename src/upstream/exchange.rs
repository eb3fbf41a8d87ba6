//! One call in flight, whose answer is JSON or an event stream.
//!
//! It can move house: whoever waits for it may stop waiting at any moment and hand it on, and nothing that came is lost.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, StatusCode};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt, Empty};

use super::resume::Resumed;
use super::{Body, Client, Error, EventStream, Resume, events};
use crate::call::{BodyError, Event, PassBody};

/// What the answer is, by its content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `application/json` or `application/*+json`.
    Json,
    /// `text/event-stream`.
    Events,
    /// Anything else, and no content type.
    Other,
}

/// One step of an answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrived {
    /// An event, in order; one without data only moves the cursor.
    Event(Event),
    /// The complete body of an answer that is no event stream. Nothing comes after it.
    Body(Bytes),
    /// More than [`Limits::inline`] bytes have come and the body goes on: ask again to go on collecting, or stream it
    /// with [`Exchange::into_body`]. Said once.
    Large,
}

/// Sizes in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// From how much of a body on the answer is [`Arrived::Large`].
    pub inline: usize,
    /// How much is collected of a body, or of one event, at most.
    pub max: usize,
}

/// One request and its answer as it comes. Dropping it closes the connection if the answer was not complete.
pub struct Exchange {
    status: StatusCode,
    headers: HeaderMap,
    kind: Kind,
    source: Source,
}

enum Source {
    Whole(Whole),
    Events(Box<Resumed>),
}

impl Exchange {
    /// Sends `request` and waits for the head of the answer.
    ///
    /// With `resume`, a successful event stream that ends is taken up again when the next event is asked for: stop
    /// asking once the answer was among them. Not cancel safe, as [`Client::send`].
    ///
    /// # Errors
    /// As [`Client::send`].
    pub async fn open(
        client: &Client,
        request: Request<Bytes>,
        limits: Limits,
        resume: Option<Resume>,
    ) -> Result<Self, Error> {
        let (head, body) = client.send(request).await?.into_parts();
        let kind = Kind::of(&head.headers);
        let source = match kind {
            Kind::Events => {
                let stream = EventStream::new(body, limits.max);
                let resume = resume.filter(|_| head.status.is_success());
                Source::Events(Box::new(Resumed::new(client.clone(), stream, limits.max, resume)))
            }
            Kind::Json | Kind::Other => Source::Whole(Whole::new(body, limits)),
        };
        Ok(Self { status: head.status, headers: head.headers, kind, source })
    }

    /// The answer's status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The answer's headers, as they came, save those of an encoding that was undone.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// What the answer is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Waits for the next step. Cancel safe.
    ///
    /// # Errors
    /// [`Error::Cut`]: the event stream ended and is not resumed. [`Error::Broken`]: a body broke off.
    /// [`Error::TooLarge`], [`Error::Protocol`].
    pub async fn next(&mut self) -> Result<Arrived, Error> {
        match &mut self.source {
            Source::Whole(whole) => whole.next().await,
            Source::Events(stream) => stream.next().await.map(Arrived::Event),
        }
    }

    /// The body as bytes: what was collected so far, then the rest as it comes. Of an event stream, only what was
    /// not yet read: ask before the first [`next`](Self::next).
    #[must_use]
    pub fn into_body(self) -> PassBody {
        match self.source {
            Source::Whole(whole) => whole.into_body(),
            Source::Events(stream) => match stream.into_body() {
                Some(body) => PassBody::new(body),
                None => PassBody::new(Empty::new().map_err(|never| match never {})),
            },
        }
    }

    /// Reads on for up to a second after the answer was had, so that the connection can be used again.
    pub async fn drain(self) {
        let body = match self.source {
            Source::Whole(whole) => Some(whole.body),
            Source::Events(stream) => stream.into_body(),
        };
        if let Some(body) = body {
            events::drain(body).await;
        }
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").field("status", &self.status).field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// A body that is collected.
struct Whole {
    body: Body,
    limits: Limits,
    chunks: VecDeque<Bytes>,
    size: usize,
    large: bool,
}

impl Whole {
    fn new(body: Body, limits: Limits) -> Self {
        Self { body, limits, chunks: VecDeque::new(), size: 0, large: false }
    }

    async fn next(&mut self) -> Result<Arrived, Error> {
        while !self.body.is_end_stream() {
            if self.size > self.limits.max {
                return Err(Error::TooLarge { limit: self.limits.max });
            }
            if self.size > self.limits.inline && !self.large {
                self.large = true;
                return Ok(Arrived::Large);
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self.add(frame),
                Some(Err(error)) => return Err(Error::broken(&*error)),
                None => break,
            }
        }
        if self.size > self.limits.max {
            return Err(Error::TooLarge { limit: self.limits.max });
        }
        Ok(Arrived::Body(self.take()))
    }

    fn add(&mut self, frame: Frame<Bytes>) {
        if let Ok(data) = frame.into_data() {
            self.size += data.len();
            self.chunks.push_back(data);
        }
    }

    /// One chunk is handed on as it is; several are copied together.
    fn take(&mut self) -> Bytes {
        if self.chunks.len() <= 1 {
            return self.chunks.pop_front().unwrap_or_default();
        }
        let mut whole = BytesMut::with_capacity(self.size);
        for chunk in self.chunks.drain(..) {
            whole.extend_from_slice(&chunk);
        }
        whole.freeze()
    }

    fn into_body(self) -> PassBody {
        if self.chunks.is_empty() {
            return PassBody::new(self.body);
        }
        PassBody::new(Rest { chunks: self.chunks, body: self.body })
    }
}

/// Chunks that were collected, then the body they came from.
struct Rest {
    chunks: VecDeque<Bytes>,
    body: Body,
}

impl http_body::Body for Rest {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(chunk) = self.chunks.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(chunk))));
        }
        Poll::Ready(ready!(Pin::new(&mut self.body).poll_frame(cx)))
    }

    fn is_end_stream(&self) -> bool {
        self.chunks.is_empty() && self.body.is_end_stream()
    }
}
