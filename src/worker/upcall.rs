//! One request upstream, from before its first byte to after its last: waiting for it can stop at any moment.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use http::{HeaderMap, StatusCode};

use crate::jsonrpc::Id;
use crate::mcp::Era;
use crate::upstream::{Arrived, Error, Exchange, Kind, Leg, Limits, Outbound};

use super::shared::{self, Follower};
use super::{Assignment, Worker};

/// How often a repeated request may reach nobody, and how long after each time.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(500);

type Opening = Pin<Box<dyn Future<Output = Result<Exchange, Error>> + Send>>;

/// A request in flight.
pub(super) enum Upcall {
    /// The head of the answer has not come.
    Opening(Opening),
    /// It has.
    Open(Box<Exchange>),
    /// It is shared with equal calls.
    Shared(Follower),
    /// It was, and goes on without us.
    Left,
    /// The answer was taken out.
    Over,
}

/// What came.
#[derive(Debug)]
pub(super) enum Came {
    /// The head of the answer.
    Head,
    /// Something of its body.
    Part(Arrived),
}

impl Came {
    /// Whether this is an event with something in it, after which more may follow at once.
    pub(super) fn says_something(&self) -> bool {
        matches!(self, Self::Part(Arrived::Event(event)) if event.data.as_ref().is_some_and(|data| !data.is_empty()))
    }
}

/// The exchange of a request. In the stateless era no stream is taken up again, and nothing in an answer is a session.
pub(super) async fn opened(leg: Leg, request: Outbound, limits: Limits) -> Result<Exchange, Error> {
    let client = &leg.upstream.client;
    match leg.era {
        Era::Handshake => Exchange::open(client, request, limits, Some(leg.resume())).await,
        Era::Stateless => Exchange::open(client, request, limits, None).await.map(Exchange::without_session),
    }
}

impl Upcall {
    /// Sends the request of `assignment`, or joins an equal one. Returns too what may be sent once more.
    pub(super) fn begin(worker: &Worker, assignment: &mut Assignment, limits: Limits) -> (Self, Option<Outbound>) {
        if let Some(alike) = assignment.alike.take() {
            return (Self::Shared(shared::join(worker, assignment, alike, limits)), None);
        }
        let again = assignment.repeatable.then(|| assignment.request.clone());
        (Self::start(&assignment.leg, assignment.request.clone(), limits), again)
    }

    /// Begins to send `request`.
    pub(super) fn start(leg: &Leg, request: Outbound, limits: Limits) -> Self {
        Self::Opening(Box::pin(opened(leg.clone(), request, limits)))
    }

    /// Sends a request once more that another process sent before: its server may be on its way back, as we are.
    pub(super) fn repeated(leg: &Leg, request: Outbound, limits: Limits) -> Self {
        let leg = leg.clone();
        Self::Opening(Box::pin(async move {
            let mut pause = Duration::ZERO;
            for _ in 0..ATTEMPTS {
                let Self::Opening(opening) = Self::start_after(pause, &leg, request.clone(), limits) else { break };
                match opening.await {
                    Err(Error::Unreachable(_)) => pause = PAUSE,
                    outcome => return outcome,
                }
            }
            // Another process did reach it.
            Err(Error::Broken("its server did not come back".into()))
        }))
    }

    /// The same as [`Upcall::start`] after a pause. Where a proxy stands before a server that is away, nobody was reached.
    pub(super) fn start_after(pause: Duration, leg: &Leg, request: Outbound, limits: Limits) -> Self {
        let leg = leg.clone();
        Self::Opening(Box::pin(async move {
            tokio::time::sleep(pause).await;
            let exchange = opened(leg, request, limits).await?;
            if exchange.kind() != Kind::Json && is_away(exchange.status()) {
                return Err(Error::Unreachable(format!("HTTP {}", exchange.status().as_u16())));
            }
            Ok(exchange)
        }))
    }

