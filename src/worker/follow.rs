//! Tasks of an upstream's own, followed to their end in the name of a client that knows nothing of them.
//!
//! `tasks/result` waits for the end, brings questions and progress on its stream, and may be asked again: so
//! following a task is one more exchange in the place of the call's own.

use std::time::Duration;

use http::Method;
use tokio::time::Instant;

use crate::jsonrpc::{Envelope, Id, Object, entries, request};
use crate::mcp::{Era, method};
use crate::shutdown::Work;
use crate::upstream::{Error, Leg};

use super::cancel;
use super::held::{Held, limits};
use super::upcall::Upcall;

/// How often in a row a broken wait is taken up again, and how long after.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(500);
/// A wait that lasted this long was none in vain.
const LASTED: Duration = Duration::from_secs(30);

/// A task of the upstream's that stands for a call.
#[derive(Debug)]
pub(super) struct Followed {
    id: String,
    /// When it was asked for last, and how often in a row in vain.
    asked: Instant,
    attempts: u32,
}

impl Followed {
    fn new(id: String) -> Self {
        Self { id, asked: Instant::now(), attempts: 0 }
    }

    /// The wait broke. Whether it may be taken up again.
    fn may_go_on(&mut self) -> bool {
        if self.asked.elapsed() >= LASTED {
            self.attempts = 0;
        }
        self.attempts += 1;
        self.asked = Instant::now() + PAUSE;
        self.attempts <= ATTEMPTS
    }
}

/// The task that a result announces, in the form of 2025-11-25.
fn announced(message: &Envelope) -> Option<String> {
    let result = message.result()?;
    let result = entries(std::str::from_utf8(&result).ok()?).get("task").map(|task| (*task).to_owned())?;
    let id = entries(&result).get("taskId").copied().map(str::to_owned)?;
    serde_json::from_str(&id).ok()
}

impl Held {
    /// If the upstream made a task of the call, follows that task from now on. Whether it did.
    pub(super) fn follow(&mut self, message: &Envelope) -> bool {
        if !self.assignment.follows_tasks || self.followed.is_some() {
            return false;
        }
        let Some(id) = announced(message) else { return false };
        self.followed = Some(Followed::new(id));
        self.ask_for_result(Duration::ZERO);
        true
    }

    /// Goes on with a task of the upstream's that another process followed.
    pub(super) fn follow_known(&mut self, id: &str) {
        self.followed = Some(Followed::new(id.to_owned()));
        self.ask_for_result(Duration::ZERO);
    }

    /// The task that is followed.
    pub(super) fn followed_task(&self) -> Option<&str> {
        self.followed.as_ref().map(|followed| followed.id.as_str())
    }

    /// The wait for the task broke: takes it up again, unless that was tried too often. Whether it does.
    pub(super) fn follow_on(&mut self, error: &Error) -> bool {
        let Some(followed) = &mut self.followed else { return false };
        let is_passing = matches!(error, Error::Unreachable(_) | Error::Broken(_) | Error::Cut);
        if !is_passing || !followed.may_go_on() {
            return false;
        }
        self.ask_for_result(PAUSE);
        true
    }

    fn ask_for_result(&mut self, pause: Duration) {
        let Some(followed) = &self.followed else { return };
        let params = Object::new().string("taskId", &followed.id).finish();
        let text = request(&Id::fresh(), method::TASKS_RESULT, &params);
        let mut message = self.assignment.leg.message(text);
        message.method = Method::POST;
        self.upcall = Upcall::start_after(pause, &self.assignment.leg, message, limits(&self.assignment));
    }

    /// Tells the upstream that the call is not wanted any more, or its task.
    pub(super) async fn cancel(&mut self, reason: &str) {
        self.round = None;
        if self.upcall.leave(reason) {
            return;
        }
        if self.assignment.leg.era == Era::Stateless {
            self.upcall = Upcall::Over;
            return;
        }
        let (work, leg) = (&self.worker.work, &self.assignment.leg);
        match &self.followed {
            Some(followed) => cancel_task(work, leg, &followed.id).await,
            None => cancel::cancel_upstream(work, leg, self.assignment.ticket.call(), reason).await,
        }
    }
}

async fn cancel_task(work: &Work, leg: &Leg, id: &str) {
    let params = Object::new().string("taskId", id).finish();
    cancel::send(work, leg, request(&Id::fresh(), method::TASKS_CANCEL, &params)).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[tokio::test(start_paused = true)]
    async fn gives_up_after_waits_in_vain_but_not_after_long_ones() {
        let mut followed = Followed::new("t-1".into());
        for _ in 0..3 * ATTEMPTS {
            tokio::time::advance(PAUSE + LASTED).await;
            assert!(followed.may_go_on());
        }
        for _ in 1..ATTEMPTS {
            tokio::time::advance(PAUSE).await;
            assert!(followed.may_go_on());
        }
        assert!(!followed.may_go_on());
    }

    #[test]
    fn tells_a_task_from_a_result() {
        let found = |text: &'static str| announced(&Envelope::read(Bytes::from_static(text.as_bytes())).unwrap());
        assert_eq!(found(r#"{"id":1,"result":{"task":{"taskId":"t-1","status":"working"}}}"#).as_deref(), Some("t-1"));
        for text in [
            r#"{"id":1,"result":{"content":[]}}"#,
            r#"{"id":1,"result":{"task":7}}"#,
            r#"{"id":1,"result":{"task":{"taskId":7}}}"#,
            r#"{"id":1,"result":7}"#,
            r#"{"id":1,"error":{"code":1,"message":"x"}}"#,
        ] {
            assert_eq!(found(text), None, "{text}");
        }
    }
}
