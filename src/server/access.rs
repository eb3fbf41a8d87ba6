//! One line per request, for whoever reads logs.
//!
//! With the level off a request costs one atomic load here and nothing else.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use http::{Method, Request, StatusCode};
use tokio::time::Instant;
use tracing::Level;

use super::Labels;
use crate::telemetry::Clock;
use crate::telemetry::access::{Access, TARGET};

static CLOCK: LazyLock<Clock> = LazyLock::new(Clock::system);
static NEXT: AtomicU32 = AtomicU32::new(1);

/// Status of a request whose client left before there was an answer.
const CLIENT_LEFT: u16 = 499;

/// An access line in the making; dropping it writes it, so that no way out of a request is missed.
#[derive(Debug)]
pub(super) struct Line {
    id: u32,
    method: Method,
    /// Without the query: it may hold secrets.
    path: String,
    labels: Labels,
    status: u16,
    bytes: u64,
    started: Instant,
}

impl Line {
    /// Begins a line, if anybody wants it.
    pub(super) fn begin<B>(request: &Request<B>) -> Option<Box<Self>> {
        if !tracing::enabled!(target: TARGET, Level::INFO) {
            return None;
        }
        Some(Box::new(Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            labels: Labels::UNKNOWN,
            status: CLIENT_LEFT,
            bytes: 0,
            started: Instant::now(),
        }))
    }

    /// The head of the answer is known.
    pub(super) fn head(&mut self, status: StatusCode, labels: Labels) {
        self.status = status.as_u16();
        self.labels = labels;
    }

    /// `bytes` of the body went out.
    pub(super) fn count(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let access = Access {
            id: self.id,
            method: self.method.as_str(),
            path: &self.path,
            rpc: self.labels.method,
            dialect: self.labels.dialect,
            status: self.status,
            took: self.started.elapsed(),
            bytes: self.bytes,
        };
        access.write(CLOCK.now());
    }
}
