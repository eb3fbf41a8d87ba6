//! taskgate itself, started in front of a scripted upstream.
//!
//! The only file of these tests that names the crate: everything else speaks HTTP to it.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use taskgate::app::App;
use taskgate::config::{Config, Overrides};
pub use taskgate::store::embedded::Fault;
use taskgate::store::embedded::Faults;
use taskgate::store::{self, Clock, Kind, Options};
use taskgate::task::TaskStore;
use tempfile::TempDir;
use tokio::runtime::{self, Runtime};
use tokio::time::sleep;
use toml::{Table, Value};

use super::client::{Client, Http};
use super::upstream::Upstream;
use super::{ms, soon};

/// Short times, so that a story takes tens of milliseconds.
const DEFAULTS: &str = r#"
[server]
listen = "127.0.0.1:0"
keepalive = "200ms"
drain_timeout = "2s"
[admin]
listen = "127.0.0.1:0"
[log]
level = "warn"
[store]
kind = "memory"
[tasks]
threshold = "60ms"
poll_interval = "1s"
"#;

/// A running taskgate; cut off when dropped.
pub struct Gate {
    app: App,
    faults: Faults,
    /// Where clients connect.
    pub addr: SocketAddr,
}

/// A file and an address that outlive a taskgate: the next one finds the same tasks, and its clients find it.
pub struct Home {
    directory: TempDir,
    addr: SocketAddr,
}

impl Home {
    /// An empty one.
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a directory"), addr: address_to_keep() }
    }

    /// `overrides` with the file and the address, and little patience with what runs when it stops.
    pub fn settings(&self, overrides: &str) -> String {
        let file = self.directory.path().join("tasks.db");
        let own = format!(
            "[server]\nlisten = \"{}\"\ndrain_timeout = \"20ms\"\n[store]\nkind = \"embedded\"\npath = {file:?}",
            self.addr
        );
        let mut settings: Table = own.parse().expect("it is TOML");
        lay_over(&mut settings, overrides);
        written(&settings, &[])
    }

    /// Starts on it in front of `upstream`, as [`Gate::start`].
    pub async fn start(&self, upstream: &Upstream, overrides: &str) -> Gate {
        Gate::start(upstream, &self.settings(overrides)).await
    }
}

/// A store that several taskgates share.
pub struct Shared {
    engine: Arc<dyn TaskStore>,
    faults: Faults,
    lease: Duration,
    /// Where it is, as long as it is used.
    _directory: TempDir,
}

impl Shared {
    /// An empty one. Whoever runs a task and is not heard of for as long as a `lease` loses it to the others.
    pub async fn open(lease: Duration) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let kind = Kind::Embedded { path: directory.path().join("tasks.db") };
        let options = Options { kind, ..Options::default() };
        let faults = options.faults.clone();
        let engine = store::open(options, Clock::system()).await.expect("the store opens");
        Self { engine, faults, lease, _directory: directory }
    }

    /// From now on its disk fails in this way.
    pub fn fault(&self, fault: Fault) {
        self.faults.set(fault);
    }

    /// Starts another taskgate on it in front of `upstream`, on a thread of its own.
    pub async fn start(&self, upstream: &Upstream, overrides: &str) -> Replica {
        let (config, tables) = (merged(overrides), vec![named("it", "/mcp", &upstream.url(), Table::new())]);
        let among = (self.engine.clone(), self.lease);
        let threads = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a thread");
        let gate = threads.spawn(async move { Gate::run(config, tables, Some(among)).await });
        Replica { gate: gate.await.expect("it starts"), threads: Some(threads) }
    }
}

/// A taskgate among others.
pub struct Replica {
    gate: Gate,
    threads: Option<Runtime>,
}

impl Replica {
    /// Ends it as a kill does: nothing of it runs on, and nobody is told.
    pub fn kill(mut self) {
        if let Some(threads) = self.threads.take() {
            threads.shutdown_background();
        }
    }

    /// Stops it for a while as SIGSTOP does; then it goes on as if nothing had happened.
    pub fn pause(&self, span: Duration) {
        let threads = self.threads.as_ref().expect("it runs");
        threads.spawn(async move { std::thread::sleep(span) });
    }
}

impl Deref for Replica {
    type Target = Gate;

    fn deref(&self) -> &Gate {
        &self.gate
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take() {
            threads.shutdown_background();
        }
    }
}

/// An address that nothing else takes while nobody listens there: on a loopback IP of its own, since any port of
/// 127.0.0.1 may become that of somebody's connection.
pub fn address_to_keep() -> SocketAddr {
    static GIVEN: AtomicU8 = AtomicU8::new(1);
    let [.., a, b] = std::process::id().to_be_bytes();
    let ip = Ipv4Addr::new(127, a | 1, b, GIVEN.fetch_add(1, Ordering::Relaxed));
    let listener = TcpListener::bind((ip, 0)).expect("all of 127/8 is loopback");
    listener.local_addr().expect("a bound listener has an address")
}

impl Gate {
    /// Starts in front of `upstream` at `/mcp`. `overrides` are laid over short defaults; what stands in a
    /// table `[upstream]` (and `[[upstream.rule]]`) belongs to this upstream.
    pub async fn start(upstream: &Upstream, overrides: &str) -> Self {
        Self::at(&upstream.url(), overrides).await
    }

