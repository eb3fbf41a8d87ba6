//! Who asks, and how they can be answered.

use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderValue;
use tokio::time::Instant;

use crate::call::{Error, Outgoing, Priming};
use crate::dialect::{Declared, Dialect, JobNames, Spelling, select};
use crate::jsonrpc::Envelope;
use crate::mcp::{Abilities, OwnTasks, Params, Version, header, method};
use crate::session::{Catalog, Habit, Session};
use crate::task::{Fingerprint, Identity};
use crate::upstream::Leg;
use crate::worker::Listener;

use super::{Framing, Inner, Reply, Request, Route, session_id, word};

/// One caller, for the length of one request.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) route: Arc<Route>,
    pub(super) leg: Leg,
    pub(super) identity: Identity,
    pub(super) dialect: Dialect,
    /// The version that its session negotiated, else the one its request names.
    pub(super) version: Version,
    /// Whether it declares the tasks extension, by its session or in this request.
    pub(super) extension: bool,
    /// What it can be asked.
    pub(super) abilities: Abilities,
    pub(super) received: Instant,
    pub(super) method: &'static str,
    takes_events: bool,
    is_alone: bool,
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
            dialect: select(Declared { version, asks_for_task, extension }),
            version,
            extension,
            abilities,
            received: request.received,
            method: word(message),
            takes_events: request.takes_events,
            is_alone: true,
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

    /// Whether a session stands: errors have HTTP status 200 then.
    pub(super) fn in_session(&self) -> bool {
        self.leg.session.is_some()
    }

    pub(super) fn credential(&self) -> Option<Fingerprint> {
        self.identity.credential
    }

    /// Which tasks the upstream speaks itself, as it said in `initialize`: those are its own business.
    pub(super) fn upstream_tasks(&self) -> OwnTasks {
        self.session().and_then(|session| session.hello()).map(|hello| hello.server.own_tasks).unwrap_or_default()
    }

    /// Whom it is like in how long it waits.
    pub(super) fn habit(&self) -> Habit {
        match self.identity.credential {
            Some(credential) => Habit::Credential(credential),
            None => {
                let hello = self.session().and_then(|session| session.hello());
                Habit::Client(hello.map(|hello| hello.client.client.clone()).unwrap_or_default(), self.peer)
            }
        }
    }

    pub(super) fn listener(&self) -> Listener {
        Listener {
            takes_events: self.takes_events,
            abilities: self.abilities,
            habit: self.habit(),
            in_session: self.in_session(),
        }
    }

    /// Whether tasks of 2025-11-25 are spoken on its session.
    pub(super) fn speaks_core(&self) -> bool {
        self.version >= Version::V2025_11_25
    }

    /// In which spellings it reads tasks.
    pub(super) fn spelling(&self) -> Spelling {
        if self.extension { Spelling::Both } else { Spelling::Own }
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
