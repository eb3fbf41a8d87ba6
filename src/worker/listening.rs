//! The one GET stream of an upstream session: read while somebody needs it, and taken up again when it ends.
//!
//! Clients' own GETs ride on it, and so does what an upstream says while a call runs in the background.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tracing::debug;

use crate::call::{Answer, Body, Event, Step};
use crate::jsonrpc::{Envelope, Kind as MessageKind};
use crate::mcp::{Params, is_own_token, method};
use crate::session::{Asking, Hub, Need, Phase, Session, Start, Turn};
use crate::upstream::{Error, EventStream, Leg, Opened, Streams, events, headers};

use super::answer::{from_upstream, refused};
use super::subscribed::Subscription;
use super::{Worker, cancel, questions};

/// How many attempts in a row may bring no event, and how long to wait before each, until the stream says otherwise.
const ATTEMPTS: u32 = 5;
const WAIT: Duration = Duration::from_secs(1);
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(30);
/// How often, and how soon, a client's request is made again while the stream before it is still being closed.
const CONFLICTS: usize = 3;
const CONFLICT_WAIT: Duration = Duration::from_millis(100);
/// How long others wait for the answer to the first who asks.
const TURN: Duration = Duration::from_secs(1);

/// A client that listens to its session's stream.
#[derive(Debug)]
pub struct Listening {
    /// Its way to the upstream.
    pub leg: Leg,
    /// Where it hears; with room for [`crate::session::ROOM`] steps.
    pub steps: mpsc::Sender<Step>,
    /// From where on.
    pub start: Start,
    /// Largest event, in bytes.
    pub limit: usize,
}

/// The stream is open already, and the upstream was not seen to accept this client's credential on the session: ask it
/// first.
#[derive(Debug)]
pub struct Stranger;

impl Worker {
    /// Serves a client that listens to `session`, until it leaves or the stream ends.
    ///
    /// # Errors
    /// [`Stranger`], before anything was answered.
    pub async fn listen(&self, session: &Arc<Session>, listening: &Listening) -> Result<(), Stranger> {
        let _kept = session.keep();
        let served = async {
            let Some(listener) = self.join(session, listening).await? else { return Ok(()) };
            loop {
                let changed = session.hub().changed();
                if !session.hub().serves(listener) {
                    return Ok(());
                }
                tokio::select! {
                    () = changed => {}
                    () = listening.steps.closed() => {
                        session.hub().detach(listener);
                        return Ok(());
                    }
                }
            }
        };
        tokio::select! {
            served = served => served,
            () = self.work.severed() => Ok(()),
        }
    }

    /// Makes the client a listener; it asks the upstream itself if nobody has, so that it sees what is refused.
    async fn join(&self, session: &Session, listening: &Listening) -> Result<Option<u64>, Stranger> {
        let Listening { leg, steps, start, .. } = listening;
        let hub = session.hub();
        if !session.knows(leg.credential()) {
            // Where the stream is made here, nobody but taskgate would judge the credential.
            let asking = if leg.repeated().is_none() { hub.claim() } else { None }.ok_or(Stranger)?;
            return Ok(self.open(asking, listening).await);
        }
        loop {
            let changed = hub.changed();
            match hub.listen(steps, *start) {
                Turn::Listens(listener) => return Ok(Some(listener)),
                Turn::Ask(asking) => return Ok(self.open(asking, listening).await),
                Turn::Wait => tokio::select! {
                    () = changed => {}
                    () = steps.closed() => return Ok(None),
                },
            }
        }
    }

    /// Opens the stream for a client, which then listens; what the upstream says instead is its answer.
    async fn open(&self, asking: Asking, listening: &Listening) -> Option<u64> {
        let Listening { leg, steps, start, limit } = listening;
        if leg.repeated().is_some() {
            let listener = asking.opened_for(steps, (HeaderMap::new(), *start));
            drop(self.work.spawn(Subscription::new(self, leg, *limit).run()));
            return Some(listener);
        }
        let opened = tokio::select! {
            opened = ask(leg, *limit) => opened,
            () = steps.closed() => return None,
        };
        match opened {
            Ok((headers, stream)) => {
                leg.upstream.set_streams(Streams::Some);
                let listener = asking.opened_for(steps, (headers, *start));
                drop(self.work.spawn(Reader::new(self, leg, *limit).run(Source::Stream(Box::new(stream)))));
                Some(listener)
            }
            Err(answer) => {
                if answer.status == StatusCode::METHOD_NOT_ALLOWED {
                    leg.upstream.set_streams(Streams::None);
                }
                let _ = steps.send(Step::done(answer)).await;
                None
            }
        }
    }

