//! `subscriptions/listen` (2026-07-28, SEP-2663): a stream on which a client is told of its tasks, and of lists and
//! resources.
//!
//! - Tasks are told of in both eras, lists and resources where a stateless client asks (contract §13). The first message
//!   says what is honoured: of tasks those that the client may see, all others are left out as if they did not exist.
//!   The state of each follows at once, and then each change of it.
//! - Where the upstream has subscriptions of its own, all that is not ours goes on to it, and there is one
//!   acknowledgement for both. Where it only opens sessions, it tells in those: [`super::bridge`].
//! - Nothing queues for a client that reads slowly: a task, a list, a resource is told of as it stands when there is
//!   room. A stream that broke is not taken up again, since a new one begins with the state of everything.
//! - Closing the stream cancels nothing. It ends with a result when its session is deleted or the process goes down.

mod tasks;
mod upstream;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use tokio::time::timeout;

use crate::call::{Answer, Error, Event, Outgoing, Outlet, Side, outlet};
use crate::dialect::ext;
use crate::jsonrpc::{Envelope, Id};
use crate::mcp::subscription::{self, Filter};
use crate::mcp::{Era, Params};
use crate::session::Session;
use crate::task::{Event as Change, Status, Task, TaskId};
use crate::upstream::Leg;
use crate::worker::failed;

use super::bridge::Told;
use super::caller::Caller;
use super::eras::Ground;
use super::stateless::checked;
use super::tasks::unavailable;
use super::{Gateway, Reply, Request, Route, access};

use tasks::Follow;
use upstream::{Answered, Relayed};

/// How long a client that does not read is waited for when its stream is to end.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How long the outcomes of its tasks are then told.
const LAST_LOOK: Duration = Duration::from_millis(300);

/// Where a client hears of what is not a task of ours.
enum Source {
    /// Nowhere.
    None,
    /// In a session that taskgate has for it.
    Session(Box<Told>),
    /// On the upstream's own stream.
    Stream(Box<Relayed>),
}

/// What there is to tell.
enum Came {
    /// A task has changed.
    Task(TaskId),
    /// Somebody else said this.
    Said(Bytes),
    /// Nobody else says anything any more.
    Silence,
    /// The client has left.
    Left,
    /// The stream ends.
    End,
}

/// One stream.
struct Subscription {
    gateway: Gateway,
    caller: Caller,
    id: Id,
    /// The tasks to tell of, in the order in which they were named.
    tasks: Vec<Task>,
    to: Outlet,
}

impl Gateway {
    /// A client in a handshake session listens to its tasks. What names none passes, as any method does.
    pub(super) async fn subscribe(&self, caller: Caller, message: &Envelope, id: &Id) -> Reply {
        if !subscription::names_tasks(message.params()) && !caller.extension {
            return self.forward(&caller, message, id);
        }
        let filter = match self.judged(&caller, message) {
            Ok(filter) => filter,
            Err(error) => return self.fails(&caller, id, &error),
        };
        let Some(named) = &filter.task_ids else { return self.forward(&caller, message, id) };
        if !caller.may_stream() {
            return self.wants_stream(&caller, id);
        }
        let tasks = match self.own_of(&caller, named).await {
            Ok(tasks) => tasks,
            Err(error) => return self.fails(&caller, id, &error),
        };
        // Of other tasks such an upstream knows nothing.
        let rest = subscription::asks_for_more(message.params()).then(|| subscription::request(message, &[]));
        let (leg, limit) = (caller.leg.clone(), self.inner.options.max_result);
        self.tells((caller, id, tasks), move |_| async move {
            match rest {
                Some(body) => upstream::open(&leg, (body, Era::Handshake), limit).await,
                None => Answered::Nothing,
            }
        })
    }

