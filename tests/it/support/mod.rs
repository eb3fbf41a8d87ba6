//! What every story needs: a scripted upstream, a raw client, taskgate between them.
//!
//! Stories read like the scenario they are named after because the machinery lives here.

pub mod client;
pub mod dialect;
pub mod gate;
pub mod process;
pub mod schema;
pub mod sdk;
pub mod upstream;

use std::future::Future;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

pub use client::Client;
pub use dialect::Dialect;
pub use gate::{Gate, Home, Shared};
pub use upstream::Upstream;

/// Nothing in these tests may take longer than this.
pub const LIMIT: Duration = Duration::from_secs(30);

/// A threshold that no inline answer can miss, however busy the machine is.
pub const PATIENT: &str = "[tasks]\nthreshold = \"30s\"\n";

/// Milliseconds.
pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// JSON text as a value, `Null` if it is none. Numbers that no float can hold are read as a smaller one.
pub fn parsed(text: &str) -> Value {
    let value = serde_json::from_str(text).or_else(|_| serde_json::from_str(&text.replace("1e400", "1e300")));
    value.unwrap_or_default()
}

/// The result of `future`, or a failure of the test once [`LIMIT`] is over.
pub async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    let Ok(output) = timeout(LIMIT, future).await else { panic!("{what} took longer than {LIMIT:?}") };
    output
}

/// Waits until `condition` holds, at most [`LIMIT`].
pub async fn eventually(what: &str, condition: impl FnMut() -> bool) {
    within(LIMIT, what, condition).await;
}

/// Waits until `condition` holds, at most `limit`.
pub async fn within(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        sleep(ms(2)).await;
    }
}

/// Fails if `condition` does not hold all through `span`.
pub async fn throughout(span: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while start.elapsed() < span {
        assert!(condition(), "no longer true after {:?}: {what}", start.elapsed());
        sleep(ms(5)).await;
    }
}

/// A door that a test opens when it wants a tool to go on, so that nothing waits for real time.
#[derive(Clone, Debug)]
pub struct Latch(watch::Sender<bool>);

impl Latch {
    /// A closed door.
    pub fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// An open door.
    pub fn opened() -> Self {
        Self(watch::Sender::new(true))
    }

    /// Opens it for good.
    pub fn open(&self) {
        self.0.send_replace(true);
    }

    /// Waits until it is open.
    pub async fn passed(&self) {
        let mut door = self.0.subscribe();
        door.wait_for(|open| *open).await.expect("the sender lives in self");
    }
}
