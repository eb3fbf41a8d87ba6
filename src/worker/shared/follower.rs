//! One of the calls that share an exchange, in the place of a request of its own.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use tokio::sync::mpsc;

use super::hub::{Head, Hub, News};
use crate::call::Event;
use crate::jsonrpc::{Edit, Id, splice};
use crate::upstream::{Arrived, Error, Kind};
use crate::worker::upcall::Came;

/// Follows an exchange. Dropping it leaves the others alone with it.
#[derive(Debug)]
pub(in crate::worker) struct Follower {
    hub: Arc<Hub>,
    number: usize,
    news: mpsc::Receiver<News>,
    /// The token that progress would have if the exchange were its own.
    token: Option<String>,
    head: Option<Arc<Head>>,
    is_over: bool,
}

impl Follower {
    pub(super) fn new(hub: Arc<Hub>, number: usize, news: mpsc::Receiver<News>, token: Option<String>) -> Self {
        Self { hub, number, news, token, head: None, is_over: false }
    }

    /// Waits for what comes next. Cancel safe.
    pub(in crate::worker) async fn next(&mut self) -> Result<Came, Error> {
        loop {
            return match self.news.recv().await {
                Some(News::Head(head)) => {
                    self.head = Some(head);
                    Ok(Came::Head)
                }
                Some(News::Event(event)) => Ok(Came::Part(Arrived::Event(event))),
                Some(News::Progress(event, token_at)) => {
                    let (Some(token), Some(data)) = (&self.token, &event.data) else { continue };
                    let data = splice(data, vec![Edit::new(token_at, token.as_str())]);
                    Ok(Came::Part(Arrived::Event(Event { data: Some(data), ..event })))
                }
                None => self.last().await,
            };
        }
    }

    /// What is left when there is no more news: the head if it was missed, then the outcome, then nothing.
    async fn last(&mut self) -> Result<Came, Error> {
        if self.is_over {
            return std::future::pending().await;
        }
        if self.head.is_none() {
            self.head = self.hub.head();
            if self.head.is_some() {
                return Ok(Came::Head);
            }
        }
        self.is_over = true;
        self.hub.outcome().map(Came::Part)
    }

    /// Nobody here will answer this question: another follower may.
    pub(in crate::worker) fn pass_on(&self, question: &Id) {
        self.hub.pass_on(self.number, question);
    }

    /// The call is no longer wanted; the upstream hears of it if nobody else wants it.
    pub(in crate::worker) fn leave(self, reason: &str) {
        self.hub.leave(self.number, reason);
    }

    pub(in crate::worker) fn status(&self) -> StatusCode {
        self.head.as_ref().map_or(StatusCode::OK, |head| head.status)
    }

    pub(in crate::worker) fn kind(&self) -> Kind {
        self.head.as_ref().map_or(Kind::Other, |head| head.kind)
    }

    /// The headers of the answer, once they came.
    pub(in crate::worker) fn headers(&self) -> Option<&HeaderMap> {
        self.head.as_ref().map(|head| &head.headers)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.hub.leave(self.number, "nobody waits for the call");
    }
}
