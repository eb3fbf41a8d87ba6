//! A stateless client in front of an upstream that only opens sessions: taskgate has sessions in its name, and
//! translates both ways.

mod news;
mod open;
mod phrase;
mod pool;
mod retry;

use std::borrow::Cow;
use std::sync::Arc;

use http::StatusCode;
use sha2::{Digest, Sha256};
use tracing::debug;

use crate::call::{Answer, Error, Outgoing, Outlet, Side, Step, Steps, outlet};
use crate::jsonrpc::{Envelope, Id, canonical, entries, rope_response};
use crate::mcp::rounds::Retry;
use crate::mcp::{Params, STATELESS, downward, fresh_token, method, routing};
use crate::upstream::BridgeSessions;
use crate::worker::Reach;

use super::caller::Caller;
use super::{Framing, Gateway, Handling, Reply, Request, Route, stateless};
use open::{Alone, Opened};
use phrase::Phrase;
use pool::{Got, Kind, Owner, Share};

pub(super) use news::Told;
pub(super) use pool::Pools;
pub(super) use retry::{answers, purpose, rejected};

/// Methods that the stateless era does not have.
const REMOVED: [&str; 5] =
    [method::INITIALIZE, method::PING, method::SET_LEVEL, method::SUBSCRIBE, method::UNSUBSCRIBE];

/// How often a request is tried: once more if its session was lost.
const ATTEMPTS: usize = 2;

/// One stateless request on its way.
#[derive(Clone)]
struct Crossing {
    gateway: Gateway,
    route: Arc<Route>,
    request: Arc<Request>,
    message: Envelope,
    id: Id,
}

/// A request's hold on its session.
#[derive(Clone, Debug)]
enum Lease {
    /// One that its owner's requests share.
    Shared(Arc<Share>),
    /// One of its own.
    Own(Arc<Alone>),
}

impl Lease {
    fn opened(&self) -> &Arc<Opened> {
        match self {
            Self::Shared(share) => share.opened(),
            Self::Own(alone) => &alone.0,
        }
    }

    fn forget(&self) {
        match self {
            Self::Shared(share) => share.forget(),
            Self::Own(_) => {}
        }
    }
}

impl Gateway {
    pub(super) fn bridged(&self, route: Arc<Route>, request: Request, message: Envelope, id: &Id) -> Reply {
        let caller = self.alone(&route, &request, (&message, &Params::peek(message.params())));
        if let Err(error) = self.check_crossing(&caller, &request, &message) {
            return self.fails(&caller, id, &error);
        }
        let (to, receiver) = outlet(1, None);
        let reply = caller.reply(Outgoing::Later(receiver));
        let crossing = Crossing { gateway: self.clone(), route, request: Arc::new(request), message, id: id.clone() };
        drop(self.inner.worker.work.spawn(async move {
            tokio::select! {
                () = crossing.run(&to) => {}
                // It withdraws its request by leaving.
                () = to.closed() => {}
            }
        }));
        Reply { framing: Framing::Either, ..reply }
    }

    fn check_crossing(&self, caller: &Caller, request: &Request, message: &Envelope) -> Result<(), Error> {
        stateless::checked(request, message)?;
        if Retry::is_odd(message.params()) {
            return Err(retry::rejected());
        }
        if REMOVED.contains(&message.method()) {
            return Err(Error::MethodNotFound(format!("{} is not part of {STATELESS}", message.method())));
        }
        if message.method() != method::TOOLS_CALL {
            return Ok(());
        }
        let params = Params::peek(message.params());
        check_arguments(caller, request, &params)?;
        self.check_call(caller, &params)
    }
}