    /// One that ends with this error.
    pub(super) fn failed(error: Error) -> Self {
        Self::Opening(Box::pin(std::future::ready(Err(error))))
    }

    /// Takes up a stream that another process has read up to the event `cursor`.
    pub(super) fn resumed(leg: &Leg, cursor: (&str, Option<Duration>), limits: Limits) -> Self {
        Self::Open(Box::new(Exchange::resumed(&leg.upstream.client, cursor, limits, leg.resume())))
    }

    /// Where the answer can be taken up if this process ends, if it can.
    pub(super) fn cursor(&self) -> Option<(&str, Option<Duration>)> {
        match self {
            Self::Open(exchange) => exchange.cursor(),
            Self::Opening(_) | Self::Shared(_) | Self::Left | Self::Over => None,
        }
    }

    /// Waits for what comes next. Cancel safe: what has come is kept here.
    pub(super) async fn next(&mut self) -> Result<Came, Error> {
        match self {
            Self::Opening(opening) => {
                let exchange = opening.as_mut().await;
                *self = Self::Over;
                *self = Self::Open(Box::new(exchange?));
                Ok(Came::Head)
            }
            Self::Open(exchange) => exchange.next().await.map(Came::Part),
            Self::Shared(follower) => follower.next().await,
            Self::Left | Self::Over => std::future::pending().await,
        }
    }

    /// Takes the exchange out, once its head has come, unless it is shared.
    pub(super) fn take(&mut self) -> Option<Exchange> {
        match std::mem::replace(self, Self::Over) {
            Self::Open(exchange) => Some(*exchange),
            Self::Opening(_) | Self::Shared(_) | Self::Left | Self::Over => None,
        }
    }

    /// Whether equal calls share the exchange.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self, Self::Shared(_))
    }

    /// Stops following an exchange that is shared; `false` if it is not.
    pub(super) fn leave(&mut self, reason: &str) -> bool {
        if !matches!(self, Self::Shared(_)) {
            return false;
        }
        if let Self::Shared(follower) = std::mem::replace(self, Self::Left) {
            follower.leave(reason);
        }
        true
    }

    /// Leaves a question to others that share the exchange; `false` if it is not shared.
    pub(super) fn passes_on(&self, question: &Id) -> bool {
        if let Self::Shared(follower) = self {
            follower.pass_on(question);
        }
        matches!(self, Self::Shared(_) | Self::Left)
    }

    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Open(exchange) => exchange.status(),
            Self::Shared(follower) => follower.status(),
            Self::Opening(_) | Self::Left | Self::Over => StatusCode::OK,
        }
    }

    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Open(exchange) => exchange.kind(),
            Self::Shared(follower) => follower.kind(),
            Self::Opening(_) | Self::Left | Self::Over => Kind::Other,
        }
    }

    /// The headers of the answer; none before they came.
    pub(super) fn headers(&self) -> HeaderMap {
        self.headers_seen().cloned().unwrap_or_default()
    }

    /// The same, where nothing else of the answer is to come.
    pub(super) fn take_headers(&mut self) -> HeaderMap {
        match std::mem::replace(self, Self::Over) {
            Self::Open(exchange) => exchange.into_headers(),
            other => other.headers(),
        }
    }

    /// Looks at the headers of the answer, once they came.
    pub(super) fn with_headers(&self, look: impl FnOnce(&HeaderMap)) {
        if let Some(headers) = self.headers_seen() {
            look(headers);
        }
    }

    fn headers_seen(&self) -> Option<&HeaderMap> {
        match self {
            Self::Open(exchange) => Some(exchange.headers()),
            Self::Shared(follower) => follower.headers(),
            Self::Opening(_) | Self::Left | Self::Over => None,
        }
    }
}

/// Whether a proxy says so of the server behind it.
fn is_away(status: StatusCode) -> bool {
    matches!(status, StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT)
}
