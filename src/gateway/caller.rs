//! Who asks, and how they can be answered.

use std::any::Any;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use tokio::time::Instant;

use crate::call::{Error, Outgoing, Priming, Standing};
use crate::dialect::{Declared, Dialect, JobNames, Spelling, reading, select};
use crate::jsonrpc::{Envelope, Rope, entries};
use crate::mcp::{
    Abilities, Era, OwnTasks, Params, Version, header, method, upward, with_result_type, without_result_type,
};
use crate::session::{Catalog, Habit, Session};
use crate::task::{Fingerprint, Identity, Task};
use crate::upstream::{Leg, Speaks};
use crate::worker::{Listener, Reach};

use super::{Framing, Inner, Reply, Request, Route, session_id, word};

/// How many characters of a program's name are remembered.
const MAX_PROGRAM: usize = 200;

/// One caller, for the length of one request.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) route: Arc<Route>,
    pub(super) leg: Leg,
    pub(super) identity: Identity,
    /// The era it asks in.
    pub(super) era: Era,
    pub(super) dialect: Dialect,
    /// The version that its session negotiated, else the one its request names.
    pub(super) version: Version,
    /// Whether it declares the tasks extension, by its session or in this request.
    pub(super) extension: bool,
    /// What it can be asked.
    pub(super) abilities: Abilities,
    pub(super) received: Instant,
    pub(super) method: &'static str,
    /// How it can be asked something before it has its answer.
    pub(super) reach: Reach,
    /// Why taskgate answers nothing but an error by itself, if it does not.
    pub(super) unfit: Option<Error>,
    /// What its call needs until it has ended.
    pub(super) kept: Option<Arc<dyn Any + Send + Sync>>,
    takes_events: bool,
    is_alone: bool,
    /// The program it says it is, by its request alone.
    program: Option<String>,
    peer: IpAddr,
}

