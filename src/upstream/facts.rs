//! Which eras of the protocol an upstream speaks: learnt from what it answers, and corrected when proved wrong.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderValue, StatusCode};
use tokio::sync::OwnedMutexGuard;

use crate::jsonrpc::{Envelope, ErrorObject, METHOD_NOT_FOUND, entries};
use crate::mcp::{OwnTasks, ServerHello, Version, code};

use super::ways::{Belief, Way, Ways};

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
    /// What it told one caller only.
    ways: Ways,
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

    /// The way of callers that bring this credential and this query.
    #[must_use]
    pub fn way(&self, credential: Option<&HeaderValue>, query: Option<&str>) -> Way {
        self.ways.of(credential, query)
    }

    /// Whether it answers requests of the stateless era that come on this way; unknown if it is to be asked.
    #[must_use]
    pub fn stateless_on(&self, way: Way) -> Speaks {
        match (self.ways.belief(way), self.stateless()) {
            (_, Speaks::No) | (Belief::Refused, _) => Speaks::No,
            (Belief::InDoubt, _) => Speaks::Unknown,
            (Belief::AsKnown, known) => known,
        }
    }

    /// Whether it opens sessions by `initialize`.
    #[must_use]
    pub fn handshake(&self) -> Speaks {
        self.handshake.get()
    }

    /// It was seen to answer a request of the stateless era, or not to.
    pub fn set_stateless(&self, speaks: Speaks) {
        if speaks != self.stateless() {
            self.ways.forget_refusals();
        }
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

    /// Lets one at a time ask on each way; `None` if it told nothing while this one waited for its turn. Cancel safe.
    pub async fn turn_to_ask(&self, way: Way) -> Option<OwnedMutexGuard<()>> {
        self.ways.turn(way).await
    }

    /// It was asked and gave no answer, or none that tells anything: those that wait on this way need not ask again.
    pub fn told_nothing(&self, way: Way) {
        self.ways.told_nothing(way);
    }

    /// It answered a well-formed `server/discover`: what that shows, which is remembered. A refusal that does not say
    /// what it is for may be the caller's, and is remembered for its way only.
    pub fn heard_discover(&self, way: Way, status: StatusCode, message: Option<&Envelope>) -> Speaks {
        let result = message.and_then(Envelope::result).filter(|result| result.starts_with(b"{"));
        if let (true, Some(result)) = (status.is_success(), result) {
            self.set_discovered(std::str::from_utf8(&result).unwrap_or("{}"));
            self.ways.settled(way);
            return Speaks::Yes;
        }
        let error = message.and_then(Envelope::error_object);
        if let Some(shown) = error.as_ref().and_then(clear) {
            self.set_stateless(shown);
            self.ways.settled(way);
            return shown;
        }
        let refused = match status {
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => true,
            StatusCode::ACCEPTED => true,
            status => status.is_success() && error.is_some(),
        };
        if refused {
            self.ways.refused(way);
            return Speaks::No;
        }
        self.ways.told_nothing(way);
        Speaks::Unknown
    }

    /// It answered another request of the stateless era, which it was thought to speak. That it names only versions of
    /// the other era is a reason to ask again; any other answer that only a server of that era gives may be the
    /// caller's own fault, and is one for whoever comes the same way.
    pub fn heard_stateless(&self, way: Way, status: StatusCode, message: Option<&Envelope>) {
        let refused =
            matches!(status, StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED);
        if !refused || self.stateless() != Speaks::Yes {
            return;
        }
        let fits = match message.and_then(Envelope::error_object) {
            Some(error) if error.code == METHOD_NOT_FOUND => status == StatusCode::NOT_FOUND,
            Some(error) if error.code == crate::jsonrpc::INVALID_PARAMS => true,
            Some(error) => match modern(&error) {
                Some(Speaks::No) => return self.set_stateless(Speaks::Unknown),
                shown => shown == Some(Speaks::Yes),
            },
            None => false,
        };
        if !fits {
            self.ways.doubt(way);
        }
    }

    /// It answered a request in a session that nobody here has seen begin: if it names what it speaks, and none of that
    /// has sessions, the session was not its own.
    pub fn heard_in_session(&self, message: Option<&Envelope>) {
        let error = message.and_then(Envelope::error_object).filter(|error| error.code == code::UNSUPPORTED_VERSION);
        let supported = error.and_then(|error| supported(&error)).filter(|known| !known.is_empty());
        let has_sessions = |known: &Vec<String>| known.iter().any(|version| Version::handshake(version).is_some());
        if self.handshake() == Speaks::Unknown && supported.is_some_and(|known| !has_sessions(&known)) {
            self.set_stateless(Speaks::Yes);
            self.set_handshake(Speaks::No);
        }
    }

    /// It answered `initialize`: with a session, or as a server that has none to open. Of one that was seen to open
    /// sessions, a bare refusal is the caller's own; one that says that there are none has it asked again.
    pub fn heard_initialize(&self, status: StatusCode, message: Option<&Envelope>) {
        if status.is_success() && message.is_some_and(|message| message.result().is_some()) {
            return self.set_handshake(Speaks::Yes);
        }
        let is_unknown = message.and_then(Envelope::error_object).is_some_and(|error| {
            matches!(error.code, METHOD_NOT_FOUND | code::UNSUPPORTED_VERSION | code::HEADER_MISMATCH)
        });
        let refused = matches!(status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED);
        match self.handshake() {
            Speaks::Yes if !is_unknown => return,
            Speaks::Yes => self.set_handshake(Speaks::Unknown),
            Speaks::Unknown | Speaks::No if is_unknown || refused => self.set_handshake(Speaks::No),
            Speaks::Unknown | Speaks::No => return,
        }
        // It may speak the other era by now.
        match self.stateless() {
            Speaks::No => self.set_stateless(Speaks::Unknown),
            Speaks::Unknown | Speaks::Yes => self.ways.forget_refusals(),
        }
    }
}

