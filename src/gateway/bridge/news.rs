//! What a stateless client hears of lists and resources while it listens: in a session that taskgate has for it.
//!
//! The session is the one that its owner's requests have, or one of its own where callers without a credential share
//! none; that lives as long as the stream. News come on the session's GET stream and on those of calls, in this and in
//! other sessions of the upstream (see [`crate::session::Subscribers`] for whom they concern). A session that is lost,
//! as by a restart of the server, is replaced while the client listens.

use std::collections::HashSet;
use std::future::pending;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use dashmap::DashMap;
use futures_util::{StreamExt, stream};
use http::StatusCode;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::debug;

use crate::call::Answer;
use crate::jsonrpc::{Envelope, Id, Object};
use crate::mcp::method;
use crate::mcp::subscription::{self, Filter};
use crate::session::{Need, News, Subscribed};
use crate::upstream::{Leg, Streams, ask};
use crate::worker::Pauses;

use super::super::{Gateway, Request, Route};
use super::pool::Purpose;
use super::{Crossing, Lease};

/// How long a stream to the upstream may take to begin before the client is told that it listens.
const BEGUN: Duration = Duration::from_millis(250);
/// How long a server may take to answer, to all that one listener subscribes to; how many it is asked of at a time.
const ANSWERED: Duration = Duration::from_secs(10);
const AT_A_TIME: usize = 16;

/// What one client hears.
pub(in crate::gateway) struct Told {
    heard: Arc<Subscribed>,
    /// Keeps the session, and gets another if it is lost.
    upkeep: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// The resources that are subscribed to in one session: by how many. Each is locked while the server is told of a
/// change, so that it hears of them in the order in which they are made, and nobody waits for what others wait for.
#[derive(Debug, Default)]
pub(super) struct Resources {
    counts: DashMap<String, Arc<Mutex<usize>>>,
}

/// One stay in a session.
struct Stay {
    lease: Lease,
    leg: Leg,
    /// What it subscribed to there.
    uris: Vec<String>,
    crossing: Arc<Crossing>,
    _need: Option<Need>,
}

impl Gateway {
    /// Begins to hear what `filter` asks of lists and resources, in the name of the client of `id`. Returns what of it
    /// is honoured.
    ///
    /// # Errors
    /// The upstream's answer, if it opens no session.
    pub(in crate::gateway) async fn hear_news(
        &self,
        (route, request, message): (Arc<Route>, Request, Envelope),
        id: &Id,
        filter: &Filter,
    ) -> Result<(Told, Filter), Answer> {
        let crossing =
            Arc::new(Crossing { gateway: self.clone(), route, request: Arc::new(request), message, id: id.clone() });
        let lease = crossing.lease(Purpose::Listening).await.map_err(|answer| crossing.phrase(None).answer(answer))?;
        let wanted = subscription::offered(filter, &lease.opened().told);
        let sessions = &crossing.route.upstream.sessions;
        let heard = Arc::new(sessions.subscribers().subscribe(crossing.caller().leg.credential(), wanted.clone()));
        let stay = Stay::begin(&crossing, lease, &heard, &wanted.uris).await?;
        let honoured = Filter { uris: stay.uris.clone(), ..wanted.clone() };
        let upkeep = Box::pin(upkeep(stay, heard.clone(), wanted.uris));
        Ok((Told { heard, upkeep }, honoured))
    }
}

impl Told {
    /// What comes next, as a message of the subscription `id`. Cancel safe.
    pub(in crate::gateway) async fn next(&mut self, id: &Id) -> Bytes {
        loop {
            let news = tokio::select! {
                news = self.heard.next() => news,
                () = &mut self.upkeep => pending().await,
            };
            match news {
                News::List(method) => return subscription::bare(method, id),
                News::Resource(text) => {
                    if let Ok(message) = Envelope::read(text) {
                        return subscription::tagged(&message, id);
                    }
                }
            }
        }
    }
}

/// Stays in a session, and in another when that is lost. For ever; cancel safe.
async fn upkeep(mut stay: Stay, heard: Arc<Subscribed>, uris: Vec<String>) {
    let mut pauses = Pauses::default();
    loop {
        let begun = Instant::now();
        stay.lost().await;
        stay.give_up().await;
        let crossing = stay.crossing.clone();
        drop(stay);
        let mut lasted = begun.elapsed();
        stay = loop {
            sleep(pauses.after(std::mem::take(&mut lasted))).await;
            let begun = match crossing.lease(Purpose::Listening).await {
                Ok(lease) => Stay::begin(&crossing, lease, &heard, &uris).await,
                Err(answer) => Err(answer),
            };
            match begun {
                Ok(stay) => break stay,
                Err(answer) => debug!(status = %answer.status, "no session for who listens yet"),
            }
        };
    }
}

impl Stay {
    /// Cancel safe: what has begun is ended again.
    async fn begin(
        crossing: &Arc<Crossing>,
        lease: Lease,
        heard: &Arc<Subscribed>,
        uris: &[String],
    ) -> Result<Self, Answer> {
        let begun = Self::try_begin(crossing.clone(), lease, heard.clone(), uris.to_vec());
        let begun = crossing.gateway.inner.worker.work.spawn(begun).await;
        begun.map_err(|_| Answer::empty(StatusCode::BAD_GATEWAY))
    }

