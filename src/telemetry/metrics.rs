//! Every metric, with its name, in one file.
//!
//! Labels come from bounded sets, so no client can grow the registry; the handles of the request path are resolved
//! once each and then read without a lock.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Seconds; from a cache hit to an overnight simulation.
const BUCKETS: [f64; 16] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 600.0, 3600.0];

/// JSON-RPC methods with a label of their own; the last stands for all others.
const METHODS: [&str; 29] = [
    "tools/call",
    "tools/list",
    "initialize",
    "ping",
    "tasks/get",
    "tasks/result",
    "tasks/update",
    "tasks/cancel",
    "tasks/list",
    "server/discover",
    "subscriptions/listen",
    "prompts/list",
    "prompts/get",
    "resources/list",
    "resources/read",
    "resources/templates/list",
    "resources/subscribe",
    "resources/unsubscribe",
    "logging/setLevel",
    "completion/complete",
    "notifications/initialized",
    "notifications/cancelled",
    "notifications/progress",
    "notifications/roots/list_changed",
    "response",
    "batch",
    "GET",
    "DELETE",
    "other",
];
const DIALECTS: [&str; 4] = ["job", "ext", "core", "none"];
const OUTCOMES: [&str; 5] = ["completed", "tool_error", "error", "cancelled", "lost"];

/// The name under which a JSON-RPC method is counted: itself if it is a known one, else `"other"`. `"GET"`,
/// `"DELETE"` and `"response"` stand for requests that have no method, `"batch"` for a batch that was refused.
#[must_use]
pub fn known_method(method: &str) -> &'static str {
    METHODS[index(&METHODS, method)]
}

/// Where `word` stands in `words`; the last place is for strangers.
fn index(words: &[&str], word: &str) -> usize {
    words.iter().position(|known| *known == word).unwrap_or(words.len() - 1)
}

/// Whose fault a failed request was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It did not fail.
    None,
    /// The client's.
    Client,
    /// Ours.
    Gateway,
    /// The upstream's.
    Upstream,
}

impl Side {
    const COUNT: usize = 4;
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    dialect: &'static str,
    side: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodLabels {
    method: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DialectLabels {
    dialect: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UpstreamLabels {
    upstream: String,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

fn histogram() -> Histogram {
    Histogram::new(BUCKETS)
}

/// Shared handle to all metrics of one process.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    durations: Histograms<MethodLabels>,
    held: Gauge,
    deferred: Family<DialectLabels, Counter>,
    finished: Family<OutcomeLabels, Counter>,
    running: Gauge,
    upstreams: Histograms<UpstreamLabels>,
    sessions: Gauge,
    /// One place per method, dialect and side.
    counters: Vec<OnceLock<Counter>>,
    /// One place per method.
    timers: Vec<OnceLock<Histogram>>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Everything at zero.
    #[must_use]
    pub fn new() -> Self {
        let mut inner = Inner {
            registry: Registry::with_prefix("taskgate"),
            requests: Family::default(),
            durations: Family::new_with_constructor(histogram),
            held: Gauge::default(),
            deferred: Family::default(),
            finished: Family::default(),
            running: Gauge::default(),
            upstreams: Family::new_with_constructor(histogram),
            sessions: Gauge::default(),
            counters: vec![OnceLock::new(); METHODS.len() * DIALECTS.len() * Side::COUNT],
            timers: vec![OnceLock::new(); METHODS.len()],
        };
        inner.register();
        Self(Arc::new(inner))
    }

    /// One request was answered after `elapsed`. `method` and `dialect` outside the known words are counted as
    /// `"other"` and `"none"`.
    pub fn request(&self, method: &str, dialect: &str, side: Side, elapsed: Duration) {
        let (method, dialect) = (index(&METHODS, method), index(&DIALECTS, dialect));
        let place = (method * DIALECTS.len() + dialect) * Side::COUNT + side as usize;
        let (method_name, dialect) = (METHODS[method], DIALECTS[dialect]);
        self.0.counters[place]
            .get_or_init(|| {
                let side = side.name();
                self.0.requests.get_or_create_owned(&RequestLabels { method: method_name, dialect, side })
            })
            .inc();
        self.0.timers[method]
            .get_or_init(|| self.0.durations.get_or_create_owned(&MethodLabels { method: method_name }))
            .observe(elapsed.as_secs_f64());
    }

    /// A call is held until the guard is dropped.
    #[must_use]
    pub fn held(&self) -> Counted {
        Counted::new(&self.0.held)
    }

    /// A task is running until the guard is dropped.
    #[must_use]
    pub fn running(&self) -> Counted {
        Counted::new(&self.0.running)
    }

    /// A call was answered with a handle.
    pub fn deferred(&self, dialect: &str) {
        let dialect = DIALECTS[index(&DIALECTS, dialect)];
        self.0.deferred.get_or_create(&DialectLabels { dialect }).inc();
    }

    /// A task ended: `"completed"`, `"tool_error"`, `"error"` (a JSON-RPC one), `"cancelled"` or `"lost"`, which also
    /// stands for anything else.
    pub fn finished(&self, outcome: &str) {
        let outcome = OUTCOMES[index(&OUTCOMES, outcome)];
        self.0.finished.get_or_create(&OutcomeLabels { outcome }).inc();
    }

    /// How many sessions are known now.
    pub fn sessions(&self, count: usize) {
        self.0.sessions.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// The timer of one configured upstream. Keep it: looking it up takes a lock.
    #[must_use]
    pub fn upstream(&self, name: &str) -> UpstreamTimer {
        UpstreamTimer(self.0.upstreams.get_or_create_owned(&UpstreamLabels { upstream: name.to_owned() }))
    }

    /// Everything in the OpenMetrics text format.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.0.registry).expect("a string takes whatever is written");
        text
    }
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Client => "client",
            Self::Gateway => "gateway",
            Self::Upstream => "upstream",
        }
    }
}

impl Inner {
    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "requests",
            "Requests answered, by JSON-RPC method, dialect and whose side failed",
            self.requests.clone(),
        );
        let help = "Time from a request to the end of its answer, by JSON-RPC method";
        registry.register_with_unit("request_duration", help, Unit::Seconds, self.durations.clone());
        registry.register("held_calls", "Calls whose client still waits", self.held.clone());
        registry.register("deferred_calls", "Calls answered with a handle, by dialect", self.deferred.clone());
        registry.register("finished_tasks", "Tasks that ended, by outcome", self.finished.clone());
        registry.register("running_tasks", "Tasks under way", self.running.clone());
        let help = "Time an exchange with an upstream took, by upstream";
        registry.register_with_unit("upstream", help, Unit::Seconds, self.upstreams.clone());
        registry.register("sessions", "Client sessions known", self.sessions.clone());
    }
}