    /// A stateless client listens.
    pub(super) async fn subscribe_stateless(
        &self,
        ground: Ground,
        (route, request): (Arc<Route>, Request),
        message: Envelope,
        id: &Id,
    ) -> Reply {
        if ground != Ground::Bridged && !subscription::names_tasks(message.params()) {
            return self.sealed(&route, &request, &message);
        }
        let caller = self.alone(&route, &request, (&message, &Params::peek(message.params())));
        let judged = checked(&request, &message).and_then(|()| self.judged(&caller, &message));
        let filter = match judged {
            Ok(filter) => filter,
            Err(error) => return self.fails(&caller, id, &error),
        };
        if !caller.may_stream() {
            return self.wants_stream(&caller, id);
        }
        let named = filter.task_ids.clone().unwrap_or_default();
        let tasks = match self.own_of(&caller, &named).await {
            Ok(tasks) => tasks,
            Err(error) => return self.fails(&caller, id, &error),
        };
        if ground == Ground::Bridged {
            let gateway = self.clone();
            return self.tells((caller, id, tasks), |id| async move {
                gateway.hear_session((route, request, message), id, filter).await
            });
        }
        let others: Vec<String> = named.into_iter().filter(|id| !tasks.iter().any(|task| names(id, task))).collect();
        let is_for_both = subscription::asks_for_more(message.params()) || !others.is_empty();
        let leg = Leg::new(route.upstream.clone(), None, &request.headers, request.query.as_deref());
        let (body, limit) = (subscription::request(&message, &others), self.inner.options.max_result);
        self.tells((caller, id, tasks), move |_| async move {
            if is_for_both { upstream::open(&leg, (body, Era::Stateless), limit).await } else { Answered::Nothing }
        })
    }

    /// What a stateless client is told of an upstream that only opens sessions.
    async fn hear_session(&self, stateless: (Arc<Route>, Request, Envelope), id: Id, filter: Filter) -> Answered {
        if !filter.is_for_more_than_tasks() {
            return Answered::Nothing;
        }
        match self.hear_news(stateless, &id, &filter).await {
            Ok((told, honoured)) => Answered::Session(Box::new(told), honoured),
            Err(answer) => Answered::Refused(answer),
        }
    }

    /// What is asked for, if the client may ask for it.
    fn judged(&self, caller: &Caller, message: &Envelope) -> Result<Filter, Error> {
        if subscription::names_tasks(message.params()) && !caller.extension {
            let what = "listening to tasks is for clients that declare the extension io.modelcontextprotocol/tasks";
            return Err(match caller.era {
                Era::Handshake => Error::InvalidParams(format!("{what}, in initialize or in this request")),
                Era::Stateless => Error::TasksUndeclared("listening to tasks is for clients that declare them".into()),
            });
        }
        caller.check_version()?;
        Filter::read(message.params()).map_err(|wrong| Error::InvalidParams(wrong.to_string()))
    }

    /// The tasks among these that the caller may see, in this order.
    async fn own_of(&self, caller: &Caller, named: &[String]) -> Result<Vec<Task>, Error> {
        let worker = &self.inner.worker;
        let mut own: Vec<Task> = Vec::new();
        for id in named {
            let found = access::find(worker, caller, id).await.map_err(|error| unavailable(&error))?;
            let found = found.filter(|task| !task.is_expired(worker.tasks.now()));
            own.extend(found.filter(|task| own.iter().all(|known| known.id != task.id)));
        }
        Ok(own)
    }

    /// The only form of the answer is a stream of its own.
    fn wants_stream(&self, caller: &Caller, id: &Id) -> Reply {
        let text = "subscriptions/listen is answered with an event stream: accept text/event-stream, and send it alone";
        let error = Error::InvalidRequest(text.into());
        self.tally(caller).done(error.side());
        let answer = failed(&error, id, caller.standing());
        caller.reply(Answer { status: StatusCode::NOT_ACCEPTABLE, ..answer })
    }

    /// Tells a client of its `tasks`, and of what `open` brings.
    fn tells<F>(&self, (caller, id, tasks): (Caller, &Id, Vec<Task>), open: impl FnOnce(Id) -> F) -> Reply
    where
        F: Future<Output = Answered> + Send + 'static,
    {
        let (to, receiver) = outlet(1, None);
        let reply = caller.reply(Outgoing::Later(receiver));
        let opening = open(id.clone());
        let stream = Subscription { gateway: self.clone(), caller, id: id.clone(), tasks, to };
        let work = self.inner.worker.work.clone();
        drop(self.inner.worker.work.spawn(async move {
            let answered = tokio::select! {
                answered = opening => answered,
                () = stream.to.closed() => Answered::Nothing,
                () = work.severed() => Answered::Nothing,
            };
            stream.begin(answered).await;
        }));
        reply
    }
}

impl Subscription {
    /// The acknowledgement, and all that follows it.
    async fn begin(self, answered: Answered) {
        let ours: Vec<String> = self.tasks.iter().map(|task| task.id.to_string()).collect();
        // Who names tasks is told which, also if it is none of them.
        let alone = |more: Filter| {
            let task_ids = self.caller.extension.then(|| ours.clone());
            subscription::acknowledged(&self.id, &Filter { task_ids, ..more })
        };
        let (first, source) = match answered {
            Answered::Nothing => (alone(Filter::default()), Source::None),
            Answered::Session(told, honoured) => (alone(honoured), Source::Session(told)),
            Answered::Stream(acknowledgement, stream) => {
                let first = match acknowledgement {
                    Some(theirs) => subscription::acknowledged_too(&theirs, &self.id, &ours),
                    None => alone(Filter::default()),
                };
                (first, Source::Stream(stream))
            }
            Answered::Refused(answer) => {
                self.gateway.tally(&self.caller).done(Side::Upstream);
                return self.to.done(answer).await;
            }
        };
        self.run(first, source).await;
    }