    /// Keeps the session's stream open while the need for it lives: a call runs in the background, or somebody hears of
    /// what comes on it by another way than listening; reads messages of at most `limit` bytes. `None` without a session.
    #[must_use]
    pub fn attend(&self, leg: &Leg, limit: u64) -> Option<Need> {
        let session = leg.session.as_ref()?;
        let (need, asking) = session.hub().need();
        let has_stream = leg.repeated().is_none() && leg.upstream.streams() != Streams::None;
        if let Some(asking) = asking.filter(|_| has_stream) {
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            drop(self.work.spawn(Reader::new(self, leg, limit).run(Source::Asking(asking))));
        }
        Some(need)
    }
}

/// Asks for the stream with the client's own request; what is said instead is the answer.
async fn ask(leg: &Leg, limit: usize) -> Result<(HeaderMap, EventStream), Answer> {
    let mut conflicts = 0;
    loop {
        let opened = events(&leg.upstream.client, leg.request(Method::GET, Bytes::new()), limit).await;
        let (mut head, body) = match opened {
            Ok(response) => response.into_parts(),
            Err(error) => return Err(refused(StatusCode::BAD_GATEWAY, &from_upstream(error))),
        };
        if head.status == StatusCode::CONFLICT && conflicts < CONFLICTS {
            conflicts += 1;
            sleep(CONFLICT_WAIT).await;
            continue;
        }
        if head.status.is_success() {
            leg.accepted(&head.headers);
        }
        headers::to_client(&mut head.headers);
        return match body {
            Opened::Events(stream) if head.status.is_success() => Ok((head.headers, stream)),
            Opened::Events(_) => Err(Answer { headers: head.headers, ..Answer::empty(head.status) }),
            Opened::Plain(body) => {
                Err(Answer { status: head.status, headers: head.headers, body: Body::Pass(body.boxed_unsync()) })
            }
        };
    }
}

/// What a reader begins with.
enum Source {
    /// The right to ask for the stream.
    Asking(Asking),
    /// The stream.
    Stream(Box<EventStream>),
}

/// Why a connection is over.
enum Over {
    /// It ended; it may be taken up again.
    Ended,
    /// For good.
    Closed,
}

/// Reads the stream of one session.
struct Reader {
    worker: Worker,
    leg: Leg,
    limit: usize,
    cursor: Option<HeaderValue>,
    wait: Duration,
    fruitless: u32,
}

impl Reader {
    fn new(worker: &Worker, leg: &Leg, limit: usize) -> Self {
        Self { worker: worker.clone(), leg: leg.clone(), limit, cursor: None, wait: WAIT, fruitless: 0 }
    }

    async fn run(mut self, source: Source) {
        let Some(session) = self.leg.session.clone() else { return };
        let work = self.worker.work.clone();
        tokio::select! {
            () = Box::pin(self.follow(&session, source)) => {}
            () = work.severed() => session.hub().close(),
        }
    }

    /// Follows the stream over as many connections as it takes, until nobody needs it or it is over.
    async fn follow(&mut self, session: &Arc<Session>, source: Source) {
        let hub = session.hub();
        let (mut asking, mut stream) = match source {
            Source::Asking(asking) => (Some(asking), None),
            Source::Stream(stream) => (None, Some(stream)),
        };
        loop {
            let over = tokio::select! {
                biased;
                () = hub.unneeded() => {
                    // Not yet open: the right to ask is given back by itself.
                    if asking.is_some() || hub.close_if_unneeded() {
                        return;
                    }
                    Over::Ended
                }
                over = self.connection(session, stream.take(), &mut asking) => over,
            };
            self.fruitless += 1;
            if matches!(over, Over::Closed) || self.fruitless > ATTEMPTS {
                if asking.is_none() {
                    hub.close();
                }
                return;
            }
            tokio::select! {
                () = sleep(self.wait) => {}
                () = hub.unneeded() => {}
            }
        }
    }

    /// One connection, from its opening, unless it is open, to its end.
    async fn connection(
        &mut self,
        session: &Arc<Session>,
        stream: Option<Box<EventStream>>,
        asking: &mut Option<Asking>,
    ) -> Over {
        let mut stream = match stream {
            Some(stream) => *stream,
            None => match self.open(session.hub()).await {
                Ok(stream) => stream,
                Err(over) => return over,
            },
        };
        if let Some(asking) = asking.take() {
            asking.opened();
        }
        loop {
            match stream.next().await {
                Ok(Some(event)) => {
                    self.note(&event);
                    self.heard(session, &event).await;
                }
                Ok(None) => return Over::Ended,
                Err(error) => {
                    debug!(%error, "a session's stream broke off");
                    return if matches!(error, Error::Broken(_)) { Over::Ended } else { Over::Closed };
                }
            }
        }
    }