    /// The same in front of any URL.
    pub async fn at(url: &str, overrides: &str) -> Self {
        let mut config = merged(overrides);
        let written = config.remove("upstream");
        let upstream = match written {
            Some(Value::Table(table)) => table,
            None => Table::new(),
            Some(other) => panic!("[upstream] is one table here, not {other:?}"),
        };
        Self::run(config, vec![named("it", "/mcp", url, upstream)], None).await
    }

    /// Starts in front of several upstreams, each on its path.
    pub async fn paths(upstreams: &[(&str, &Upstream)], overrides: &str) -> Self {
        let tables = upstreams
            .iter()
            .map(|(path, upstream)| named(path.trim_matches('/'), path, &upstream.url(), Table::new()))
            .collect();
        Self::run(merged(overrides), tables, None).await
    }

    async fn run(config: Table, upstreams: Vec<Table>, among: Option<(Arc<dyn TaskStore>, Duration)>) -> Self {
        let text = written(&config, &upstreams);
        let mut config = match Config::parse(&text, &Overrides::default()) {
            Ok(config) => config,
            Err(problems) => panic!("configuration refused: {problems:?}\n{text}"),
        };
        let faults = config.store.faults.clone();
        let started = match among {
            Some((engine, lease)) => {
                config.store.lease = lease;
                App::start_among(config, engine).await
            }
            None => App::start(config).await,
        };
        let app = match started {
            Ok(app) => app,
            Err(error) => panic!("taskgate does not start: {error:?}\n{text}"),
        };
        let addr = app.addr();
        Self { app, faults, addr }
    }

    /// Whether a configuration with these lines is accepted.
    pub fn accepts(overrides: &str) -> bool {
        let mut config = merged(overrides);
        config.remove("upstream");
        let text = written(&config, &[named("it", "/mcp", "http://127.0.0.1:1/mcp", Table::new())]);
        Config::parse(&text, &Overrides::default()).is_ok()
    }

    /// An MCP client of `/mcp` that has not said hello yet.
    pub fn client(&self) -> Client {
        Client::new(self.addr)
    }

    /// A bare HTTP client.
    pub fn http(&self) -> Http {
        Http::new(self.addr)
    }

    /// Status and body of a page of the admin listener.
    pub async fn admin(&self, path: &str) -> (u16, String) {
        let addr = self.app.admin_addr().expect("the admin listener is on");
        let reply = Http::new(addr).send("GET", path, &[], "").await;
        (reply.status, reply.text().await)
    }

    /// Waits until a metric has this value.
    pub async fn gauge(&self, name: &str, value: usize) {
        let line = format!("\ntaskgate_{name} {value}\n");
        let reached = async {
            while !self.admin("/metrics").await.1.contains(&line) {
                sleep(ms(5)).await;
            }
        };
        soon(&line, reached).await;
    }

    /// From now on its disk fails in this way.
    pub fn fault(&self, fault: Fault) {
        self.faults.set(fault);
    }

    /// What the first SIGTERM does.
    pub fn drain(&self) {
        self.app.drain();
    }

    /// Resolves when the drain is done.
    pub async fn finished(&self) {
        self.app.finished().await;
    }

    /// Leaves in good order: drains, hands over, lets go of its file.
    pub async fn leave(self) {
        self.drain();
        soon("the end", self.finished()).await;
    }

    /// What the second SIGTERM does.
    pub fn stop(&self) {
        self.app.stop();
    }

    /// Cuts off what runs and lets go of the store.
    pub async fn closed(self) {
        self.app.stop();
        self.app.closed().await;
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.app.stop();
    }
}

fn merged(overrides: &str) -> Table {
    let mut config: Table = DEFAULTS.parse().expect("the defaults are TOML");
    lay_over(&mut config, overrides);
    config
}

fn lay_over(config: &mut Table, overrides: &str) {
    let overrides: Table = overrides.parse().expect("the overrides are TOML");
    for (section, value) in overrides {
        match (config.get_mut(&section), value) {
            (Some(Value::Table(known)), Value::Table(new)) => known.extend(new),
            (_, value) => {
                config.insert(section, value);
            }
        }
    }
}

fn named(name: &str, path: &str, url: &str, mut table: Table) -> Table {
    for (key, value) in [("name", name), ("path", path), ("url", url)] {
        table.insert(key.to_owned(), Value::String(value.to_owned()));
    }
    table
}

fn written(config: &Table, upstreams: &[Table]) -> String {
    let mut text = String::new();
    for (section, value) in config {
        let table = value.as_table().expect("the file has tables only");
        write!(text, "[{section}]\n{}", lines(table)).expect("a String takes everything");
    }
    for upstream in upstreams {
        let mut upstream = upstream.clone();
        let rules = upstream.remove("rule");
        write!(text, "[[upstream]]\n{}", lines(&upstream)).expect("a String takes everything");
        for rule in rules.iter().flat_map(|rules| rules.as_array().expect("[[upstream.rule]]")) {
            let rule = rule.as_table().expect("[[upstream.rule]]");
            write!(text, "[[upstream.rule]]\n{}", lines(rule)).expect("a String takes everything");
        }
    }
    text
}

fn lines(table: &Table) -> String {
    table.iter().map(|(key, value)| format!("{key} = {}\n", inline(value))).collect()
}

fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        Value::Array(values) => format!("[{}]", values.iter().map(inline).collect::<Vec<_>>().join(", ")),
        Value::Table(table) => {
            let pairs: Vec<_> = table.iter().map(|(key, value)| format!("{key:?} = {}", inline(value))).collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Boolean(answer) => answer.to_string(),
        Value::Datetime(_) => panic!("no key of the file is a date"),
    }
}
