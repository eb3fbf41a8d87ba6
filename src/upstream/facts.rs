//! Which eras of the protocol an upstream speaks: learnt from what it answers, and corrected when proved wrong.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http::StatusCode;
use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

use crate::jsonrpc::{Envelope, ErrorObject, METHOD_NOT_FOUND, entries};
use crate::mcp::{OwnTasks, ServerHello, Version, code};

/// Whether an upstream speaks an era.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// Nobody has asked yet, or it could not be told from the answer.
    Unknown,
    /// It does.
    Yes,
    /// It does not.
    No,
}

/// What is known of the eras that an upstream speaks.
#[derive(Debug, Default)]
pub struct Facts {
    stateless: Fact,
    handshake: Fact,
    /// Its latest result of `server/discover`, as JSON text.
    discovered: Mutex<Option<Arc<str>>>,
    /// Whether it announced the tasks extension there.
    extension: AtomicBool,
    /// Held by who asks it which eras it speaks.
    turn: Arc<Turn<()>>,
    /// How often it was asked and gave no answer at all.
    silences: AtomicUsize,
}

#[derive(Debug, Default)]
struct Fact(AtomicU8);

impl Fact {
    fn get(&self) -> Speaks {
        match self.0.load(Ordering::Relaxed) {
            0 => Speaks::Unknown,
            1 => Speaks::Yes,
            _ => Speaks::No,
        }
    }

    fn set(&self, speaks: Speaks) {
        self.0.store(speaks as u8, Ordering::Relaxed);
    }
}

impl Facts {
    /// Whether it answers requests of the stateless era (2026-07-28 and later).
    #[must_use]
    pub fn stateless(&self) -> Speaks {
        self.stateless.get()
    }

    /// Whether it opens sessions by `initialize`.
    #[must_use]
    pub fn handshake(&self) -> Speaks {
        self.handshake.get()
    }

    /// It was seen to answer a request of the stateless era, or not to.
    pub fn set_stateless(&self, speaks: Speaks) {
        self.stateless.set(speaks);
    }

    /// It was seen to answer `initialize`, or not to.
    pub fn set_handshake(&self, speaks: Speaks) {
        self.handshake.set(speaks);
    }

