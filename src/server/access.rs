//! One line per request, for whoever reads logs.
//!
//! With the level off a request costs one atomic load here and nothing else.

use std::sync::atomic::{AtomicU32, Ordering};

use http::{Method, Request, StatusCode};
use tokio::time::Instant;
use tracing::Level;

use super::Labels;

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
        if !tracing::enabled!(target: "taskgate::access", Level::INFO) {
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
        tracing::info!(
            target: "taskgate::access",
            id = format_args!("{:08x}", self.id),
            method = self.method.as_str(),
            path = self.path,
            rpc = self.labels.method,
            dialect = self.labels.dialect,
            status = self.status,
            ms = self.started.elapsed().as_micros() as f64 / 1e3,
            bytes = self.bytes,
        );
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn lines_at(level: Level) -> String {
        let written = Written::default();
        let writer = written.clone();
        let logging =
            tracing_subscriber::fmt().with_max_level(level).with_writer(move || writer.clone()).with_ansi(false);
        tracing::subscriber::with_default(logging.finish(), || {
            let request = Request::post("/mcp?token=secret").body(()).unwrap();
            if let Some(mut line) = Line::begin(&request) {
                line.head(StatusCode::OK, Labels { method: "tools/call", dialect: "job" });
                line.count(42);
            }
            drop(Line::begin(&request));
        });
        let bytes = written.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn every_request_has_a_line_unless_nobody_reads_them() {
        let lines = lines_at(Level::INFO);
        let (answered, left) = lines.split_once('\n').unwrap();
        for part in [
            "taskgate::access",
            "method=\"POST\" path=\"/mcp\" rpc=\"tools/call\" dialect=\"job\" status=200 ms=",
            "bytes=42",
        ] {
            assert!(answered.contains(part), "{part}: {answered}");
        }
        assert!(left.contains("status=499"), "{left}");
        assert!(!lines.contains("secret"), "{lines}");
        assert_eq!(lines_at(Level::WARN), "");
    }
}