/// What an error in answer to a well-formed `server/discover` shows for everybody, if anything.
fn clear(error: &ErrorObject) -> Option<Speaks> {
    if error.code == METHOD_NOT_FOUND { Some(Speaks::No) } else { modern(error) }
}

/// What an error that only the stateless era has shows; `None` if it is none of those. A server that refuses the
/// version and names only versions of the other era does not speak this one.
fn modern(error: &ErrorObject) -> Option<Speaks> {
    match error.code {
        code::HEADER_MISMATCH | code::MISSING_CAPABILITY => Some(Speaks::Yes),
        code::UNSUPPORTED_VERSION => {
            let is_handshake = |version: &String| Version::handshake(version).is_some();
            let only_handshake =
                supported(error).is_some_and(|known| !known.is_empty() && known.iter().all(is_handshake));
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
            ((400, r#"{"id":1,"error":{"code":-32022,"message":"x","data":{"supported":[]}}}"#), Speaks::Yes),
            ((200, r#"{"id":1,"error":{"code":-32602,"message":"x"}}"#), Speaks::No),
            ((200, "<html>"), Speaks::Unknown),
            ((401, ""), Speaks::Unknown),
            ((403, r#"{"error":"denied"}"#), Speaks::Unknown),
            ((406, ""), Speaks::Unknown),
            ((415, ""), Speaks::Unknown),
            ((422, ""), Speaks::Unknown),
            ((429, ""), Speaks::Unknown),
            ((503, "<html>"), Speaks::Unknown),
            ((302, ""), Speaks::Unknown),
        ] {
            let facts = Facts::default();
            heard(
                &facts,
                |facts, status, message| {
                    facts.heard_discover(facts.way(None, None), status, message);
                },
                answer,
            );
            assert_eq!(facts.stateless_on(facts.way(None, None)), shown, "{answer:?}");
            let is_clear = shown == Speaks::Yes || answer.1.contains("-32022") || answer.1.contains("-32601");
            let for_others = if is_clear { shown } else { Speaks::Unknown };
            assert_eq!(facts.stateless_on(facts.way(None, Some("q"))), for_others, "{answer:?}");
            assert_eq!(facts.stateless(), for_others, "{answer:?}");
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
            heard(
                &facts,
                |facts, status, message| facts.heard_stateless(facts.way(None, None), status, message),
                answer,
            );
            assert_eq!(facts.stateless_on(facts.way(None, None)), after, "{answer:?}");
            // Whoever comes another way only asks again if it was said clearly.
            let for_others = if answer.1.contains("-32022") { after } else { Speaks::Yes };
            assert_eq!(facts.stateless_on(facts.way(None, Some("q"))), for_others, "{answer:?}");
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

    #[test]
    fn that_it_has_sessions_is_not_undone_by_a_bare_refusal() {
        for (answer, handshake) in [
            ((404, ""), Speaks::Yes),
            ((405, ""), Speaks::Yes),
            ((400, r#"{"id":1,"error":{"code":-32600,"message":"x"}}"#), Speaks::Yes),
            ((404, r#"{"id":1,"error":{"code":-32601,"message":"x"}}"#), Speaks::Unknown),
            ((400, r#"{"id":1,"error":{"code":-32022,"message":"x"}}"#), Speaks::Unknown),
        ] {
            let facts = Facts::default();
            facts.set_handshake(Speaks::Yes);
            heard(&facts, Facts::heard_initialize, answer);
            assert_eq!(facts.handshake(), handshake, "{answer:?}");
        }
    }

    #[test]
    fn what_was_refused_on_one_way_is_asked_again_when_it_has_changed() {
        let facts = Facts::default();
        let way = facts.way(None, None);
        facts.heard_discover(way, StatusCode::NOT_FOUND, None);
        assert_eq!(facts.stateless_on(way), Speaks::No);
        facts.set_discovered("{}");
        assert_eq!(facts.stateless_on(way), Speaks::Yes);
        facts.heard_stateless(way, StatusCode::NOT_FOUND, None);
        facts.heard_discover(way, StatusCode::BAD_GATEWAY, None);
        assert_eq!(facts.stateless_on(way), Speaks::Yes, "nothing was told");
    }

    #[tokio::test]
    async fn who_waits_for_a_silent_upstream_does_not_ask_again() {
        let facts = Arc::new(Facts::default());
        let way = facts.way(None, None);
        let turn = facts.turn_to_ask(way).await.unwrap();
        assert!(facts.turn_to_ask(facts.way(None, Some("q"))).await.is_some(), "another way is not kept waiting");
        let (mut waits, mut other) = (Box::pin(facts.turn_to_ask(way)), Box::pin(facts.turn_to_ask(way)));
        assert!(futures_util::poll!(&mut waits).is_pending());
        drop(turn);
        let turn = waits.await.expect("it had answered");
        assert!(futures_util::poll!(&mut other).is_pending());
        facts.told_nothing(way);
        drop(turn);
        assert!(other.await.is_none());
        assert!(facts.turn_to_ask(way).await.is_some(), "the next asks again");
    }
}