    /// Its latest result of `server/discover`, as JSON text.
    #[must_use]
    pub fn discovered(&self) -> Option<Arc<str>> {
        self.discovered.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// It answered `server/discover` with this result.
    pub fn set_discovered(&self, result: &str) {
        let extension = ServerHello::read(result).own_tasks == OwnTasks::Extension;
        self.extension.store(extension, Ordering::Relaxed);
        *self.discovered.lock().unwrap_or_else(PoisonError::into_inner) = Some(result.into());
        self.set_stateless(Speaks::Yes);
    }

    /// Which tasks it has of its own for clients of the stateless era, as far as is known.
    #[must_use]
    pub fn own_tasks(&self) -> OwnTasks {
        if self.extension.load(Ordering::Relaxed) { OwnTasks::Extension } else { OwnTasks::None }
    }

    /// Lets one at a time ask; `None` if it gave no answer at all while this one waited for its turn.
    pub async fn turn_to_ask(&self) -> Option<OwnedMutexGuard<()>> {
        let before = self.silences.load(Ordering::Relaxed);
        let turn = self.turn.clone().lock_owned().await;
        (self.silences.load(Ordering::Relaxed) == before).then_some(turn)
    }

    /// It was asked and gave no answer: those that wait need not ask again.
    pub fn was_silent(&self) {
        self.silences.fetch_add(1, Ordering::Relaxed);
    }

    /// It answered a well-formed `server/discover`: what that shows, which is remembered.
    pub fn heard_discover(&self, status: StatusCode, message: Option<&Envelope>) -> Speaks {
        let result = message.and_then(Envelope::result).filter(|result| result.starts_with(b"{"));
        if let (true, Some(result)) = (status.is_success(), result) {
            self.set_discovered(std::str::from_utf8(&result).unwrap_or("{}"));
            return Speaks::Yes;
        }
        let shown = match error_of(message).as_ref().and_then(modern) {
            Some(shown) => shown,
            None if says_nothing(status) => Speaks::Unknown,
            None => Speaks::No,
        };
        if shown != Speaks::Unknown {
            self.set_stateless(shown);
        }
        shown
    }

    /// It answered another request of the stateless era, which it was thought to speak. An answer that only a server of
    /// the other era gives is a reason to ask again.
    pub fn heard_stateless(&self, status: StatusCode, message: Option<&Envelope>) {
        let refused =
            matches!(status, StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED);
        let error = error_of(message);
        let fits = match &error {
            Some(error) if error.code == METHOD_NOT_FOUND => status == StatusCode::NOT_FOUND,
            Some(error) if error.code == crate::jsonrpc::INVALID_PARAMS => true,
            Some(error) => modern(error) == Some(Speaks::Yes),
            None => false,
        };
        if refused && !fits && self.stateless() == Speaks::Yes {
            self.set_stateless(Speaks::Unknown);
        }
    }

    /// It answered a request in a session that nobody here has seen begin: if it names what it speaks, and none of that
    /// has sessions, the session was not its own.
    pub fn heard_in_session(&self, message: Option<&Envelope>) {
        let error = error_of(message).filter(|error| error.code == code::UNSUPPORTED_VERSION);
        let supported = error.and_then(|error| supported(&error)).filter(|known| !known.is_empty());
        let has_sessions = |known: &Vec<String>| known.iter().any(|version| Version::handshake(version).is_some());
        if self.handshake() == Speaks::Unknown && supported.is_some_and(|known| !has_sessions(&known)) {
            self.set_stateless(Speaks::Yes);
            self.set_handshake(Speaks::No);
        }
    }

    /// It answered `initialize`: with a session, or as a server that has none to open.
    pub fn heard_initialize(&self, status: StatusCode, message: Option<&Envelope>) {
        if status.is_success() && message.is_some_and(|message| message.result().is_some()) {
            return self.set_handshake(Speaks::Yes);
        }
        let is_unknown = error_of(message).is_some_and(|error| {
            matches!(error.code, METHOD_NOT_FOUND | code::UNSUPPORTED_VERSION | code::HEADER_MISMATCH)
        });
        let refused = matches!(status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED);
        if is_unknown || refused {
            self.set_handshake(Speaks::No);
            if self.stateless() == Speaks::No {
                self.set_stateless(Speaks::Unknown);
            }
        }
    }
}

fn error_of(message: Option<&Envelope>) -> Option<ErrorObject> {
    serde_json::from_str(message?.error()?).ok()
}

/// What an error that only the stateless era has shows; `None` if it is none of those. A server that refuses the
/// version and names only versions of the other era does not speak this one.
fn modern(error: &ErrorObject) -> Option<Speaks> {
    match error.code {
        code::HEADER_MISMATCH | code::MISSING_CAPABILITY => Some(Speaks::Yes),
        code::UNSUPPORTED_VERSION => {
            let only_handshake =
                supported(error).is_some_and(|known| known.iter().all(|version| Version::handshake(version).is_some()));
            Some(if only_handshake { Speaks::No } else { Speaks::Yes })
        }
        _ => None,
    }
}

/// The versions that an error names.
fn supported(error: &ErrorObject) -> Option<Vec<String>> {
    let data = entries(error.data.as_ref()?.get());
    serde_json::from_str(data.get("supported")?).ok()
}

/// Whether a status tells of the caller, or of trouble, and not of what the server speaks.
fn says_nothing(status: StatusCode) -> bool {
    status.is_server_error()
        || status.is_redirection()
        || matches!(
            status,
            StatusCode::UNAUTHORIZED
                | StatusCode::PAYMENT_REQUIRED
                | StatusCode::FORBIDDEN
                | StatusCode::PROXY_AUTHENTICATION_REQUIRED
                | StatusCode::REQUEST_TIMEOUT
                | StatusCode::TOO_MANY_REQUESTS
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn heard(facts: &Facts, how: fn(&Facts, StatusCode, Option<&Envelope>), (status, body): (u16, &str)) {
        let message = Envelope::read(Bytes::copy_from_slice(body.as_bytes())).ok();
        how(facts, StatusCode::from_u16(status).unwrap(), message.as_ref());
    }

    #[test]
    fn b89_what_a_probe_shows() {
        for (answer, shown) in [
            ((200, r#"{"id":1,"result":{"supportedVersions":["2026-07-28"]}}"#), Speaks::Yes),
            ((400, r#"{"id":1,"error":{"code":-32020,"message":"x"}}"#), Speaks::Yes),
            ((400, r#"{"id":1,"error":{"code":-32021,"message":"x"}}"#), Speaks::Yes),
            (
                (400, r#"{"id":1,"error":{"code":-32022,"message":"x","data":{"supported":["2027-01-01"]}}}"#),
                Speaks::Yes,
            ),
            ((200, r#"{"id":1,"error":{"code":-32022,"message":"x"}}"#), Speaks::Yes),
            (
                (400, r#"{"id":1,"error":{"code":-32022,"message":"x","data":{"supported":["2025-11-25"]}}}"#),
                Speaks::No,
            ),
            ((400, "Bad Request: no session"), Speaks::No),
            ((400, r#"{"id":null,"error":{"code":-32000,"message":"x"}}"#), Speaks::No),
            ((404, ""), Speaks::No),
            ((405, ""), Speaks::No),
            ((200, r#"{"id":1,"error":{"code":-32601,"message":"x"}}"#), Speaks::No),
            ((202, ""), Speaks::No),
            ((401, ""), Speaks::Unknown),
            ((403, r#"{"error":"denied"}"#), Speaks::Unknown),
            ((429, ""), Speaks::Unknown),
            ((503, "<html>"), Speaks::Unknown),
            ((302, ""), Speaks::Unknown),
        ] {
            let facts = Facts::default();
            heard(
                &facts,
                |facts, status, message| {
                    facts.heard_discover(status, message);
                },
                answer,
            );
            assert_eq!(facts.stateless(), shown, "{answer:?}");
        }
    }

    #[test]
    fn what_it_was_thought_to_speak_is_asked_again() {
        for (answer, after) in [
            ((400, "Bad Request: Mcp-Session-Id is required"), Speaks::Unknown),
            ((404, r#"{"id":1,"error":{"code":-32001,"message":"Session not found"}}"#), Speaks::Unknown),
            ((405, ""), Speaks::Unknown),
            (
                (400, r#"{"id":1,"error":{"code":-32022,"message":"x","data":{"supported":["2025-11-25"]}}}"#),
                Speaks::Unknown,
            ),
            ((400, r#"{"id":1,"error":{"code":-32020,"message":"x"}}"#), Speaks::Yes),
            ((400, r#"{"id":1,"error":{"code":-32602,"message":"x"}}"#), Speaks::Yes),
            ((404, r#"{"id":1,"error":{"code":-32601,"message":"x"}}"#), Speaks::Yes),
            ((401, ""), Speaks::Yes),
            ((500, ""), Speaks::Yes),
            ((200, r#"{"id":1,"result":{}}"#), Speaks::Yes),
        ] {
            let facts = Facts::default();
            facts.set_stateless(Speaks::Yes);
            heard(&facts, Facts::heard_stateless, answer);
            assert_eq!(facts.stateless(), after, "{answer:?}");
        }
    }

    #[test]
    fn a_server_without_sessions_may_speak_the_other_era_by_now() {
        for (answer, handshake, stateless) in [
            ((200, r#"{"id":1,"result":{}}"#), Speaks::Yes, Speaks::No),
            ((404, r#"{"id":1,"error":{"code":-32601,"message":"x"}}"#), Speaks::No, Speaks::Unknown),
            ((400, r#"{"id":1,"error":{"code":-32020,"message":"x"}}"#), Speaks::No, Speaks::Unknown),
            ((401, ""), Speaks::Unknown, Speaks::No),
            ((503, ""), Speaks::Unknown, Speaks::No),
        ] {
            let facts = Facts::default();
            facts.set_stateless(Speaks::No);
            heard(&facts, Facts::heard_initialize, answer);
            assert_eq!((facts.handshake(), facts.stateless()), (handshake, stateless), "{answer:?}");
        }
    }

    #[tokio::test]
    async fn who_waits_for_a_silent_upstream_does_not_ask_again() {
        let facts = Arc::new(Facts::default());
        let turn = facts.turn_to_ask().await.unwrap();
        let (mut waits, mut other) = (Box::pin(facts.turn_to_ask()), Box::pin(facts.turn_to_ask()));
        assert!(futures_util::poll!(&mut waits).is_pending());
        drop(turn);
        let turn = waits.await.expect("it had answered");
        assert!(futures_util::poll!(&mut other).is_pending());
        facts.was_silent();
        drop(turn);
        assert!(other.await.is_none());
        assert!(facts.turn_to_ask().await.is_some(), "the next asks again");
    }
}