    async fn open(&self, hub: &Hub) -> Result<EventStream, Over> {
        let response = match self.ask().await {
            Ok(Some(response)) => response,
            Ok(None) => {
                hub.refused();
                return Err(Over::Closed);
            }
            Err(error) => {
                debug!(%error, "a session's stream cannot be opened");
                return Err(Over::Ended);
            }
        };
        let status = response.status();
        match response.into_body() {
            Opened::Events(stream) if status.is_success() => {
                self.leg.upstream.set_streams(Streams::Some);
                Ok(stream)
            }
            _ if status == StatusCode::METHOD_NOT_ALLOWED || status == StatusCode::NOT_IMPLEMENTED => {
                self.leg.upstream.set_streams(Streams::None);
                hub.refused();
                Err(Over::Closed)
            }
            _ if status == StatusCode::CONFLICT || status.is_server_error() => Err(Over::Ended),
            _ => Err(Over::Closed),
        }
    }

    /// Asks for the stream; `None` if the upstream is known to have none. While nobody knows, one session asks for all,
    /// so that a thousand need not learn the same at once.
    async fn ask(&self) -> Result<Option<Response<Opened>>, Error> {
        let upstream = &self.leg.upstream;
        let mut turn = None;
        if upstream.streams() == Streams::Unknown {
            turn = Some(upstream.turn_to_ask().await);
        }
        if upstream.streams() == Streams::None {
            return Ok(None);
        }
        let request = self.leg.listening(self.cursor.clone());
        let mut asked = pin!(events(&upstream.client, request, self.limit));
        if turn.is_none() {
            return asked.await.map(Some);
        }
        match timeout(TURN, asked.as_mut()).await {
            Ok(response) => response.map(Some),
            // Some send no head before there is something to say.
            Err(_) => {
                upstream.set_streams(Streams::Some);
                drop(turn.take());
                asked.await.map(Some)
            }
        }
    }

    fn note(&mut self, event: &Event) {
        self.fruitless = 0;
        if let Some(id) = &event.id {
            self.cursor = if id.is_empty() { None } else { HeaderValue::from_bytes(id.as_bytes()).ok() };
        }
        if let Some(retry) = event.retry {
            self.wait = Duration::from_millis(retry).clamp(SHORTEST, LONGEST);
        }
    }

    /// What the upstream says goes to the call it belongs to, else to whoever listens.
    async fn heard(&self, session: &Arc<Session>, event: &Event) {
        let Some(data) = event.data.as_ref().filter(|data| !data.is_empty()) else { return };
        // The upstream's ids mean nothing to a client.
        let relayed = Event { id: None, retry: None, ..event.clone() };
        let Ok(message) = Envelope::read(data.clone()) else { return session.hub().relay(relayed).await };
        self.leg.told(&message);
        match (message.kind(), message.method()) {
            (MessageKind::Notification, method::PROGRESS) => {
                let params = Params::peek(message.params());
                let token = params.progress_token().unwrap_or_default();
                if session.calls.progressed(token, data) != Some(Phase::Deferred) && !is_own_token(token) {
                    session.hub().relay(relayed).await;
                }
            }
            (MessageKind::Notification, method::TOOLS_LIST_CHANGED) => {
                session.set_catalog(None);
                session.hub().relay(relayed).await;
            }
            (MessageKind::Request, _) => self.asked(session, relayed, &message).await,
            _ => session.hub().relay(relayed).await,
        }
    }

    /// A question belongs to a call, if one is in flight; its client hears it where it listens.
    async fn asked(&self, session: &Arc<Session>, event: Event, message: &Envelope) {
        let Some(id) = message.id() else { return };
        let hub = session.hub();
        let is_ping = message.method() == method::PING;
        match session.calls.asker().filter(|_| !is_ping) {
            Some(call) if call.phase() == Phase::Held && hub.is_listening() => {
                call.ask(id, message.method());
                hub.relay(event).await;
            }
            Some(call) => call.put_question(message.text().clone()),
            // In the background nobody but taskgate answers a ping.
            None if is_ping && !session.calls.is_deferred() && hub.push_once(&event).is_some() => {}
            None if !is_ping && hub.push(event) => {}
            None => {
                let refusal = questions::refusal(id, message.method());
                drop(cancel::deliver(&self.worker.work, &self.leg, refusal));
            }
        }
    }
}
