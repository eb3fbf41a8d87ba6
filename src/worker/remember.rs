//! What is written down of sessions, so that they go on after a restart.

use std::time::Duration;

use tracing::warn;

use crate::mcp::Era;
use crate::session::Session;
use crate::task::SessionRecord;

use super::Worker;

impl Worker {
    /// Writes down, for `span`, what was said in a session, or that it ended; nothing if nothing was said.
    pub async fn remember(&self, session: &Session, span: Duration) {
        let Some(hello) = session.hello() else { return };
        let record = SessionRecord {
            client: hello.client.clone(),
            server: hello.server.clone(),
            era: if hello.repeated.is_some() { Era::Stateless } else { Era::Handshake },
            minted: session.minted,
            credential: session.starter(),
            ended: session.is_ended(),
            expires: self.tasks.now().plus(span),
        };
        if let Err(error) = self.tasks.put_session(session.fingerprint, &record).await {
            warn!(%error, "a session cannot be stored: after a restart it would have to begin anew");
        }
    }
}
