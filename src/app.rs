//! The composition root: opens engines, wires rooms, and takes them down in order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::admin::{self, Admin};
use crate::config::{self, Config};
use crate::gateway::{self, Framing, Gateway, Handling, Route};
use crate::server::{Handled, Handler, Inbound, Labels, Listener, Upgrade};
use crate::session::{self, Fingerprints, Patience, Seal, Sessions};
use crate::shutdown::Work;
use crate::store::{self, Clock, Tasks};
use crate::task::{Task, TaskStore, Timestamp};
use crate::telemetry::Readiness;
use crate::telemetry::metrics::Metrics;
use crate::upstream::{self, Upstream};
use crate::worker::{Limits, Parked, Ports, Worker};

/// How long what was cut off may take to say so.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How often the gauge of sessions is brought up to date.
const COUNT_EVERY: Duration = Duration::from_secs(2);
/// How often a draining process looks whether it may leave.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Why the application did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {error}; is it taken by another process? {setting} sets another")]
    Listen {
        /// The setting it comes from.
        setting: &'static str,
        /// The address.
        address: SocketAddr,
        /// Why.
        error: std::io::Error,
    },
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] store::OpenError),
    /// Its secret cannot be read.
    #[error(transparent)]
    Secret(#[from] crate::task::StoreError),
    /// An upstream cannot be set up.
    #[error("upstream {name:?}: {error}")]
    Upstream {
        /// Its name.
        name: String,
        /// Why.
        error: upstream::Error,
    },
}

/// A running taskgate.
#[derive(Debug)]
pub struct App {
    addr: SocketAddr,
    admin_addr: Option<SocketAddr>,
    drain_timeout: Duration,
    worker: Worker,
    gateway: Gateway,
    readiness: Readiness,
}

impl App {
    /// Starts everything; when it returns, requests are taken.
    ///
    /// # Errors
    /// If an address is taken, the store cannot be used, or an upstream cannot be set up.
    pub async fn start(config: Config) -> Result<Self, Error> {
        let engine = store::open(config.store.clone(), Clock::system()).await?;
        let metrics = Metrics::new();
        let tasks = Tasks::new(engine, Clock::system(), metrics.clone());
        Self::run(config, tasks, metrics).await
    }

    /// The same with the tasks of an engine that is open already and serves others too: of `config.store` only the
    /// length of a lease counts, and the engine stays open at the end.
    ///
    /// # Errors
    /// As [`App::start`].
    pub async fn start_among(config: Config, engine: Arc<dyn TaskStore>) -> Result<Self, Error> {
        let metrics = Metrics::new();
        let tasks = Tasks::new(engine, Clock::system(), metrics.clone()).among_others();
        Self::run(config, tasks, metrics).await
    }

    async fn run(config: Config, tasks: Tasks, metrics: Metrics) -> Result<Self, Error> {
        let work = Work::new();
        let lease = config.store.lease;
        let tasks = tasks.with_lease(lease);
        let secret = match config.secret {
            Some(secret) => secret,
            None => tasks.secret().await?.to_vec(),
        };
        let worker = Worker {
            tasks,
            seal: Seal::new(&secret),
            work: work.clone(),
            limits: Arc::new(Limits::new(config.worker)),
            ports: Ports::default(),
            parked: Parked::default(),
            patience: Arc::new(Patience::default()),
            metrics: metrics.clone(),
            sharing: Arc::default(),
            active: Arc::default(),
        };
        let listener = Listener::bind(&config.server).map_err(|error| Error::Listen {
            setting: "server.listen (--listen)",
            address: config.server.listen,
            error,
        })?;
        let admin = match &config.admin {
            Some(options) => Some(bind_admin(options).await?),
            None => None,
        };
        let fingerprints = Fingerprints::new(&secret);
        let routes = routes(config.upstreams, (&config.session, &fingerprints), (&work, &metrics))?;
        let gateway = Gateway::new(routes, config.gateway, worker.clone(), fingerprints);
        // From here on nothing fails: what is taken over is not left in the middle.
        count_sessions(&work, gateway.clone(), metrics.clone());
        keep_up(&work, &gateway, &worker.tasks, lease).await;
        let readiness = Readiness::new();
        let (tasks, told) = (worker.tasks.clone(), readiness.clone());
        sweep(&work, async move { tasks.watch(&told).await });
        let admin_addr = admin.as_ref().map(Admin::addr);
        if let Some(admin) = admin {
            drop(work.spawn(admin.serve(readiness.clone(), metrics, work.clone())));
        }
        let addr = listener.addr();
        drop(work.spawn(listener.serve(Front(gateway.clone()), work.clone())));
        info!(%addr, admin = admin_addr.map(tracing::field::display), "listening");
        Ok(Self { addr, admin_addr, drain_timeout: config.drain_timeout, worker, gateway, readiness })
    }

