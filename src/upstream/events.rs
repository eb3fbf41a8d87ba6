//! An event stream read to its end, as it is.
//!
//! A session's listening stream is of this kind: nobody waits for an answer on it, so nothing is resumed here.

use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt;

use super::{Body, Client, Decoder, Error, Kind, Outbound};
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
pub async fn events(client: &Client, request: impl Into<Outbound>, limit: usize) -> Result<Response<Opened>, Error> {
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
#[cfg(test)]
mod tests {
    use http::Request;
    use http::StatusCode;

    use super::*;
    use crate::upstream::testing::{Reply, Upstream};

    fn get(upstream: &Upstream) -> Request<Bytes> {
        Request::get(upstream.uri()).body(Bytes::new()).unwrap()
    }

    #[tokio::test]
    async fn a_listening_stream_gives_its_events_and_ends() {
        let upstream = Upstream::new(vec![Reply::events("data: 1\n\nid: 2\n\n")]).await;
        let response = events(&upstream.client(), get(&upstream), 100).await.unwrap();
        let Opened::Events(mut stream) = response.into_body() else { panic!("events") };
        assert_eq!(stream.next().await.unwrap().unwrap().data.as_deref(), Some(&b"1"[..]));
        assert_eq!(stream.next().await.unwrap().unwrap().id.as_deref(), Some("2"));
        assert_eq!(stream.next().await, Ok(None));
        assert!(upstream.seen()[0].starts_with("GET /mcp") && !upstream.seen()[0].contains("content-length"));
    }

    #[tokio::test]
    async fn a_stream_that_breaks_says_so_after_its_last_event() {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        let upstream = Upstream::new(vec![Reply::close(format!("{head}b\r\ndata: [1]\n\n\r\n9\r\nda"))]).await;
        let response = events(&upstream.client(), get(&upstream), 100).await.unwrap();
        let Opened::Events(mut stream) = response.into_body() else { panic!("events") };
        assert_eq!(stream.next().await.unwrap().unwrap().data.as_deref(), Some(&b"[1]"[..]));
        assert!(matches!(stream.next().await, Err(Error::Broken(_))));
    }

    #[tokio::test]
    async fn a_refusal_is_returned_as_it_is() {
        let upstream = Upstream::new(vec![Reply::sized("405 Method Not Allowed", "allow: POST\r\n", b"no")]).await;
        let response = events(&upstream.client(), get(&upstream), 100).await.unwrap();
        assert_eq!(
            (response.status(), &response.headers()["allow"]),
            (StatusCode::METHOD_NOT_ALLOWED, &"POST".parse().unwrap())
        );
        let Opened::Plain(body) = response.into_body() else { panic!("a plain body") };
        assert_eq!(body.collect().await.unwrap().to_bytes(), "no");
    }
}
