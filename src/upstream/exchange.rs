//! One call in flight, whose answer is JSON or an event stream.
//!
//! It can move house: whoever waits for it may stop waiting at any moment and hand it on, and nothing that came is lost.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::{BodyExt, Empty};

use super::resume::Resumed;
use super::{Body, Client, Error, EventStream, Outbound, Resume, events};
use crate::call::{BodyError, Event, PassBody};
use crate::mcp::header::SESSION_ID;

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

impl Kind {
    /// Reads the content type; its parameters do not matter.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let value = headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
        let essence = value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
        match essence.as_slice() {
            b"application/json" => Self::Json,
            b"text/event-stream" => Self::Events,
            other if other.starts_with(b"application/") && other.ends_with(b"+json") => Self::Json,
            _ => Self::Other,
        }
    }
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
        request: impl Into<Outbound>,
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

    /// An event stream that another process has read up to the event `cursor`, taken up after that one; `wait` is how
    /// long the upstream wants to be left alone before. Nothing is sent until the first event is asked for.
    #[must_use]
    pub fn resumed(client: &Client, cursor: (&str, Option<Duration>), limits: Limits, resume: Resume) -> Self {
        let stream = Resumed::after(client.clone(), cursor, limits.max, resume);
        let source = Source::Events(Box::new(stream));
        Self { status: StatusCode::OK, headers: HeaderMap::new(), kind: Kind::Events, source }
    }

    /// Where the stream can be taken up: after this event, and after this wait.
    #[must_use]
    pub fn cursor(&self) -> Option<(&str, Option<Duration>)> {
        match &self.source {
            Source::Events(stream) => stream.cursor(),
            Source::Whole(_) => None,
        }
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

    /// The answer's headers, once its body is read.
    #[must_use]
    pub fn into_headers(self) -> HeaderMap {
        self.headers
    }

    /// The same without what its headers say of a session.
    #[must_use]
    pub fn without_session(mut self) -> Self {
        self.headers.remove(SESSION_ID);
        self
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
            if self.size > self.limits.inline && !self.large {
                self.large = true;
                return Ok(Arrived::Large);
            }
            if self.size > self.limits.max {
                return Err(Error::TooLarge { limit: self.limits.max });
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

    fn size_hint(&self) -> SizeHint {
        let collected: u64 = self.chunks.iter().map(|chunk| chunk.len() as u64).sum();
        self.body.size_hint().exact().map_or_else(SizeHint::default, |rest| SizeHint::with_exact(collected + rest))
    }
}

#[cfg(test)]
mod tests {
    use async_compression::tokio::write::{BrotliEncoder, GzipEncoder, ZlibEncoder, ZstdEncoder};
    use futures_util::FutureExt;
    use std::sync::Mutex;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::upstream::testing::{self, Reply, Upstream};

    const JSON: &str = "content-type: application/json; charset=utf-8\r\n";
    const SSE: &str = "content-type: text/event-stream\r\n";
    const LIMITS: Limits = Limits { inline: 64, max: 4096 };

    async fn open(upstream: &Upstream, resume: Option<Resume>) -> Result<Exchange, Error> {
        Exchange::open(&upstream.client(), upstream.post(), LIMITS, resume).await
    }

    /// One exchange with an upstream that has one reply.
    async fn answered(reply: Reply) -> Exchange {
        open(&Upstream::new(vec![reply]).await, None).await.unwrap()
    }

    fn data(text: &str) -> Arrived {
        Arrived::Event(Event { data: Some(Bytes::copy_from_slice(text.as_bytes())), ..Event::default() })
    }

    fn event(id: &str, text: &str) -> Arrived {
        let data = Some(Bytes::copy_from_slice(text.as_bytes()));
        Arrived::Event(Event { id: Some(id.into()), data, ..Event::default() })
    }

    #[test]
    fn the_content_type_tells_the_kind() {
        let kind = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, value.parse().unwrap());
            Kind::of(&headers)
        };
        assert_eq!(kind("application/json"), Kind::Json);
        assert_eq!(kind("Application/JSON ;charset=utf-8"), Kind::Json);
        assert_eq!(kind("application/problem+json"), Kind::Json);
        assert_eq!(kind("text/event-stream;x"), Kind::Events);
        assert_eq!(kind("application/jsonp"), Kind::Other);
        assert_eq!(kind("text/html"), Kind::Other);
        assert_eq!(Kind::of(&HeaderMap::new()), Kind::Other);
    }

    #[tokio::test]
    async fn a_json_answer_comes_whole() {
        let mut exchange = answered(Reply::sized("404 Not Found", JSON, b"{}")).await;
        assert_eq!((exchange.status(), exchange.kind()), (StatusCode::NOT_FOUND, Kind::Json));
        assert_eq!(exchange.headers()["content-length"], "2");
        assert_eq!(exchange.next().await, Ok(Arrived::Body(Bytes::from_static(b"{}"))));

        let mut exchange = answered(Reply::chunked(JSON, &[b"{\"a\"", b":", b"1}"])).await;
        assert_eq!(exchange.next().await, Ok(Arrived::Body(Bytes::from_static(b"{\"a\":1}"))));

        let mut exchange = answered(Reply::keep("HTTP/1.1 204 No Content\r\n\r\n")).await;
        assert_eq!((exchange.kind(), exchange.next().await), (Kind::Other, Ok(Arrived::Body(Bytes::new()))));
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_broken() {
        let reply =
            Reply::close("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{\"a\"");
        let error = answered(reply).await.next().await.unwrap_err();
        assert!(matches!(error, Error::Broken(_)), "{error}");
    }

    #[tokio::test]
    async fn a_large_body_is_announced_and_can_be_streamed() {
        let chunk: &[u8] = &[b'x'; 50];
        let mut exchange = answered(Reply::chunked(JSON, &[chunk; 10]).paced(Duration::from_millis(2))).await;
        assert_eq!(exchange.next().await, Ok(Arrived::Large));
        let body = exchange.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, vec![b'x'; 500]);
    }

    #[tokio::test]
    async fn a_large_body_can_be_collected_up_to_the_limit() {
        let chunk: &[u8] = &[b'x'; 1000];
        let mut exchange = answered(Reply::chunked(JSON, &[chunk; 4]).paced(Duration::from_millis(2))).await;
        assert_eq!(exchange.next().await, Ok(Arrived::Large));
        assert_eq!(exchange.next().await, Ok(Arrived::Body(vec![b'x'; 4000].into())));

        let mut exchange = answered(Reply::chunked(JSON, &[chunk; 5]).paced(Duration::from_millis(2))).await;
        assert_eq!(exchange.next().await, Ok(Arrived::Large));
        assert_eq!(exchange.next().await, Err(Error::TooLarge { limit: 4096 }));

        let mut exchange = answered(Reply::sized("200 OK", JSON, &[b'x'; 5000])).await;
        let mut last = exchange.next().await;
        if last == Ok(Arrived::Large) {
            last = exchange.next().await;
        }
        assert_eq!(last, Err(Error::TooLarge { limit: 4096 }));
    }

    #[tokio::test]
    async fn a_large_event_is_refused() {
        let mut exchange = answered(Reply::events(&format!("data: 1\n\ndata: {}", "x".repeat(5000)))).await;
        assert_eq!(exchange.next().await, Ok(data("1")));
        assert_eq!(exchange.next().await, Err(Error::TooLarge { limit: 4096 }));
    }

    #[tokio::test]
    async fn waiting_can_be_given_up_without_loss() {
        let bytes: Vec<&[u8]> = b"id: 1\r\ndata: {\"a\":\"\xc3\xa9\"}\r\n\r\ndata: [2]\n\n".chunks(1).collect();
        let mut exchange = answered(Reply::chunked(SSE, &bytes).paced(Duration::from_millis(1))).await;
        let mut events = Vec::new();
        while events.len() < 2 {
            if let Ok(event) = tokio::time::timeout(Duration::from_micros(300), exchange.next()).await {
                events.push(event.unwrap());
            }
        }
        assert_eq!(events, [event("1", "{\"a\":\"é\"}"), data("[2]")]);

        let bytes: Vec<&[u8]> = b"{\"a\":1}".chunks(1).collect();
        let mut exchange = answered(Reply::chunked(JSON, &bytes).paced(Duration::from_millis(1))).await;
        let body = loop {
            if let Ok(body) = tokio::time::timeout(Duration::from_micros(300), exchange.next()).await {
                break body;
            }
        };
        assert_eq!(body, Ok(Arrived::Body(Bytes::from_static(b"{\"a\":1}"))));
    }

    /// Two pieces of one compressed stream, the first flushed.
    async fn compressed(encoding: &str, pieces: [&str; 2]) -> [Vec<u8>; 2] {
        macro_rules! with {
            ($encoder:expr) => {{
                let mut encoder = $encoder;
                encoder.write_all(pieces[0].as_bytes()).await.unwrap();
                encoder.flush().await.unwrap();
                let first = encoder.get_ref().clone();
                encoder.write_all(pieces[1].as_bytes()).await.unwrap();
                encoder.shutdown().await.unwrap();
                let rest = encoder.into_inner().split_off(first.len());
                [first, rest]
            }};
        }
        match encoding {
            "gzip" | "x-gzip" => with!(GzipEncoder::new(Vec::new())),
            "deflate" => with!(ZlibEncoder::new(Vec::new())),
            "br" => with!(BrotliEncoder::new(Vec::new())),
            "zstd" => with!(ZstdEncoder::new(Vec::new())),
            _ => pieces.map(|piece| piece.as_bytes().to_vec()),
        }
    }

    #[tokio::test]
    async fn compressed_answers_are_decoded() {
        for encoding in ["gzip", "x-gzip", "deflate", "br", "zstd", "identity"] {
            let [first, rest] = compressed(encoding, ["{\"a\":", "1}"]).await;
            let headers = format!("{JSON}content-encoding: {encoding}\r\n");
            let mut exchange = answered(Reply::sized("200 OK", &headers, &[first, rest].concat())).await;
            assert_eq!(exchange.next().await, Ok(Arrived::Body(Bytes::from_static(b"{\"a\":1}"))), "{encoding}");
            assert!(!exchange.headers().contains_key("content-encoding"), "{encoding}");
            assert_eq!(exchange.headers().contains_key("content-length"), encoding == "identity");

            let [first, rest] = compressed(encoding, ["data: {}\n\n", "data: []\n\n"]).await;
            let headers = format!("{SSE}content-encoding: {encoding}\r\n");
            let reply = Reply::chunked(&headers, &[&first, &rest]).paced(Duration::from_millis(20));
            let mut exchange = answered(reply).await;
            assert_eq!(exchange.next().await, Ok(data("{}")), "{encoding}");
            assert_eq!(exchange.next().now_or_never(), None, "{encoding}: the first event waited for the second");
            assert_eq!(exchange.next().await, Ok(data("[]")), "{encoding}");
        }
    }

    #[tokio::test]
    async fn an_unknown_encoding_is_an_error() {
        for header in ["content-encoding: X-Foo\r\n", "content-encoding: gzip, br\r\n"] {
            let upstream = Upstream::new(vec![Reply::sized("200 OK", &format!("{JSON}{header}"), b"..")]).await;
            let error = open(&upstream, None).await.unwrap_err();
            assert!(matches!(&error, Error::Encoding(name) if name == "x-foo" || name == "gzip, br"), "{error}");
        }
        let twice = format!("{JSON}content-encoding: gzip\r\ncontent-encoding: gzip\r\n");
        let upstream = Upstream::new(vec![Reply::sized("200 OK", &twice, b"..")]).await;
        assert!(matches!(open(&upstream, None).await.unwrap_err(), Error::Encoding(_)));
    }

    fn resume(upstream: &Upstream) -> Resume {
        let calls = Mutex::new(0);
        let headers = move || {
            *calls.lock().unwrap() += 1;
            let mut headers = HeaderMap::new();
            headers.insert("authorization", format!("token {}", calls.lock().unwrap()).parse().unwrap());
            headers
        };
        Resume { wait: Duration::from_millis(15), ..Resume::new(upstream.uri(), headers) }
    }

    #[tokio::test]
    async fn a_stream_that_ends_early_is_taken_up_at_its_cursor() {
        let upstream = Upstream::new(vec![
            Reply::events("id: e1\nretry: 10\ndata:\n\n"),
            Reply::events(": nothing yet\n\n"),
            Reply::events("id: e2\ndata: {\"result\":1}\n\n"),
        ])
        .await;
        let mut exchange = open(&upstream, Some(resume(&upstream))).await.unwrap();
        let Arrived::Event(priming) = exchange.next().await.unwrap() else { panic!("an event") };
        assert_eq!((priming.id.as_deref(), priming.retry), (Some("e1"), Some(10)));
        assert_eq!(exchange.next().await, Ok(event("e2", "{\"result\":1}")));

        let seen = upstream.seen();
        assert_eq!(seen.len(), 3);
        assert!(seen[0].starts_with("POST /mcp "));
        for (request, token) in [(&seen[1], "token 1"), (&seen[2], "token 2")] {
            assert!(request.starts_with("GET /mcp HTTP/1.1\r\n"), "{request}");
            for line in ["last-event-id: e1", "accept: text/event-stream", &format!("authorization: {token}")] {
                assert!(request.lines().any(|header| header == line), "{line} in {request}");
            }
        }
    }

    #[tokio::test]
    async fn a_stream_that_is_reset_is_taken_up_too() {
        let cut = format!("HTTP/1.1 200 OK\r\n{SSE}transfer-encoding: chunked\r\n\r\nd\r\nid: 7\ndata: 1\r\n");
        let upstream = Upstream::new(vec![
            Reply::close(cut.replace("d\r\nid", "f\r\nid").replace("1\r\n", "1\n\n\r\n")),
            Reply::close(""),
            Reply::events("data: 2\n\n"),
        ])
        .await;
        let mut exchange = open(&upstream, Some(resume(&upstream))).await.unwrap();
        assert_eq!(exchange.next().await, Ok(event("7", "1")));
        assert_eq!(exchange.next().await, Ok(data("2")));
        assert_eq!(upstream.seen().len(), 3);
    }

    #[tokio::test]
    async fn resuming_goes_on_when_nobody_waited() {
        let upstream = Upstream::new(vec![
            Reply::events("id: 1\ndata: 1\n\n"),
            Reply::events("data: 2\n\n").paced(Duration::from_millis(5)),
        ])
        .await;
        let mut exchange = open(&upstream, Some(resume(&upstream))).await.unwrap();
        let mut events = Vec::new();
        while events.len() < 2 {
            if let Ok(event) = tokio::time::timeout(Duration::from_millis(2), exchange.next()).await {
                events.push(event.unwrap());
            }
        }
        assert_eq!(events, [event("1", "1"), data("2")]);
        assert_eq!(upstream.seen().len(), 2);
    }

    #[tokio::test]
    async fn attempts_are_bounded() {
        let upstream = Upstream::new(vec![Reply::events("id: 1\nretry: 0\ndata: 1\n\n"), Reply::events("")]).await;
        let resume = Resume { attempts: 3, ..resume(&upstream) };
        let mut exchange = open(&upstream, Some(resume)).await.unwrap();
        exchange.next().await.unwrap();
        assert_eq!(exchange.next().await, Err(Error::Cut));
        assert_eq!(exchange.next().await, Err(Error::Cut));
        assert_eq!(upstream.seen().len(), 4);
    }

    #[tokio::test]
    async fn what_cannot_be_resumed_is_cut() {
        // No event id, an id that was taken back, a server that has no such stream, nobody who wants it resumed.
        for (first, then, requests) in [
            ("data: 1\n\n", Reply::events("data: 2\n\n"), 1),
            ("id: 1\ndata: 1\n\nid:\n\n", Reply::events("data: 2\n\n"), 1),
            ("id: 1\ndata: 1\n\n", Reply::sized("405 Method Not Allowed", "", b""), 2),
            ("id: 1\ndata: 1\n\n", Reply::sized("200 OK", JSON, b"{}"), 2),
        ] {
            let upstream = Upstream::new(vec![Reply::events(first), then]).await;
            let mut exchange = open(&upstream, Some(resume(&upstream))).await.unwrap();
            let error = loop {
                if let Err(error) = exchange.next().await {
                    break error;
                }
            };
            assert_eq!((error, upstream.seen().len()), (Error::Cut, requests), "{first:?}");
        }
        let mut exchange = answered(Reply::events("id: 1\ndata: 1\n\n")).await;
        exchange.next().await.unwrap();
        assert_eq!(exchange.next().await, Err(Error::Cut));
    }

    #[tokio::test]
    async fn a_dropped_exchange_closes_its_connection() {
        let head = format!("HTTP/1.1 200 OK\r\n{SSE}\r\ndata: 1\n\n");
        for answer in ["", head.as_str()] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let uri: http::Uri = format!("http://{}/mcp", listener.local_addr().unwrap()).parse().unwrap();
            let client = testing::client(&uri);
            let call = async {
                let mut exchange = Exchange::open(&client, testing::post(uri.clone()), LIMITS, None).await.unwrap();
                exchange.next().await.unwrap();
                exchange.next().await
            };
            let serve = async {
                let (mut socket, _) = listener.accept().await.unwrap();
                assert!(socket.read(&mut [0; 4096]).await.unwrap() > 0);
                socket.write_all(answer.as_bytes()).await.unwrap();
                socket
            };
            let waited = Duration::from_millis(50);
            let (call, mut socket) = tokio::join!(tokio::time::timeout(waited, call), serve);
            call.expect_err("given up");
            let mut rest = Vec::new();
            let closed = tokio::time::timeout(Duration::from_secs(5), socket.read_to_end(&mut rest)).await;
            closed.expect("the connection is closed").unwrap();
        }
    }

    #[tokio::test]
    async fn an_unread_event_stream_passes_as_bytes() {
        let exchange = answered(Reply::events(": hi\n\ndata: 1\n\n")).await;
        assert_eq!(exchange.into_body().collect().await.unwrap().to_bytes(), ": hi\n\ndata: 1\n\n");
    }

    #[tokio::test]
    async fn a_drained_exchange_leaves_its_connection_to_the_next() {
        let reply = Reply::chunked(SSE, &[b"data: 1\n\n"]).paced(Duration::from_millis(5));
        let upstream = Upstream::new(vec![reply]).await;
        let client = upstream.client();
        for _ in 0..3 {
            let mut exchange = Exchange::open(&client, upstream.post(), LIMITS, None).await.unwrap();
            assert_eq!(exchange.next().await, Ok(data("1")));
            exchange.drain().await;
        }
        assert_eq!((upstream.seen().len(), upstream.connections()), (3, 1));
    }
}