    /// Where clients connect, with the real port.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where the admin listener is, if there is one.
    #[must_use]
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin_addr
    }

    /// The tasks that another process left running and this one has taken over, as they stand. Ask right after the
    /// start.
    pub async fn taken_over(&self) -> Vec<Task> {
        let tasks = &self.worker.tasks;
        let mut taken = tasks.running().await;
        taken.extend(tasks.unread(Timestamp::default()).await);
        taken.sort_by_key(|task| task.created);
        taken
    }

    /// The task when it has ended, or as it stands at `until`, with the text of its result. Cancel safe.
    pub async fn outcome(&self, task: &Task, until: Instant) -> (Task, Option<String>) {
        let tasks = &self.worker.tasks;
        let ended = tasks.wait(task.id, Some(until)).await.ok().flatten();
        let result = tasks.result(task.id).await.ok().flatten();
        let text = result.and_then(|text| String::from_utf8(text.to_vec()).ok());
        (ended.unwrap_or_else(|| task.clone()), text)
    }

    /// First step of the shutdown: readiness turns red and no new calls are taken; polls and cancellations are.
    pub fn drain(&self) {
        self.readiness.set("draining");
        self.worker.work.drain();
    }

    /// Second step: waits until running work is done and what it brought was read, at most `drain_timeout`; then cuts
    /// what is left, whose tasks end as "outcome unknown". Call [`App::drain`] first.
    pub async fn finished(&self) {
        let until = Instant::now() + self.drain_timeout;
        let tasks = &self.worker.tasks;
        let mut unread = if tasks.is_durable() { Vec::new() } else { self.unread().await };
        loop {
            unread = tasks.still_wanted(&unread).await;
            if self.worker.is_idle() && unread.is_empty() {
                break;
            }
            if self.worker.work.is_severed() {
                break;
            }
            if Instant::now() >= until {
                warn!(
                    calls = self.worker.active(),
                    unread = unread.len(),
                    "drain_timeout is over: cutting off what is left"
                );
                break;
            }
            tokio::time::sleep(LOOK_EVERY.min(until.saturating_duration_since(Instant::now()))).await;
        }
        self.gateway.close_bridges(Duration::ZERO);
        self.stop();
        self.closed().await;
    }

    /// Waits a moment for what was cut off, and closes the store. Call [`App::stop`] first.
    pub async fn closed(&self) {
        let tasks = &self.worker.tasks;
        self.worker.work.finished(LAST_WORDS).await;
        // What was cut off needs its session no more, unless it goes on elsewhere.
        self.gateway.close_bridges(Duration::ZERO);
        self.worker.work.finished(LAST_WORDS).await;
        if let Err(error) = tasks.release().await {
            warn!(%error, "what is left is taken over later");
        }
        tasks.close().await;
    }

    /// What would be lost with the process: tasks that run, and outcomes that somebody may come back for.
    async fn unread(&self) -> Vec<Task> {
        let tasks = &self.worker.tasks;
        let mut unread = tasks.running().await;
        // Whoever polls for these comes back within that time, or not at all.
        unread.extend(tasks.unread(tasks.now().minus(self.drain_timeout)).await);
        unread
    }

    /// Cuts everything off now.
    pub fn stop(&self) {
        self.readiness.set("stopping");
        self.worker.work.cut();
    }
}