    async fn run(self, first: Bytes, mut source: Source) {
        let session = self.caller.session().cloned();
        let _kept = session.as_ref().map(Session::keep);
        let worker = self.gateway.inner.worker.clone();
        let mut follow = Follow::new(&worker.tasks, self.tasks.iter().map(|task| task.id));
        if self.say(first).await {
            loop {
                match self.came(&follow, &mut source).await {
                    Came::Task(id) => self.tell(&mut follow, id).await,
                    Came::Said(text) => drop(self.say(text).await),
                    Came::Silence if self.tasks.is_empty() => break,
                    Came::Silence => source = Source::None,
                    Came::Left => return self.gateway.tally(&self.caller).done(Side::None),
                    Came::End => break,
                }
            }
        }
        drop(source);
        self.gateway.tally(&self.caller).done(Side::None);
        // Whoever runs a task that is cut off writes its end down now.
        let outcomes = async {
            for id in follow.unsaid() {
                self.tell_now(&mut follow, id).await;
            }
            while worker.work.is_severed() && follow.goes_on() {
                let id = follow.next().await;
                self.tell_now(&mut follow, id).await;
            }
        };
        drop(timeout(LAST_LOOK, outcomes).await);
        let end = self.to.done(Answer::message(StatusCode::OK, subscription::ended(&self.id)));
        drop(timeout(LAST_WORDS, end).await);
    }

    /// Cancel safe.
    async fn came(&self, follow: &Follow, source: &mut Source) -> Came {
        tokio::select! {
            id = follow.next() => Came::Task(id),
            said = source.next(&self.id) => said.map_or(Came::Silence, Came::Said),
            () = self.to.closed() => Came::Left,
            () = self.ends() => Came::End,
        }
    }

    /// Resolves when the stream has to end from this side. Cancel safe.
    async fn ends(&self) {
        let deleted = async {
            match self.caller.session() {
                Some(session) => session.ended().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = deleted => {}
            () = self.gateway.inner.worker.work.severed() => {}
        }
    }

    /// Tells how a task stands, if its client has not heard that yet.
    async fn tell(&self, follow: &mut Follow, id: TaskId) {
        let is_told = tokio::select! {
            () = self.tell_now(follow, id) => true,
            () = self.ends() => false,
        };
        if !is_told {
            follow.later(id);
        }
    }

    async fn tell_now(&self, follow: &mut Follow, id: TaskId) {
        let Some(task) = follow.look(id).await else { return };
        let tasks = &self.gateway.inner.worker.tasks;
        let result = match task.status {
            Status::Completed { .. } => match tasks.result(id).await {
                Ok(Some(result)) => Some(self.caller.as_read(result)),
                // Gone in between.
                Ok(None) => return follow.told(&task),
                Err(_) => return follow.later(id),
            },
            Status::Working { .. }
            | Status::InputRequired { .. }
            | Status::Failed { .. }
            | Status::Cancelled { .. } => None,
        };
        let text = ext::changed(&task, result, tasks.now(), &subscription::meta(&self.id)).join();
        self.to.event(Event { data: Some(text), ..Event::default() }).await;
        follow.told(&task);
        if task.status.ended().is_some() && !task.fetched && self.to.is_read() {
            let _ = tasks.apply(id, Change::Fetched, None).await;
        }
    }

    /// Says something; `false` if the stream has to end meanwhile.
    async fn say(&self, text: Bytes) -> bool {
        tokio::select! {
            () = self.to.event(Event { data: Some(text), ..Event::default() }) => true,
            () = self.ends() => false,
        }
    }
}

impl Source {
    /// What comes next, as a message of the subscription `id`; `None` when nothing comes any more. Cancel safe.
    async fn next(&mut self, id: &Id) -> Option<Bytes> {
        match self {
            Self::None => std::future::pending().await,
            Self::Session(told) => Some(told.next(id).await),
            Self::Stream(stream) => stream.next(id).await,
        }
    }
}

/// Whether a client's word for a task means this one.
fn names(text: &str, task: &Task) -> bool {
    text.trim().parse() == Ok(task.id)
}