impl Caller {
    /// The caller of `message`; `known` is the session it names, if that is known here.
    pub(super) fn new(
        gateway: &Inner,
        route: Arc<Route>,
        known: Option<Arc<Session>>,
        request: &Request,
        (message, params): (&Envelope, &Params<'_>),
    ) -> Self {
        let meta = params.meta();
        let upstream = route.upstream.clone();
        // A session that began elsewhere, on another replica or before a restart.
        let session = known.or_else(|| {
            let id = session_id(&request.headers).filter(|_| message.method() != method::INITIALIZE)?;
            Some(upstream.sessions.find_or_adopt(id))
        });
        let hello = session.as_ref().and_then(|session| session.hello());
        let extension = gateway.options.handshake_extension
            && (meta.declares_tasks || hello.is_some_and(|hello| hello.client.declares_tasks));
        let version =
            hello.map_or_else(|| stated(request.headers.get(header::PROTOCOL_VERSION)), |hello| hello.server.version);
        let abilities = match (hello, meta.abilities, &session) {
            (_, Some(abilities), _) => abilities,
            (Some(hello), None, _) => hello.client.abilities,
            (None, None, Some(_)) => Abilities::ALL,
            (None, None, None) => Abilities::default(),
        };
        let own_tasks = hello.map(|hello| hello.server.own_tasks).unwrap_or_default();
        let asks_for_task = message.method() == method::TOOLS_CALL && params.task().is_some();
        // What the upstream announces as its own is not ours to give.
        let extension = extension && own_tasks == OwnTasks::None;
        let leg = Leg::new(upstream, session, &request.headers, request.query.as_deref());
        let identity = gateway.identity(&leg);
        if let Some(session) = &leg.session {
            session.began_with(identity.credential);
        }
        Self {
            route,
            identity,
            era: Era::Handshake,
            dialect: select(Declared { version, asks_for_task, extension }),
            version,
            extension,
            abilities,
            received: request.received,
            method: word(message),
            reach: reach_of(request),
            unfit: None,
            kept: None,
            takes_events: request.takes_events,
            is_alone: true,
            program: None,
            peer: request.peer,
            leg,
        }
    }

    /// The caller of a request of the stateless era, on its way `leg`; its request says all there is to know of it.
    pub(super) fn stateless(
        gateway: &Inner,
        route: Arc<Route>,
        leg: Leg,
        request: &Request,
        (message, params): (&Envelope, &Params<'_>),
    ) -> Self {
        let meta = params.meta();
        let credential = leg.credential().map(|value| gateway.fingerprints.credential(value.as_bytes()));
        let extension = meta.declares_tasks;
        Self {
            route,
            identity: Identity { credential, session: None },
            era: Era::Stateless,
            dialect: if extension { Dialect::Ext } else { Dialect::Job },
            version: Version::Later,
            extension,
            abilities: meta.abilities.unwrap_or_default(),
            received: request.received,
            method: word(message),
            reach: reach_of(request),
            unfit: None,
            kept: None,
            takes_events: request.takes_events,
            is_alone: true,
            program: meta.client_info.map(program),
            peer: request.peer,
            leg,
        }
    }

    /// One of several whose answers are merged: a stream of its own could not be taken up again.
    pub(super) fn in_batch(self) -> Self {
        Self { is_alone: false, ..self }
    }

    /// Whether its answer can become a stream of its own.
    pub(super) fn may_stream(&self) -> bool {
        self.takes_events && self.is_alone
    }

    pub(super) fn session(&self) -> Option<&Arc<Session>> {
        self.leg.session.as_ref()
    }

    /// How it stands: it decides the HTTP status of errors.
    pub(super) fn standing(&self) -> Standing {
        match (self.era, &self.leg.session) {
            (Era::Stateless, _) => Standing::Stateless,
            (Era::Handshake, Some(_)) => Standing::Session,
            (Era::Handshake, None) => Standing::Outside,
        }
    }

    pub(super) fn credential(&self) -> Option<Fingerprint> {
        self.identity.credential
    }

    /// Which tasks the upstream speaks itself, as it said in `initialize` or `server/discover`: those are its own business.
    pub(super) fn upstream_tasks(&self) -> OwnTasks {
        if self.is_native() {
            return self.leg.upstream.facts.own_tasks();
        }
        self.session().and_then(|session| session.hello()).map(|hello| hello.server.own_tasks).unwrap_or_default()
    }

    /// Whether both it and what is between it and its upstream are of the stateless era.
    pub(super) fn is_native(&self) -> bool {
        self.era == Era::Stateless && self.leg.era == Era::Stateless
    }

    /// A result of taskgate's own as its era has it.
    pub(super) fn as_told(&self, result: Rope) -> Rope {
        match self.era {
            Era::Stateless => Rope::default().with(with_result_type(&result.join())),
            Era::Handshake => result,
        }
    }

    /// Whom it is like in how long it waits.
    pub(super) fn habit(&self) -> Habit {
        match self.identity.credential {
            Some(credential) => Habit::Credential(credential),
            None => {
                let hello = self.session().and_then(|session| session.hello());
                let program = self.program.as_ref().or_else(|| Some(&hello?.client.client));
                Habit::Client(program.cloned().unwrap_or_default(), self.peer)
            }
        }
    }

    pub(super) fn listener(&self) -> Listener {
        Listener {
            reach: self.reach.clone(),
            abilities: self.abilities,
            habit: self.habit(),
            standing: self.standing(),
        }
    }

    /// Whether tasks of 2025-11-25 are spoken on its session.
    pub(super) fn speaks_core(&self) -> bool {
        self.era == Era::Handshake && self.version >= Version::V2025_11_25
    }

    /// The dialect in which `tasks/*` tells it of a task.
    pub(super) fn reads(&self, task: &Task) -> Dialect {
        match self.era {
            Era::Handshake => reading(task.made, self.version),
            Era::Stateless => Dialect::Ext,
        }
    }

    /// An upstream's result as its era has it.
    pub(super) fn as_read(&self, result: Bytes) -> Bytes {
        match self.era {
            Era::Stateless => with_result_type(&result),
            Era::Handshake if self.leg.repeated().is_some() => upward::result(method::TOOLS_CALL, &result),
            Era::Handshake if self.leg.upstream.facts.stateless() == Speaks::Yes => without_result_type(&result),
            Era::Handshake => result,
        }
    }

    /// In which spellings it reads tasks.
    pub(super) fn spelling(&self) -> Spelling {
        match self.era {
            Era::Stateless => Spelling::Stateless,
            Era::Handshake if self.extension => Spelling::Both,
            Era::Handshake => Spelling::Own,
        }
    }

    /// Whether it reads event streams.
    pub(super) fn takes_events(&self) -> bool {
        self.takes_events
    }

    /// The upstream's tools, as this caller saw them, else as anybody did; `None` if nobody ever asked.
    pub(super) fn catalog(&self) -> Option<Arc<Catalog>> {
        let sessions = &self.route.upstream.sessions;
        let own = match self.session() {
            Some(session) => session.catalog(),
            None => sessions.catalog_of(self.credential()),
        };
        own.or_else(|| sessions.latest_catalog())
    }

    pub(super) fn set_catalog(&self, catalog: Arc<Catalog>) {
        self.route.upstream.sessions.set_latest_catalog(catalog.clone());
        match self.session() {
            Some(session) => session.set_catalog(Some(catalog)),
            None => self.route.upstream.sessions.set_catalog_of(self.credential(), catalog),
        }
    }

    /// The version header of what taskgate answers itself is a version that `initialize` negotiates, or absent.
    ///
    /// # Errors
    /// If it is something else.
    pub(super) fn check_version(&self) -> Result<(), Error> {
        if self.era == Era::Stateless {
            return self.unfit.clone().map_or(Ok(()), Err);
        }
        let Some(stated) = self.leg.header(header::PROTOCOL_VERSION) else { return Ok(()) };
        let negotiated_later = self
            .session()
            .and_then(|session| session.hello())
            .is_some_and(|hello| hello.server.version == Version::Later);
        match stated.to_str().ok().and_then(Version::handshake) {
            Some(_) => Ok(()),
            None if negotiated_later => Ok(()),
            None => Err(Error::InvalidRequest(
                "MCP-Protocol-Version names no version that is spoken here; send the one that initialize negotiated"
                    .into(),
            )),
        }
    }

    pub(super) fn reply(&self, outgoing: impl Into<Outgoing>) -> Reply {
        Reply { outgoing: outgoing.into(), framing: Framing::Either, method: self.method, dialect: self.dialect.word() }
    }
}

impl Inner {
    /// Who comes this way.
    pub(super) fn identity(&self, leg: &Leg) -> Identity {
        Identity {
            credential: leg.credential().map(|value| self.fingerprints.credential(value.as_bytes())),
            session: leg.session.as_ref().map(|session| session.fingerprint),
        }
    }

    /// What the job tools are called for whoever sees these tools; `None` if even the fallback names are taken.
    pub(super) fn job_names(&self, catalog: Option<&Catalog>) -> Option<JobNames> {
        let jobs = &self.options.jobs;
        let names = JobNames {
            result: jobs.result_tool.clone(),
            cancel: jobs.cancel_tool.clone(),
            list: jobs.list_tool.clone(),
        };
        let is_free = |names: &JobNames| names.iter().all(|name| !catalog.is_some_and(|catalog| catalog.has(name)));
        if is_free(&names) {
            return Some(names);
        }
        Some(names.fallback()).filter(is_free)
    }
}

/// A client that reads event streams can be asked something on them.
fn reach_of(request: &Request) -> Reach {
    if request.takes_events { Reach::Stream } else { Reach::Nowhere }
}

/// The name and version of a program, as far as they tell it from others.
fn program(info: &str) -> String {
    let info = entries(info);
    let part = |name| info.get(name).and_then(|raw| serde_json::from_str::<String>(raw).ok()).unwrap_or_default();
    let named = format!("{}/{}", part("name"), part("version"));
    named.chars().take(MAX_PROGRAM).collect()
}

/// Whether a client understands an event that only tells an id: by what it negotiated, else by what it says.
pub(super) fn priming(leg: &Leg) -> Priming {
    let version = match leg.session.as_ref().and_then(|session| session.hello()) {
        Some(hello) => hello.server.version,
        None => stated(leg.header(header::PROTOCOL_VERSION)),
    };
    if version >= Version::V2025_11_25 { Priming::Sent } else { Priming::Omitted }
}

/// The version that a request names by itself.
fn stated(version: Option<&HeaderValue>) -> Version {
    version.and_then(|version| version.to_str().ok()).map_or(Version::V2025_03_26, Version::negotiated)
}