fn routes(
    upstreams: Vec<config::Upstream>,
    (sessions, fingerprints): (&session::Options, &Fingerprints),
    (work, metrics): (&Work, &Metrics),
) -> Result<Vec<Route>, Error> {
    let mut routes = Vec::new();
    for config::Upstream { options, rules } in upstreams {
        let (name, path) = (options.name.clone(), options.path.clone());
        let sessions = Sessions::new(&path, sessions.clone(), fingerprints.clone());
        let upstream = match Upstream::new(options, sessions, metrics) {
            Ok(upstream) => Arc::new(upstream),
            Err(error) => return Err(Error::Upstream { name, error }),
        };
        info!(name, path, "upstream");
        let swept = upstream.clone();
        sweep(work, async move { swept.sessions.sweep().await });
        routes.push(Route { upstream, rules });
    }
    Ok(routes)
}

async fn bind_admin(options: &admin::Options) -> Result<Admin, Error> {
    Admin::bind(options).await.map_err(|error| Error::Listen {
        setting: "admin.listen (--admin-listen)",
        address: options.listen,
        error,
    })
}

/// Runs something that never ends, until the work is cut.
fn sweep(work: &Work, sweep: impl Future<Output = ()> + Send + 'static) {
    let cut = work.clone();
    drop(work.spawn(async move {
        tokio::select! {
            () = sweep => {}
            () = cut.severed() => {}
        }
    }));
}

/// What goes on beside requests as long as the process lives: pruning, leases, and what others left.
async fn keep_up(work: &Work, gateway: &Gateway, tasks: &Tasks, lease: Duration) {
    let (pruning, holding, closing) = (tasks.clone(), tasks.clone(), gateway.clone());
    sweep(work, async move { pruning.sweep().await });
    sweep(work, async move { holding.hold().await });
    sweep(work, async move { closing.close_idle_bridges().await });
    if tasks.is_durable() {
        let (taking_over, remembering) = (gateway.clone(), gateway.clone());
        let (begun, ready) = oneshot::channel();
        sweep(work, async move { taking_over.recover(lease / 3, begun).await });
        sweep(work, async move { remembering.refresh_sessions().await });
        let _ = ready.await;
    }
}

fn count_sessions(work: &Work, gateway: Gateway, metrics: Metrics) {
    sweep(work, async move {
        loop {
            metrics.sessions(gateway.sessions());
            gateway.forget_streams();
            tokio::time::sleep(COUNT_EVERY).await;
        }
    });
}

/// The gateway behind the server: the two know nothing of each other.
#[derive(Clone)]
struct Front(Gateway);

impl Handler for Front {
    fn accepts(&self, path: &str) -> bool {
        self.0.accepts(path)
    }

    async fn handle(&self, inbound: Inbound) -> Handled {
        let path = inbound.path().to_owned();
        let request = gateway::Request {
            path,
            query: inbound.uri.query().map(str::to_owned),
            method: inbound.method,
            headers: inbound.headers,
            peer: inbound.peer,
            body: inbound.body,
            received: inbound.received,
            takes_events: inbound.takes_events,
        };
        let reply = match self.0.handle(request) {
            Handling::Ready(reply) => reply,
            Handling::Later(reply) => reply.await,
        };
        let upgrade = match reply.framing {
            Framing::Either => Upgrade::Allowed,
            Framing::AsItComes => Upgrade::Never,
        };
        let labels = Labels { method: reply.method, dialect: reply.dialect };
        Handled { outgoing: reply.outgoing, upgrade, labels }
    }
}
