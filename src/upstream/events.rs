//! An event stream read to its end, as it is.
//!
//! A session's listening stream is of this kind: nobody waits for an answer on it, so nothing is resumed here.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;

use super::{Body, Client, Decoder, Error, Kind};
use crate::call::Event;

/// How long, and how much, a stream that is done with is read on.
const DRAIN_TIME: Duration = Duration::from_secs(1);
const DRAIN_SIZE: usize = 64 * 1024;

/// Events of one response body.
pub struct EventStream {
    body: Body,
    decoder: Decoder,
    ended: bool,
    broken: Option<Error>,
}

/// The body of an answer that was hoped to be an event stream.
pub enum Opened {
    /// It is.
    Events(EventStream),
    /// It is something else: an error page, say.
    Plain(Body),
}

/// Sends `request` and decodes what comes if it is an event stream; `limit` is the size of one event in bytes.
///
/// # Errors
/// As [`Client::send`].
pub async fn events(client: &Client, request: Request<Bytes>, limit: usize) -> Result<Response<Opened>, Error> {
    let (head, body) = client.send(request).await?.into_parts();
    let opened = match Kind::of(&head.headers) {
        Kind::Events => Opened::Events(EventStream::new(body, limit)),
        Kind::Json | Kind::Other => Opened::Plain(body),
    };
    Ok(Response::from_parts(head, opened))
}

impl EventStream {
    pub(super) fn new(body: Body, limit: usize) -> Self {
        Self { body, decoder: Decoder::new(limit), ended: false, broken: None }
    }

    /// The next event, `None` when the stream ended. Cancel safe.
    ///
    /// # Errors
    /// [`Error::Broken`] if the connection broke; [`Error::TooLarge`] and [`Error::Protocol`] as the decoder finds.
    pub async fn next(&mut self) -> Result<Option<Event>, Error> {
        loop {
            if let Some(event) = self.decoder.next()? {
                return Ok(Some(event));
            }
            if self.ended {
                return self.broken.take().map_or(Ok(None), Err);
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.decoder.push(data);
                    }
                }
                Some(Err(error)) => self.end(Some(Error::broken(&*error))),
                None => self.end(None),
            }
        }
    }

    fn end(&mut self, broken: Option<Error>) {
        self.ended = true;
        self.broken = broken;
        self.decoder.finish();
    }

    pub(super) fn into_body(self) -> Body {
        self.body
    }
}

/// Reads on for a moment, so that a server which is about to end its answer does not cost a new connection.
pub(super) async fn drain(mut body: Body) {
    let read = async {
        let mut size = 0;
        while let Some(Ok(frame)) = body.frame().await {
            size += frame.data_ref().map_or(0, Bytes::len);
            if size > DRAIN_SIZE {
                break;
            }
        }
    };
    // Neither a slow end nor a broken one matters any more.
    let _ = tokio::time::timeout(DRAIN_TIME, read).await;
}

/// Whether the headers announce JSON, events, or something else.
impl Kind {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let value = headers.get(http::header::CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
        let essence = value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
        match essence.as_slice() {
            b"application/json" => Self::Json,
            b"text/event-stream" => Self::Events,
            other if other.starts_with(b"application/") && other.ends_with(b"+json") => Self::Json,
            _ => Self::Other,
        }
    }
}
