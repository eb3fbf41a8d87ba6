//! An event stream that goes on after its connection ended.
//!
//! Servers may close a stream and expect the client to come back with `Last-Event-ID` (MCP 2025-11-25, Streamable
//! HTTP, "Resumability"). The call itself is never sent again.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use tokio::time::{Instant, sleep_until};

use super::{Body, Client, Error, EventStream, Kind};
use crate::call::Event;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(30);
/// How long a server that could not be asked is left alone, at least, whatever it said while it could.
const AWAY: Duration = Duration::from_millis(200);

/// How a stream is taken up again.
#[derive(Clone)]
pub struct Resume {
    /// Where the GET goes.
    pub uri: Uri,
    /// The headers of the GET: session, credentials, protocol version. Asked before every attempt, so that the
    /// latest credentials are used.
    pub headers: Arc<dyn Fn() -> HeaderMap + Send + Sync>,
    /// How many attempts in a row may bring no event.
    pub attempts: u32,
    /// How long to wait before an attempt, until the stream says otherwise with `retry:`; the more of
    /// them bring no event, the longer.
    pub wait: Duration,
}

impl Resume {
    /// Five attempts, the first after a second.
    pub fn new(uri: Uri, headers: impl Fn() -> HeaderMap + Send + Sync + 'static) -> Self {
        Self { uri, headers: Arc::new(headers), attempts: 5, wait: Duration::from_secs(1) }
    }

    fn request(&self, cursor: HeaderValue) -> Request<Bytes> {
        let mut request = Request::new(Bytes::new());
        *request.method_mut() = Method::GET;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = (self.headers)();
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        request.headers_mut().insert(LAST_EVENT_ID, cursor);
        request
    }
}

type Connecting = Pin<Box<dyn Future<Output = Result<Response<Body>, Error>> + Send>>;

/// Where the stream is; kept here and not in a future, so that waiting for an event can be given up and taken up.
enum Stage {
    Reading(EventStream),
    Ended,
    Waiting(Instant),
    Connecting(Connecting),
}

/// The events of one answer, over as many connections as it takes.
pub(super) struct Resumed {
    client: Client,
    resume: Option<Resume>,
    limit: usize,
    stage: Stage,
    cursor: Option<HeaderValue>,
    retry: Option<Duration>,
    fruitless: u32,
    /// Whether the last attempt reached nobody who could tell.
    is_away: bool,
}

impl Resumed {
    pub(super) fn new(client: Client, first: EventStream, limit: usize, resume: Option<Resume>) -> Self {
        Self {
            client,
            resume,
            limit,
            stage: Stage::Reading(first),
            cursor: None,
            retry: None,
            fruitless: 0,
            is_away: false,
        }
    }

    /// A stream that somebody else has read up to the event `cursor`: it is taken up after that one.
    pub(super) fn after(
        client: Client,
        (cursor, wait): (&str, Option<Duration>),
        limit: usize,
        resume: Resume,
    ) -> Self {
        let until = Instant::now() + wait.unwrap_or_default().min(LONGEST);
        Self {
            client,
            resume: Some(resume),
            limit,
            stage: Stage::Waiting(until),
            cursor: HeaderValue::from_str(cursor).ok(),
            retry: wait,
            fruitless: 1,
            is_away: false,
        }
    }

    /// The last event that had an id, and how long the upstream wants to be left alone before it is asked again.
    pub(super) fn cursor(&self) -> Option<(&str, Option<Duration>)> {
        self.resume.as_ref()?;
        Some((self.cursor.as_ref()?.to_str().ok()?, self.retry))
    }

    /// The next event. Cancel safe.
    ///
    /// # Errors
    /// [`Error::Cut`] when the stream ended and cannot be resumed (any more); [`Error::Refused`], once, when that is
    /// so for want of a credential.
    pub(super) async fn next(&mut self) -> Result<Event, Error> {
        loop {
            self.stage = match &mut self.stage {
                Stage::Reading(stream) => match stream.next().await {
                    Ok(Some(event)) => {
                        self.note(&event);
                        return Ok(event);
                    }
                    Ok(None) | Err(Error::Broken(_)) => Stage::Ended,
                    Err(error) => return Err(error),
                },
                Stage::Ended => self.plan()?,
                Stage::Waiting(until) => {
                    sleep_until(*until).await;
                    self.connect()?
                }
                Stage::Connecting(connecting) => {
                    let outcome = connecting.await;
                    // Whatever comes of it, this attempt is over.
                    self.stage = Stage::Ended;
                    self.connected(outcome)?
                }
            };
            if let Stage::Ended = self.stage {
                tracing::debug!(attempts = self.fruitless, "event stream ended early");
            }
        }
    }

    fn note(&mut self, event: &Event) {
        self.fruitless = 0;
        if let Some(id) = &event.id {
            // An empty id takes the cursor back (HTML, "Server-sent events").
            self.cursor = if id.is_empty() { None } else { HeaderValue::from_bytes(id.as_bytes()).ok() };
        }
        if let Some(retry) = event.retry {
            self.retry = Some(Duration::from_millis(retry).clamp(SHORTEST, LONGEST));
        }
    }

    fn plan(&mut self) -> Result<Stage, Error> {
        let (Some(resume), Some(_)) = (&self.resume, &self.cursor) else { return Err(Error::Cut) };
        if self.fruitless >= resume.attempts {
            return Err(Error::Cut);
        }
        let least = if self.is_away { AWAY } else { Duration::ZERO };
        let longer = 1 << self.fruitless.saturating_sub(1).min(16);
        let wait = self.retry.unwrap_or(resume.wait).max(least).saturating_mul(longer).min(LONGEST);
        self.fruitless += 1;
        Ok(Stage::Waiting(Instant::now() + wait))
    }

    fn connect(&self) -> Result<Stage, Error> {
        let (Some(resume), Some(cursor)) = (&self.resume, &self.cursor) else { return Err(Error::Cut) };
        let (client, request) = (self.client.clone(), resume.request(cursor.clone()));
        Ok(Stage::Connecting(Box::pin(async move { client.send(request).await })))
    }

    fn connected(&mut self, outcome: Result<Response<Body>, Error>) -> Result<Stage, Error> {
        let response = match outcome {
            Ok(response) => response,
            Err(Error::Unreachable(_) | Error::Broken(_)) => return Ok(self.not_this_time()),
            Err(_) => return self.give_up(Error::Cut),
        };
        self.is_away = false;
        match response.status() {
            status if status.is_success() && Kind::of(response.headers()) == Kind::Events => {
                Ok(Stage::Reading(EventStream::new(response.into_body(), self.limit)))
            }
            status if is_passing(status) => Ok(self.not_this_time()),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => self.give_up(Error::Refused),
            _ => self.give_up(Error::Cut),
        }
    }

    /// The server may be on its way back.
    fn not_this_time(&mut self) -> Stage {
        self.is_away = true;
        Stage::Ended
    }

    fn give_up(&mut self, error: Error) -> Result<Stage, Error> {
        self.resume = None;
        Err(error)
    }

    /// What is still to come on the present connection.
    pub(super) fn into_body(self) -> Option<Body> {
        match self.stage {
            Stage::Reading(stream) => Some(stream.into_body()),
            Stage::Ended | Stage::Waiting(_) | Stage::Connecting(_) => None,
        }
    }
}

/// Whether this is what a server says that is on its way back, or busy, and a proxy in front of one that is away.
fn is_passing(status: StatusCode) -> bool {
    let is_for_now = matches!(status, StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS);
    is_for_now || (status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED)
}