impl Crossing {
    async fn run(&self, to: &Outlet) {
        if let Some(answer) = self.own_job().await {
            return self.finish(answer, to).await;
        }
        if let Some(state) = Retry::read(self.message.params()).request_state {
            return self.come_back(&state, to).await;
        }
        if self.message.method() == method::TOOLS_CALL && self.gateway.is_draining() {
            let refused = self.gateway.fails(&self.caller(), &self.id, &Error::ShuttingDown);
            return self.finish(refused.outgoing, to).await;
        }
        for attempt in 1..=ATTEMPTS {
            let lease = match self.lease(pool::Purpose::Request).await {
                Ok(lease) => lease,
                Err(answer) => {
                    self.gateway.tally(&self.caller()).done(Side::Upstream);
                    return to.done(self.phrase(None).answer(answer)).await;
                }
            };
            if self.message.method() == method::DISCOVER {
                self.gateway.tally(&self.caller()).done(Side::None);
                return to.done(self.discovered(lease.opened())).await;
            }
            let phrase = self.phrase(Some(lease.opened()));
            if phrase.log_level.is_some() {
                lease.opened().want_logs().await;
            }
            let is_last = attempt == ATTEMPTS;
            match self.attempt(&lease, &phrase).await {
                Outgoing::Now(answer) => return to.done(phrase.answer(answer)).await,
                Outgoing::Later(steps) => match pump(steps, to, &phrase, is_last).await {
                    Some(answer) => {
                        if lease.opened().is_there().await {
                            return to.done(phrase.answer(answer)).await;
                        }
                        debug!("the upstream has lost a session: another is opened");
                        lease.forget();
                    }
                    None => return,
                },
            }
        }
    }

    /// A retry needs no session: its call has one.
    async fn come_back(&self, state: &str, to: &Outlet) {
        let mut caller = self.caller();
        caller.reach = Reach::Retry(retry::purpose(&caller, &self.message));
        self.finish(self.gateway.retried(&caller, &self.message, state, &self.id).outgoing, to).await;
    }

    /// A job of ours is read and cancelled without asking the upstream for anything.
    async fn own_job(&self) -> Option<Outgoing> {
        let params = Params::peek(self.message.params());
        let tool = params.name().filter(|_| self.message.method() == method::TOOLS_CALL)?;
        let kind = self.gateway.job_tool(&tool)?;
        let arguments = entries(params.arguments().unwrap_or_default());
        let id = arguments.get("job_id").and_then(|text| serde_json::from_str::<String>(text).ok());
        if !self.gateway.is_ours(id.as_deref()).await {
            return None;
        }
        let caller = self.caller();
        let call = self.gateway.job_call(&caller, kind, &self.message).await?;
        Some(self.gateway.job(caller, call, &self.id).await.outgoing)
    }

    async fn finish(&self, outgoing: Outgoing, to: &Outlet) {
        let phrase = self.phrase(None);
        match outgoing {
            Outgoing::Now(answer) => to.done(phrase.answer(answer)).await,
            Outgoing::Later(steps) => drop(pump(steps, to, &phrase, true).await),
        }
    }

    /// Who asks, outside of any session.
    fn caller(&self) -> Caller {
        let params = Params::peek(self.message.params());
        self.gateway.alone(&self.route, &self.request, (&self.message, &params))
    }

    /// The request in its session, as one of the handshake era.
    async fn attempt(&self, lease: &Lease, phrase: &Phrase) -> Outgoing {
        let params = Params::peek(self.message.params());
        let leg = lease.opened().leg(&self.route.upstream, &self.request);
        let mut caller =
            Caller::stateless(&self.gateway.inner, self.route.clone(), leg, &self.request, (&self.message, &params));
        caller.reach = Reach::Retry(retry::purpose(&caller, &self.message));
        let need = (caller.method == method::TOOLS_CALL)
            .then(|| self.gateway.inner.worker.attend(&caller.leg, self.gateway.inner.options.max_result));
        caller.kept = Some(Arc::new((lease.clone(), need)));
        let token = phrase.token.as_ref().map(|(ours, _)| ours.as_str());
        let Ok(message) = Envelope::read(downward::request(&self.message, token)) else {
            let unread = Error::InvalidRequest("the request cannot be read".into());
            return self.gateway.fails(&caller, &self.id, &unread).outgoing;
        };
        let text = message.clone();
        match self.gateway.request(caller, text, &Params::peek(message.params()), &self.id) {
            Handling::Ready(reply) => reply.outgoing,
            Handling::Later(reply) => reply.await.outgoing,
        }
    }

