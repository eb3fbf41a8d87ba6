//! A strict reader of event streams: comments are events too, and framing that taskgate never writes is refused.
//!
//! It is no general decoder on purpose: LF only, one data line per event.

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;
use tokio::time::Instant;

use super::super::{parsed, soon};
use super::http::Connection;

/// One event, or one comment.
#[derive(Clone, Debug)]
pub struct SseEvent {
    /// `id:`.
    pub id: Option<String>,
    /// `event:`.
    pub event: Option<String>,
    /// `data:`.
    pub data: Option<String>,
    /// `retry:`.
    pub retry: Option<String>,
    /// The text of a comment.
    pub comment: Option<String>,
    /// When it was complete.
    pub at: Instant,
}

impl SseEvent {
    /// The data as JSON, `Null` if it is none.
    pub fn json(&self) -> Value {
        self.data.as_deref().map(parsed).unwrap_or_default()
    }
}

/// A live event stream; the connection closes when it is dropped.
#[derive(Debug)]
pub struct Events {
    body: Incoming,
    buffer: Vec<u8>,
    _connection: Connection,
}

impl Events {
    pub(super) fn new(body: Incoming, connection: Connection) -> Self {
        Self { body, buffer: Vec::new(), _connection: connection }
    }

    /// The next event or comment; `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.buffer.drain(..end + 2).collect();
                return Some(parse(&block[..end]));
            }
            let chunk = soon("an event", self.chunk()).await;
            let Some(chunk) = chunk else {
                assert!(self.buffer.is_empty(), "the stream broke off in an event: {:?}", self.buffer);
                return None;
            };
            self.buffer.extend_from_slice(&chunk);
        }
    }

    /// The next event that says something.
    pub async fn message(&mut self) -> Option<Value> {
        loop {
            let event = self.next().await?;
            if event.data.as_deref().is_some_and(|data| !data.is_empty()) {
                return Some(event.json());
            }
        }
    }

    async fn chunk(&mut self) -> Option<Bytes> {
        loop {
            match self.body.frame().await? {
                Ok(frame) => {
                    if let Ok(data) = frame.into_data() {
                        return Some(data);
                    }
                }
                Err(error) => panic!("the stream broke: {error}"),
            }
        }
    }
}

fn parse(block: &[u8]) -> SseEvent {
    let text = std::str::from_utf8(block).expect("event streams are UTF-8");
    assert!(!text.contains('\r'), "a carriage return in {text:?}");
    let mut event = SseEvent { id: None, event: None, data: None, retry: None, comment: None, at: Instant::now() };
    for line in text.split('\n').filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        let field = match name {
            "" => &mut event.comment,
            "id" => &mut event.id,
            "event" => &mut event.event,
            "data" => &mut event.data,
            "retry" => &mut event.retry,
            _ => panic!("an unknown field in {text:?}"),
        };
        assert!(field.is_none(), "{name} twice in {text:?}");
        *field = Some(value.to_owned());
    }
    event
}
