//! `initialize`: a session begins, and both sides say what they can do.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use tokio::sync::{mpsc, oneshot};

use crate::call::{Answer, Body, Error, Outgoing, Step};
use crate::jsonrpc::{Edit, Envelope, Id, splice};
use crate::mcp::{ClientHello, ServerHello, header, with_extension};
use crate::session::Hello;

use super::caller::Caller;
use super::forward::response_of;
use super::{Framing, Gateway, Reply};

impl Gateway {
    pub(super) fn hello(&self, mut caller: Caller, message: &Envelope, id: &Id) -> Reply {
        if self.is_draining() {
            return self.fails(&caller, id, &Error::ShuttingDown);
        }
        caller.leg = caller.leg.without_session();
        let client = ClientHello::read(message.params());
        let (told, head) = oneshot::channel();
        let mut assignment = self.assignment(&caller, message.text().clone(), id);
        assignment.head = Some(told);
        assignment.inline = usize::MAX;
        let steps = self.inner.worker.start(assignment);
        let gateway = self.clone();
        let (method, dialect) = (caller.method, caller.dialect.word());
        let steps = self.edited(steps, move |answer| async move {
            let head = head.await.unwrap_or_default();
            gateway.greeted(&caller, client, answer, &head)
        });
        Reply { outgoing: Outgoing::Later(steps), framing: Framing::AsItComes, method, dialect }
    }

    /// Remembers the session, and announces tasks to a client that declared them.
    fn greeted(&self, caller: &Caller, client: ClientHello, mut answer: Answer, head: &HeaderMap) -> Answer {
        let Body::Message(text) = &answer.body else { return answer };
        let Some(message) = response_of(text).filter(|_| answer.status.is_success()) else { return answer };
        let Some(result) = message.result() else { return answer };
        let server = ServerHello::read(std::str::from_utf8(&result).unwrap_or_default());
        let announces = client.declares_tasks && self.inner.options.handshake_extension && !server.speaks_tasks;
        let upstream = &caller.leg.upstream;
        let id = head.get(header::SESSION_ID).and_then(|id| id.to_str().ok());
        upstream.answered_hello(id);
        let hello = Hello { client, server };
        let session = match id {
            Some(id) => Some(upstream.sessions.open(id, hello)),
            None => upstream.options.mint_sessions.then(|| upstream.sessions.mint(hello)),
        };
        if let Some(session) = session {
            session.accepted(caller.leg.credential(), head);
            if session.minted
                && let Ok(id) = HeaderValue::from_str(&session.id)
            {
                answer.headers.insert(header::SESSION_ID, id);
            }
        }
        if announces && let Some(at) = message.result_at() {
            let edited = with_extension(&result);
            let edit = Edit::new(at, String::from_utf8_lossy(&edited));
            answer.body = Body::Message(splice(message.text(), vec![edit]));
        }
        answer
    }

    /// The same steps with another answer: what comes before it passes, and a client that leaves is noticed.
    pub(super) fn edited<F, A>(&self, mut from: mpsc::Receiver<Step>, edit: F) -> mpsc::Receiver<Step>
    where
        F: FnOnce(Answer) -> A + Send + 'static,
        A: Future<Output = Answer> + Send,
    {
        let (to, receiver) = mpsc::channel(1);
        drop(self.inner.worker.work.spawn(async move {
            loop {
                let step = tokio::select! {
                    step = from.recv() => step,
                    () = to.closed() => return,
                };
                match step {
                    Some(Step::Done(answer)) => {
                        let answer = edit(*answer).await;
                        let _ = to.send(Step::done(answer)).await;
                        return;
                    }
                    // The answer brings these headers again, edited.
                    Some(Step::Open(_)) => {}
                    Some(Step::Event(event)) => drop(to.send(Step::Event(event)).await),
                    None => return,
                }
            }
        }));
        receiver
    }
}

/// The result in an answer, with where it lies.
pub(super) fn result_in(answer: &Answer) -> Option<(Envelope, Bytes)> {
    let Body::Message(text) = &answer.body else { return None };
    let message = response_of(text)?;
    let result = message.result()?;
    Some((message, result))
}