/// Adds one to a gauge for as long as it lives.
#[derive(Debug)]
pub struct Counted(Gauge);

impl Counted {
    fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Measures the exchanges of one upstream.
#[derive(Clone, Debug)]
pub struct UpstreamTimer(Histogram);

impl UpstreamTimer {
    /// An exchange took `elapsed`.
    pub fn observe(&self, elapsed: Duration) {
        self.0.observe(elapsed.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_in_the_text() {
        let metrics = Metrics::new();
        metrics.request("tools/call", "job", Side::None, Duration::from_millis(3));
        metrics.request("tools/call", "job", Side::None, Duration::from_millis(3));
        metrics.request("tools/call", "ext", Side::Upstream, Duration::from_secs(9));
        metrics.deferred("job");
        metrics.finished("tool_error");
        metrics.sessions(3);
        metrics.upstream("solver").observe(Duration::from_secs(2));
        let (held, running) = (metrics.held(), metrics.running());
        let text = metrics.encode();
        for line in [
            "taskgate_requests_total{method=\"tools/call\",dialect=\"job\",side=\"none\"} 2",
            "taskgate_requests_total{method=\"tools/call\",dialect=\"ext\",side=\"upstream\"} 1",
            "taskgate_request_duration_seconds_count{method=\"tools/call\"} 3",
            "taskgate_held_calls 1",
            "taskgate_deferred_calls_total{dialect=\"job\"} 1",
            "taskgate_finished_tasks_total{outcome=\"tool_error\"} 1",
            "taskgate_running_tasks 1",
            "taskgate_upstream_seconds_count{upstream=\"solver\"} 1",
            "taskgate_sessions 3",
        ] {
            assert!(text.lines().any(|written| written == line), "{line} is missing in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
        drop((held, running));
        assert!(metrics.encode().contains("taskgate_held_calls 0"));
    }

    #[test]
    fn no_client_grows_the_registry() {
        let metrics = Metrics::new();
        for number in 0..1000 {
            metrics.request(&format!("x/{number}"), &format!("d{number}"), Side::Client, Duration::ZERO);
            metrics.deferred(&format!("d{number}"));
            metrics.finished(&format!("o{number}"));
        }
        let text = metrics.encode();
        assert!(text.contains("taskgate_requests_total{method=\"other\",dialect=\"none\",side=\"client\"} 1000"));
        assert!(text.lines().count() < 60, "{text}");
        assert_eq!(known_method("tools/call"), "tools/call");
        assert_eq!(known_method("x/1"), "other");
    }
}
