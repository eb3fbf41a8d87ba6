//! The line that is written for every request.
//!
//! It is the only log line on the path of a fast call, and general formatting would cost more there than reading and
//! forwarding the call: this one is put together by hand, in the same two formats, and leaves in one write.

use std::cell::RefCell;
use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use super::log::Format;
use crate::jsonrpc::quote;

/// The target that filters know these lines by.
pub const TARGET: &str = "taskgate::access";

/// 0: logging was not started; else the format, counted from 1.
static FORMAT: AtomicU8 = AtomicU8::new(0);

thread_local! {
    static LINE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// What is told of one request.
#[derive(Clone, Copy, Debug)]
pub struct Access<'a> {
    /// Counts requests of this process.
    pub id: u32,
    /// HTTP method.
    pub method: &'a str,
    /// Path without its query, which may hold secrets.
    pub path: &'a str,
    /// JSON-RPC method.
    pub rpc: &'a str,
    /// Dialect that answered.
    pub dialect: &'a str,
    /// HTTP status; 499 if the client left before there was one.
    pub status: u16,
    /// From the request's head to the end of its answer.
    pub took: Duration,
    /// Bytes of the answer's body.
    pub bytes: u64,
}

pub(super) fn start(format: Format) {
    let code = match format {
        Format::Text => 1,
        Format::Json => 2,
    };
    FORMAT.store(code, Ordering::Relaxed);
}

impl Access<'_> {
    /// Writes the line to stderr, if logging was started.
    pub fn write(&self, unix: Duration) {
        let format = match FORMAT.load(Ordering::Relaxed) {
            0 => return,
            1 => Format::Text,
            _ => Format::Json,
        };
        LINE.with_borrow_mut(|line| {
            line.clear();
            if self.format(line, format, unix).is_ok() {
                // Nobody is left to be told if stderr is gone.
                let _ = io::stderr().lock().write_all(line.as_bytes());
            }
        });
    }

    fn format(&self, line: &mut String, format: Format, unix: Duration) -> fmt::Result {
        let time = humantime::format_rfc3339_micros(UNIX_EPOCH + unix);
        let Self { id, method, path, rpc, dialect, status, bytes, .. } = self;
        let micros = self.took.as_micros();
        let (ms, rest) = (micros / 1_000, micros % 1_000);
        let (method, path) = (quoted(method), quoted(path));
        match format {
            Format::Text => writeln!(
                line,
                "{time}  INFO {TARGET}: id={id:08x} method={method} path={path} rpc=\"{rpc}\" dialect=\"{dialect}\" \
                 status={status} ms={ms}.{rest:03} bytes={bytes}"
            ),
            Format::Json => writeln!(
                line,
                "{{\"timestamp\":\"{time}\",\"level\":\"INFO\",\"id\":\"{id:08x}\",\"method\":{method},\
                 \"path\":{path},\"rpc\":\"{rpc}\",\"dialect\":\"{dialect}\",\"status\":{status},\
                 \"ms\":{ms}.{rest:03},\"bytes\":{bytes},\"target\":\"{TARGET}\"}}",
            ),
        }
    }
}

/// What a client sent, in quotes and on one line.
fn quoted(text: &str) -> String {
    if text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\') {
        let mut quoted = String::with_capacity(text.len() + 2);
        quoted.push('"');
        quoted.push_str(text);
        quoted.push('"');
        quoted
    } else {
        quote(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_in_either_format() {
        let access = Access {
            id: 5,
            method: "POST",
            path: "/m\"\ncp",
            rpc: "tools/call",
            dialect: "job",
            status: 200,
            took: Duration::from_micros(1_500),
            bytes: 7,
        };
        let mut line = String::new();
        access.format(&mut line, Format::Text, Duration::from_secs(1)).unwrap();
        assert_eq!(
            line,
            "1970-01-01T00:00:01.000000Z  INFO taskgate::access: id=00000005 method=\"POST\" path=\"/m\\\"\\ncp\" \
             rpc=\"tools/call\" dialect=\"job\" status=200 ms=1.500 bytes=7\n"
        );
        line.clear();
        access.format(&mut line, Format::Json, Duration::from_secs(1)).unwrap();
        assert_eq!(line.lines().count(), 1);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&value["path"], &value["ms"]), (&"/m\"\ncp".into(), &1.5.into()));
    }
}
