//! The side road: follows every call in flight, whoever waits for it.
//!
//! A call is one task of the runtime from its first byte to its end. While its client waits it is *held*; once the
//! record of a task is committed it is *deferred* and goes on alone. The exchange with the upstream is the same
//! throughout: it is never restarted.

mod answer;
mod asking;
mod assignment;
mod cancel;
mod deferred;
mod follow;
mod handle;
mod held;
mod leaving;
mod limits;
mod listening;
mod options;
mod parked;
mod pauses;
mod phrase;
mod port;
mod questions;
mod recover;
mod relay;
mod remember;
mod rounds;
mod settle;
mod shared;
mod state;
mod subscribed;
mod timer;
mod upcall;
mod way;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::call::{Steps, outlet};
use crate::session::{Patience, Seal};
use crate::shutdown::Work;
use crate::store::Tasks;
use crate::telemetry::metrics::Metrics;

pub use answer::{failed, from_upstream, refused};
pub use assignment::{Assignment, Deferral, Kept, Listener, Reach, Tally};
pub use cancel::cancel_upstream;
pub use limits::{Limits, Permit};
pub use listening::{Listening, Stranger};
pub use options::Options;
pub use parked::{Parked, Retry};
pub use pauses::Pauses;
pub use port::{Carried, Carrier, Marking, Ports};
pub use questions::refusal;
pub use shared::{Alike, Sharing};
pub use state::{Purpose, State};

/// Bodies up to this many bytes are read to their end before it is decided who won the race.
pub const INLINE: usize = 256 * 1024;

/// How many steps may wait for a slow client before its call waits for it.
const STEPS: usize = 16;

/// Shared handle to whoever follows calls.
#[derive(Clone, Debug)]
pub struct Worker {
    /// All tasks.
    pub tasks: Tasks,
    /// All background work.
    pub work: Work,
    /// How many tasks may run.
    pub limits: Arc<Limits>,
    /// Where answers for running tasks are handed in.
    pub ports: Ports,
    /// Calls that wait for a retry.
    pub parked: Parked,
    /// Seals what a restart needs.
    pub seal: Seal,
    /// How long clients wait.
    pub patience: Arc<Patience>,
    /// Counts.
    pub metrics: Metrics,
    /// The exchanges that equal calls may join.
    pub sharing: Arc<Sharing>,
    /// How many calls are in flight.
    pub active: Arc<AtomicUsize>,
}

/// One call in flight, while it lives.
#[derive(Debug)]
struct Active(Arc<AtomicUsize>);

impl Active {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count.clone())
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Worker {
    /// Sends the request of `assignment` upstream and follows it to its end, whether or not anybody listens to the
    /// steps that are returned.
    #[must_use]
    pub fn start(&self, mut assignment: Assignment) -> Steps {
        let (steps, receiver) = outlet(STEPS, assignment.log.take());
        let held = held::Held::new(self.clone(), assignment, steps);
        drop(self.work.spawn(held.run()));
        receiver
    }

    /// How many calls are in flight.
    #[must_use]
    pub fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// Whether no call is in flight.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.active() == 0
    }
}