    async fn try_begin(crossing: Arc<Crossing>, lease: Lease, heard: Arc<Subscribed>, uris: Vec<String>) -> Self {
        let opened = lease.opened().clone();
        let leg = opened.leg(&crossing.route.upstream, &crossing.request);
        heard.in_session(opened.session.fingerprint);
        let worker = &crossing.gateway.inner.worker;
        let need = worker.attend(&leg, crossing.gateway.inner.options.max_result);
        // Some servers send no head before there is something to say.
        drop(timeout(BEGUN, opened.session.hub().answered()).await);
        let uris = opened.resources.enter(&leg, uris).await;
        Self { lease, leg, uris, crossing, _need: need }
    }

    /// Nobody else gets the session, unless the server says that it is there.
    async fn give_up(&self) {
        if !self.lease.opened().is_there().await {
            self.lease.forget();
        }
    }

    /// Resolves when nothing more is heard in this session. Cancel safe.
    async fn lost(&self) {
        let session = &self.lease.opened().session;
        let stream_lost = async {
            // Where there are no such streams, news come on those of calls.
            if self.leg.upstream.streams() == Streams::None {
                pending::<()>().await;
            }
            session.hub().lost().await;
        };
        tokio::select! {
            () = stream_lost => {}
            () = session.ended() => {}
        }
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        let (opened, leg) = (self.lease.opened().clone(), self.leg.clone());
        let (uris, lease) = (std::mem::take(&mut self.uris), self.lease.clone());
        if uris.is_empty() || opened.session.is_ended() {
            return;
        }
        // The session is kept until the server has heard of it.
        drop(self.crossing.gateway.inner.worker.work.spawn(async move {
            opened.resources.leave(&leg, uris).await;
            drop(lease);
        }));
    }
}

impl Resources {
    /// One more wants to hear of these; the server is told of each that nobody wanted before. Returns those that the
    /// server tells of, as far as it says so in time.
    async fn enter(&self, leg: &Leg, mut uris: Vec<String>) -> Vec<String> {
        let entered = std::sync::Mutex::new(HashSet::new());
        let all = stream::iter(&uris).for_each_concurrent(AT_A_TIME, |uri| async {
            let mut count = self.count(uri).lock_owned().await;
            if *count > 0 || told(leg, method::SUBSCRIBE, uri).await {
                *count += 1;
                entered.lock().unwrap_or_else(PoisonError::into_inner).insert(uri.clone());
            }
        });
        drop(timeout(ANSWERED, all).await);
        let entered = entered.into_inner().unwrap_or_else(PoisonError::into_inner);
        uris.iter().for_each(|uri| self.tidy(uri));
        uris.retain(|uri| entered.contains(uri));
        uris
    }

    /// One less does; the server is told of each that nobody wants any more.
    async fn leave(&self, leg: &Leg, uris: Vec<String>) {
        let until = Instant::now() + ANSWERED;
        let all = stream::iter(&uris).for_each_concurrent(AT_A_TIME, |uri| async {
            let mut count = self.count(uri).lock_owned().await;
            *count -= 1;
            if *count == 0 {
                drop(timeout_at(until, told(leg, method::UNSUBSCRIBE, uri)).await);
            }
        });
        all.await;
        uris.iter().for_each(|uri| self.tidy(uri));
    }

    fn count(&self, uri: &str) -> Arc<Mutex<usize>> {
        self.counts.entry(uri.to_owned()).or_default().clone()
    }

    /// Forgets a resource that nobody wants, and nobody is about to.
    fn tidy(&self, uri: &str) {
        self.counts.remove_if(uri, |_, count| Arc::strong_count(count) == 1 && count.try_lock().is_ok_and(|n| *n == 0));
    }
}

/// Whether the server takes this request about a resource.
async fn told(leg: &Leg, method: &str, uri: &str) -> bool {
    let params = Object::new().string("uri", uri).finish();
    ask(leg, method, &params).await.is_some()
}