    /// The session this request goes to.
    async fn lease(&self, purpose: pool::Purpose) -> Result<Lease, Answer> {
        let params = Params::peek(self.message.params());
        let upstream = &self.route.upstream;
        let caller = self.caller();
        let bridging = upstream.options.bridging;
        if caller.credential().is_none() && bridging.sessions == BridgeSessions::Owner {
            return self.opening(|opened| Lease::Own(Arc::new(Alone(opened)))).await;
        }
        let owner = Owner { path: upstream.options.path.clone(), credential: caller.credential() };
        let kind = Kind {
            capabilities: digest(&[params.meta().capabilities.unwrap_or("{}")]),
            query: self.request.query.clone(),
        };
        match self.gateway.inner.pools.of(owner, bridging.max_sessions.0).get(&kind, purpose).await {
            Got::Share(share) => Ok(Lease::Shared(Arc::new(share))),
            Got::Turn(turn, closed) => {
                if let Some(closed) = closed {
                    closed.close().await;
                }
                self.opening(move |opened| Lease::Shared(Arc::new(turn.opened(&opened)))).await
            }
        }
    }

    /// Opens a session, in a task of its own: what has begun is not left half done when the client leaves.
    async fn opening(&self, lease: impl FnOnce(Arc<Opened>) -> Lease + Send + 'static) -> Result<Lease, Answer> {
        let crossing = self.clone();
        let opened = self.gateway.inner.worker.work.spawn(async move {
            let params = open::parameters(&Params::peek(crossing.message.params()));
            let opened = crossing.gateway.open(&crossing.caller(), &crossing.request, &crossing.id, &params).await?;
            Ok(lease(Arc::new(opened)))
        });
        match opened.await {
            Ok(lease) => lease,
            Err(_) => Err(Answer::empty(StatusCode::BAD_GATEWAY)),
        }
    }

    fn discovered(&self, opened: &Opened) -> Answer {
        let result = downward::discover(&opened.told, &[STATELESS]);
        Answer::rope(rope_response(&self.id, result.into()))
    }

    fn phrase(&self, opened: Option<&Arc<Opened>>) -> Phrase {
        let params = Params::peek(self.message.params());
        let meta = params.meta();
        Phrase {
            token: meta.progress_token.map(|clients| (fresh_token(), clients.to_owned())),
            log_level: meta.log_level.map(Cow::into_owned),
            server_info: opened.and_then(|opened| opened.server_info.clone()),
            session: opened.map(|opened| opened.session.id.clone()),
            method: self.message.method().to_owned(),
            id: self.id.clone(),
        }
    }
}

/// The upstream knows nothing of headers that repeat arguments: they are judged here, as far as the tool is known.
fn check_arguments(caller: &Caller, request: &Request, params: &Params<'_>) -> Result<(), Error> {
    let catalog = caller.catalog();
    let schema = params.name().zip(catalog.as_deref()).and_then(|(tool, catalog)| catalog.routed_by(&tool));
    let Some((schema, arguments)) = schema.zip(params.arguments()) else { return Ok(()) };
    let header = |name: &str| request.headers.get(name).map(http::HeaderValue::as_bytes);
    routing::check_arguments(schema, arguments, header).map_err(|mismatch| Error::HeaderMismatch(mismatch.to_string()))
}

/// Passes steps on in the words of the stateless era. Returns the answer, and has passed nothing, if that may say that
/// the upstream has lost the session, unless this is the last attempt.
async fn pump(mut steps: Steps, to: &Outlet, phrase: &Phrase, is_last: bool) -> Option<Answer> {
    let mut opened = None;
    while let Some(step) = steps.recv().await {
        match step {
            Step::Done(answer, _) if !is_last && phrase::may_be_lost(&answer) => return Some(*answer),
            Step::Done(answer, _) => {
                to.done(phrase.answer(*answer)).await;
                return None;
            }
            Step::Open(headers) => opened = Some(headers),
            Step::Hold => to.hold().await,
            Step::Event(event) => {
                let Some(event) = phrase.event(*event) else { continue };
                if let Some(mut headers) = opened.take() {
                    headers.remove(crate::mcp::header::SESSION_ID);
                    to.open(*headers).await;
                }
                to.event(event).await;
            }
        }
    }
    None
}

fn digest(parts: &[&str]) -> [u8; 32] {
    let mut digest = Sha256::new();
    for part in parts {
        let text = canonical(part).unwrap_or_else(|| (*part).to_owned());
        digest.update((text.len() as u64).to_be_bytes());
        digest.update(text.as_bytes());
    }
    digest.finalize().into()
}
