//! `initialize`: a session begins, and both sides say what they can do.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use tokio::sync::oneshot;

use crate::call::{Answer, Body, Error, Outgoing, Step, Steps, outlet};
use crate::dialect::Dialect;
use crate::jsonrpc::{Edit, Envelope, Id, splice};
use crate::mcp::{ClientHello, Lists, OwnTasks, ServerHello, Version, header, with_extension, with_tasks};
use crate::session::{Hello, Repeated};
use crate::task::OwnerMode;

use super::caller::Caller;
use super::forward::response_of;
use super::{Framing, Gateway, Reply, upwards};

/// What a session begins with.
pub(super) struct Greeting<'a> {
    /// What the client said.
    pub(super) client: ClientHello,
    /// The id of the session, where the upstream gives none.
    pub(super) minted: Option<&'a str>,
    /// What each request is going to repeat, for an upstream without sessions.
    pub(super) repeated: Option<Arc<Repeated>>,
}

impl Gateway {
    pub(super) fn hello(&self, mut caller: Caller, message: &Envelope, id: &Id) -> Reply {
        if self.is_draining() {
            return self.fails(&caller, id, &Error::ShuttingDown);
        }
        caller.leg = caller.leg.without_session();
        let client = ClientHello::read(message.params());
        caller.extension = client.declares_tasks && self.inner.options.handshake_extension;
        if caller.extension {
            caller.dialect = Dialect::Ext;
        }
        if self.knows_only_stateless(&caller) {
            return self.hello_upwards(caller, message, id);
        }
        let (told, head) = oneshot::channel();
        let mut assignment = self.assignment(&caller, message.text().clone(), id);
        assignment.head = Some(told);
        assignment.log = None;
        assignment.inline = usize::MAX;
        let steps = self.inner.worker.start(assignment);
        let gateway = self.clone();
        let (method, dialect) = (caller.method, caller.dialect.word());
        let minted = caller.leg.upstream.options.mint_sessions.then(|| uuid::Uuid::new_v4().to_string());
        let ours = minted.clone();
        let name = move |headers: &mut HeaderMap| {
            if let Some(Ok(id)) = ours.as_deref().map(HeaderValue::from_str) {
                headers.entry(header::SESSION_ID).or_insert(id);
            }
        };
        let (message, id) = (message.clone(), id.clone());
        let steps = self.edited(steps, name, move |answer| async move {
            let head = head.await.unwrap_or_default();
            if upwards::is_refused(&answer)
                && let Some(answer) = gateway.find_out(&caller, &message, &id).await
            {
                return answer;
            }
            let greeting = Greeting { client, minted: minted.as_deref(), repeated: None };
            gateway.greeted(&caller, greeting, answer, &head)
        });
        Reply { outgoing: Outgoing::Later(steps), framing: Framing::AsItComes, method, dialect }
    }

    /// Remembers the session, and announces tasks to a client that declared them.
    pub(super) fn greeted(
        &self,
        caller: &Caller,
        Greeting { client, minted, repeated }: Greeting<'_>,
        mut answer: Answer,
        head: &HeaderMap,
    ) -> Answer {
        let heard = message_in(&answer);
        if repeated.is_none() {
            caller.leg.upstream.facts.heard_initialize(answer.status, heard.as_ref());
        }
        let Some(message) = heard.filter(|_| answer.status.is_success()) else { return answer };
        let Some(result) = message.result() else { return answer };
        let server = ServerHello::read(std::str::from_utf8(&result).unwrap_or_default());
        let announced = self.announced(caller, &server, &result);
        let upstream = &caller.leg.upstream;
        let id = head.get(header::SESSION_ID).and_then(|id| id.to_str().ok());
        upstream.answered_hello(id.or(minted.filter(|_| repeated.is_some())));
        let hello = Hello { client, server, repeated };
        let session = match id {
            Some(id) => Some(upstream.sessions.open(id, hello)),
            None => minted.map(|id| upstream.sessions.mint(id, hello)),
        };
        if let Some(session) = session {
            session.began_with(caller.credential());
            session.accepted(caller.leg.credential(), session.turn());
            session.keep_cookies(head);
            self.remember(upstream, &session);
            if session.minted
                && let Ok(id) = HeaderValue::from_str(&session.id)
            {
                answer.headers.insert(header::SESSION_ID, id);
            }
        }
        if announced != result
            && let Some(at) = message.result_at()
        {
            let edited = announced;
            let edit = Edit::new(at, String::from_utf8_lossy(&edited));
            answer.body = Body::Message(splice(message.text(), vec![edit]));
        }
        answer
    }

    /// The result of `initialize` with what taskgate adds; nothing if the upstream speaks tasks itself.
    fn announced(&self, caller: &Caller, server: &ServerHello, result: &Bytes) -> Bytes {
        // Nobody could own a task.
        if server.own_tasks != OwnTasks::None || self.inner.options.owner == OwnerMode::Principal {
            return result.clone();
        }
        let mut result = result.clone();
        if server.version >= Version::V2025_11_25 {
            let lists = match self.inner.options.owner {
                OwnerMode::Session => Lists::Offered,
                OwnerMode::Auto | OwnerMode::Principal | OwnerMode::Id => Lists::Not,
            };
            result = with_tasks(&result, lists);
        }
        if caller.extension { with_extension(&result) } else { result }
    }

    /// The same steps with other headers and another answer; a client that leaves is noticed.
    ///
    /// The head of a stream is held back until something worth sending comes: if that is the answer, the client gets
    /// it with all that is known by then.
    pub(super) fn edited<H, F, A>(&self, mut from: Steps, head: H, edit: F) -> Steps
    where
        H: Fn(&mut HeaderMap) + Send + 'static,
        F: FnOnce(Answer) -> A + Send + 'static,
        A: Future<Output = Answer> + Send,
    {
        let (to, receiver) = outlet(1, None);
        drop(self.inner.worker.work.spawn(async move {
            let mut opened = None;
            loop {
                let step = tokio::select! {
                    step = from.recv() => step,
                    () = to.closed() => return,
                };
                match step {
                    Some(Step::Done(answer, _)) => return to.done(edit(*answer).await).await,
                    Some(Step::Open(headers)) => opened = Some(headers),
                    Some(Step::Hold) => to.hold().await,
                    // A priming event: there is nothing to resume here.
                    Some(Step::Event(event)) if event.data.as_ref().is_none_or(Bytes::is_empty) => {}
                    Some(Step::Event(event)) => {
                        if let Some(mut headers) = opened.take() {
                            head(&mut headers);
                            to.open(*headers).await;
                        }
                        to.event(*event).await;
                    }
                    None => return,
                }
            }
        }));
        receiver
    }
}

/// The response that an answer is.
pub(super) fn message_in(answer: &Answer) -> Option<Envelope> {
    match &answer.body {
        Body::Message(text) => response_of(text),
        Body::Empty | Body::Pass(_) | Body::Foreign(..) | Body::Silence => None,
    }
}

/// The result in an answer, with where it lies.
pub(super) fn result_in(answer: &Answer) -> Option<(Envelope, Bytes)> {
    let message = message_in(answer)?;
    let result = message.result()?;
    Some((message, result))
}
