//! The one response body type: an enum, so that the plain path allocates nothing.
//!
//! It also carries what has to live exactly as long as the response: the connection's in-flight mark and, for
//! streams, the access line. Dropping it drops whatever feeds it, which is how a handler learns that its client left.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::access::Line;
use super::link::Busy;
use super::sse::Events;
use crate::call::{BodyError, PassBody};

/// Body of every response of the listener.
#[derive(Debug)]
pub(super) struct ReplyBody {
    kind: Kind,
    busy: Option<Busy>,
    line: Option<Box<Line>>,
}

#[derive(Debug)]
enum Kind {
    Empty,
    Full(Bytes),
    Pass(PassBody),
    Events(Box<Events>),
}

impl ReplyBody {
    fn new(kind: Kind) -> Self {
        Self { kind, busy: None, line: None }
    }

    pub(super) fn empty() -> Self {
        Self::new(Kind::Empty)
    }

    pub(super) fn full(bytes: Bytes) -> Self {
        Self::new(Kind::Full(bytes))
    }

    pub(super) fn pass(body: PassBody) -> Self {
        Self::new(Kind::Pass(body))
    }

    pub(super) fn events(events: Events) -> Self {
        Self::new(Kind::Events(Box::new(events)))
    }

    /// Ties the response's companions to it: the line of a stream stays until its end, any other is written now.
    pub(super) fn attach(&mut self, busy: Busy, line: Option<Box<Line>>) {
        self.busy = Some(busy);
        if let Some(mut line) = line {
            match &self.kind {
                Kind::Empty | Kind::Pass(_) => {}
                Kind::Full(bytes) => line.count(bytes.len()),
                Kind::Events(_) => self.line = Some(line),
            }
        }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        match &mut this.kind {
            Kind::Empty => Poll::Ready(None),
            Kind::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                this.kind = Kind::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Kind::Pass(body) => Pin::new(body).poll_frame(cx),
            Kind::Events(events) => {
                let next = ready!(events.poll_next(cx));
                if let (Some(line), Some(Ok(bytes))) = (&mut this.line, &next) {
                    line.count(bytes.len());
                }
                Poll::Ready(next.map(|chunk| chunk.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Empty => true,
            Kind::Full(_) | Kind::Events(_) => false,
            Kind::Pass(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Empty => SizeHint::with_exact(0),
            Kind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Pass(body) => body.size_hint(),
            Kind::Events(_) => SizeHint::default(),
        }
    }
}
