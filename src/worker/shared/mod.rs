//! Equal calls of one session that share one exchange: each is a call of its own, and only the upstream sees one.
//!
//! A driver owns the exchange and tells its followers what comes; a follower stands where a call of its own would have
//! its request in flight, so that whoever waits for it need not know the difference.

mod driver;
mod follower;
mod hub;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::Uri;
use sha2::{Digest, Sha256};
use tracing::debug;

use crate::jsonrpc::canonical;
use crate::task::Identity;
use crate::upstream::{Leg, Limits};

use super::{Assignment, Worker};
use driver::Driver;
use hub::{Hub, Outcome};

pub(super) use follower::Follower;

/// What makes two calls equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Alike {
    path: String,
    uri: Uri,
    caller: Identity,
    tool: Arc<str>,
    arguments: [u8; 32],
}

impl Alike {
    /// What a call by `caller` has in common with its equals. `None` if it has none: without a session nobody shares,
    /// nor do calls whose arguments cannot be compared. Nor does who is joined to an upstream of another era: that one
    /// asks by ending the exchange, and each call would have to go on by itself after all.
    #[must_use]
    pub fn new(leg: &Leg, caller: Identity, tool: &str, arguments: Option<&str>) -> Option<Self> {
        caller.session.filter(|_| leg.repeated().is_none())?;
        Some(Self {
            path: leg.upstream.options.path.clone(),
            uri: leg.uri().clone(),
            caller,
            tool: tool.into(),
            arguments: Sha256::digest(canonical(arguments.unwrap_or("{}"))?).into(),
        })
    }
}

