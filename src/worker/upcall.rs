//! One request upstream, from before its first byte to after its last: waiting for it can stop at any moment.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use http::{HeaderMap, StatusCode};

use crate::upstream::{Arrived, Error, Exchange, Kind, Leg, Limits, Outbound};

type Opening = Pin<Box<dyn Future<Output = Result<Exchange, Error>> + Send>>;

/// A request in flight.
pub(super) enum Upcall {
    /// The head of the answer has not come.
    Opening(Opening),
    /// It has.
    Open(Box<Exchange>),
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

impl Upcall {
    /// Begins to send `request`.
    pub(super) fn start(leg: &Leg, request: Outbound, limits: Limits) -> Self {
        let (client, resume) = (leg.upstream.client.clone(), leg.resume());
        Self::Opening(Box::pin(async move { Exchange::open(&client, request, limits, Some(resume)).await }))
    }

    /// The same after a pause.
    pub(super) fn start_after(pause: Duration, leg: &Leg, request: Outbound, limits: Limits) -> Self {
        let (client, resume) = (leg.upstream.client.clone(), leg.resume());
        Self::Opening(Box::pin(async move {
            tokio::time::sleep(pause).await;
            Exchange::open(&client, request, limits, Some(resume)).await
        }))
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
            Self::Over => std::future::pending().await,
        }
    }

    /// Takes the exchange out, once its head has come.
    pub(super) fn take(&mut self) -> Option<Exchange> {
        match std::mem::replace(self, Self::Over) {
            Self::Open(exchange) => Some(*exchange),
            Self::Opening(_) | Self::Over => None,
        }
    }

    pub(super) fn status(&self) -> StatusCode {
        self.exchange().map_or(StatusCode::OK, Exchange::status)
    }

    pub(super) fn kind(&self) -> Kind {
        self.exchange().map_or(Kind::Other, Exchange::kind)
    }

    /// The headers of the answer; none before they came.
    pub(super) fn headers(&self) -> HeaderMap {
        self.exchange().map(|exchange| exchange.headers().clone()).unwrap_or_default()
    }

    /// The same, where nothing else of the answer is to come.
    pub(super) fn take_headers(&mut self) -> HeaderMap {
        self.take().map(Exchange::into_headers).unwrap_or_default()
    }

    /// Looks at the headers of the answer, once they came.
    pub(super) fn with_headers(&self, look: impl FnOnce(&HeaderMap)) {
        if let Some(exchange) = self.exchange() {
            look(exchange.headers());
        }
    }

    fn exchange(&self) -> Option<&Exchange> {
        match self {
            Self::Open(exchange) => Some(exchange),
            Self::Opening(_) | Self::Over => None,
        }
    }
}