/// The exchanges in flight that an equal call may join.
#[derive(Debug, Default)]
pub struct Sharing {
    hubs: Mutex<HashMap<Alike, Arc<Hub>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Joins the exchange of an equal call, or begins one with the request of `assignment`.
pub(super) fn join(worker: &Worker, assignment: &Assignment, alike: Alike, limits: Limits) -> Follower {
    // That of a call which joins others is dropped at once: it has no id of its own upstream.
    let exchange = assignment.ticket.share();
    let token = assignment.ticket.call().token();
    let mut hubs = lock(&worker.sharing.hubs);
    let found = hubs.get(&alike).and_then(|hub| hub.join(token.clone()));
    if let Some(follower) = found {
        debug!(tool = &*alike.tool, "joined an equal call that is in flight");
        return follower;
    }
    let hub = Arc::new(Hub::default());
    let follower = hub.join(token).expect("an exchange that has not begun is not over");
    hubs.insert(alike.clone(), hub.clone());
    drop(hubs);
    let entry = Entry { sharing: worker.sharing.clone(), alike, hub };
    drop(worker.work.spawn(Driver::new(worker, assignment, exchange, entry, limits).run()));
    follower
}

/// The place of one exchange among all that are shared; however its driver ends, its followers hear of it.
#[derive(Debug)]
struct Entry {
    sharing: Arc<Sharing>,
    alike: Alike,
    hub: Arc<Hub>,
}

impl Entry {
    /// Nobody can join any more, and all followers learn the outcome; the first one that is told is the outcome.
    fn end(&self, outcome: Outcome) {
        self.hub.end(outcome);
        let mut hubs = lock(&self.sharing.hubs);
        if hubs.get(&self.alike).is_some_and(|hub| Arc::ptr_eq(hub, &self.hub)) {
            hubs.remove(&self.alike);
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.end(Err(hub::cut_off()));
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use bytes::Bytes;
    use http::{HeaderMap, Method};
    use tokio::time::Instant;

    use super::*;
    use crate::jsonrpc::Id;
    use crate::mcp::Abilities;
    use crate::session::{self, Fingerprints, Habit, Patience, Sessions};
    use crate::shutdown::Work;
    use crate::store::{self, Clock, Memory, Tasks};
    use crate::telemetry::metrics::Metrics;
    use crate::upstream::testing::{self, Reply};
    use crate::upstream::{Arrived, Upstream};
    use crate::worker::upcall::Came;
    use crate::worker::{self, Listener, Tally};

    fn worker() -> Worker {
        let (metrics, clock) = (Metrics::new(), Clock::system());
        let options = worker::Options { max_running: 1, max_running_per_owner: 1 };
        Worker {
            tasks: Tasks::new(
                Memory::new(store::Options { max_retained: 1, ..store::Options::default() }, clock),
                clock,
                metrics.clone(),
            ),
            work: Work::new(),
            limits: Arc::new(worker::Limits::new(options)),
            ports: worker::Ports::default(),
            parked: worker::Parked::default(),
            seal: session::Seal::new(b"test"),
            patience: Arc::new(Patience::default()),
            metrics,
            sharing: Arc::default(),
            active: Arc::default(),
        }
    }

    /// The way of a caller with a session.
    fn leg(upstream: &testing::Upstream) -> Leg {
        let options = session::Options { max_sessions: 1, idle: Duration::MAX };
        let sessions = Sessions::new("/mcp", options, Fingerprints::random());
        let session = sessions.find_or_adopt("s");
        let upstream = Upstream::new(testing::options(&upstream.uri()), sessions, &Metrics::new()).unwrap();
        Leg::new(Arc::new(upstream), Some(session), &HeaderMap::new(), None)
    }

    fn assignment(leg: &Leg) -> Assignment {
        let session = leg.session.as_ref().unwrap();
        let received = Instant::now();
        Assignment {
            request: leg.request(Method::POST, Bytes::from_static(b"{}")),
            ticket: session.calls.enter(&Id::from_string("c"), true),
            received,
            max_runtime: None,
            input_timeout: Duration::from_secs(1),
            inline: 1,
            max_result: 1,
            head: None,
            repeatable: false,
            log: None,
            follows_tasks: false,
            own_token: None,
            listener: Listener {
                reach: crate::worker::Reach::Stream,
                abilities: Abilities::ALL,
                habit: Habit::Client(String::new(), Ipv4Addr::LOCALHOST.into()),
                standing: crate::call::Standing::Session,
            },
            deferral: None,
            alike: None,
            kept: None,
            tally: Tally { metrics: Some(Metrics::new()), method: "x", dialect: "x", received },
            leg: leg.clone(),
        }
    }

    fn alike(leg: &Leg, tool: &str, arguments: Option<&str>) -> Option<Alike> {
        let session = leg.session.as_ref().map(|session| session.fingerprint);
        Alike::new(leg, Identity { credential: None, session }, tool, arguments)
    }

    async fn body(mut follower: Follower) -> Result<Bytes, crate::upstream::Error> {
        loop {
            match follower.next().await? {
                Came::Part(Arrived::Body(body)) => return Ok(body),
                Came::Head => {}
                other @ Came::Part(_) => panic!("{other:?}"),
            }
        }
    }

    const LIMITS: Limits = Limits { inline: 10, max: 1000 };

    #[tokio::test]
    async fn fifty_share_one_request_and_nothing_is_left_of_it() {
        let reply = Reply::sized("200 OK", "content-type: application/json\r\n", b"{\"id\":1}");
        let upstream = testing::Upstream::new(vec![reply]).await;
        let (worker, leg) = (worker(), leg(&upstream));
        for round in 1..=2 {
            let assignments: Vec<Assignment> = (0..50).map(|_| assignment(&leg)).collect();
            let followers = assignments
                .iter()
                .map(|assignment| join(&worker, assignment, alike(&leg, "a", None).unwrap(), LIMITS))
                .map(body);
            let bodies = futures_util::future::join_all(followers).await;
            assert!(bodies.iter().all(|body| body.as_deref() == Ok(b"{\"id\":1}")), "{bodies:?}");
            assert_eq!((upstream.seen().len(), lock(&worker.sharing.hubs).len()), (round, 0));
            drop(assignments);
            leg.session.as_ref().unwrap().calls.idle().await;
        }
        assert!(worker.work.finished(Duration::from_secs(5)).await);
    }

    #[tokio::test]
    async fn a_cut_ends_all_and_leaves_nothing() {
        let silent = Reply::keep("").paced(Duration::from_secs(60));
        let upstream = testing::Upstream::new(vec![silent]).await;
        let (worker, leg) = (worker(), leg(&upstream));
        let one = assignment(&leg);
        let follower = join(&worker, &one, alike(&leg, "a", None).unwrap(), LIMITS);
        worker.work.cut();
        assert!(body(follower).await.unwrap_err().may_have_run());
        assert!(worker.work.finished(Duration::from_secs(5)).await);
        assert!(lock(&worker.sharing.hubs).is_empty());
    }

    #[tokio::test]
    async fn equal_is_what_asks_for_the_same_in_the_same_session() {
        let upstream = testing::Upstream::new(vec![Reply::keep("")]).await;
        let leg = leg(&upstream);
        let one = alike(&leg, "a", Some(r#"{"n":1,"m":[]}"#));
        assert!(one.is_some());
        assert_eq!(one, alike(&leg, "a", Some(r#"{ "m" : [], "\u006e":1}"#)));
        assert_eq!(alike(&leg, "a", None), alike(&leg, "a", Some("{ }")));
        for (tool, arguments) in [("b", r#"{"n":1,"m":[]}"#), ("a", r#"{"n":2,"m":[]}"#), ("a", "{}"), ("a", "null")] {
            assert_ne!(one, alike(&leg, tool, Some(arguments)), "{tool} {arguments}");
        }
        let query = Leg::new(leg.upstream.clone(), leg.session.clone(), &HeaderMap::new(), Some("k=1"));
        assert_ne!(alike(&leg, "a", None), alike(&query, "a", None));
        let nobody = Leg::new(leg.upstream.clone(), None, &HeaderMap::new(), None);
        assert_eq!(alike(&nobody, "a", None), None);
    }
}
