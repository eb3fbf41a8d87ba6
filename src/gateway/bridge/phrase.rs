//! What a session's upstream says, as a stateless client is told it.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;

use crate::call::{Answer, Body, Event};
use crate::jsonrpc::{
    Edit, Envelope, ErrorObject, Id, METHOD_NOT_FOUND, entries, error_response, result_response, splice,
};
use crate::mcp::{LOG_LEVELS, code, downward, header, method, rounds};
use crate::task::QuestionKey;

use super::super::forward::response_of;

/// What one request needs to know of its client to have its answer phrased.
#[derive(Clone, Debug)]
pub(super) struct Phrase {
    pub(super) method: String,
    /// The id of the request.
    pub(super) id: Id,
    /// Our progress token, and the client's, as JSON text; none if it has none.
    pub(super) token: Option<(String, String)>,
    /// From which level on log messages are wanted.
    pub(super) log_level: Option<String>,
    /// The server, as JSON text.
    pub(super) server_info: Option<Arc<str>>,
    /// The session upstream, of which its client knows nothing.
    pub(super) session: Option<Arc<str>>,
}

impl Phrase {
    /// An event on the way; `None` if it is nothing for this client.
    pub(super) fn event(&self, event: Event) -> Option<Event> {
        let data = event.data.as_ref().filter(|data| !data.is_empty());
        // An event that only tells an id: there is nothing to resume in this era.
        let message = Envelope::read(data?.clone()).ok()?;
        let text = match message.method() {
            method::PROGRESS => self.progress(&message)?,
            method::LOG_MESSAGE if self.wants(&message) => message.text().clone(),
            _ => return None,
        };
        Some(Event { id: None, retry: None, data: Some(text), ..event })
    }

    /// Whatever progress comes on its stream is the call's: after a retry it has the token of the request before.
    fn progress(&self, message: &Envelope) -> Option<Bytes> {
        let clients = self.token.as_ref().map(|(_, clients)| clients)?;
        let (at, params) = (message.params_at()?, message.params()?);
        let found = crate::jsonrpc::members(params)?;
        let token = found.iter().find(|member| member.name == "progressToken")?;
        let at = at.start + token.value_at.start..at.start + token.value_at.end;
        Some(splice(message.text(), vec![Edit::new(at, clients.as_str())]))
    }

    fn wants(&self, message: &Envelope) -> bool {
        let rank = |level: &str| LOG_LEVELS.iter().position(|known| *known == level);
        let Some(least) = self.log_level.as_deref().and_then(rank) else { return false };
        let params = entries(message.params().unwrap_or_default());
        let level = params.get("level").and_then(|raw| serde_json::from_str::<String>(raw).ok());
        level.as_deref().and_then(rank).is_none_or(|level| level >= least)
    }

    /// The answer, with the client's id.
    pub(super) fn answer(&self, mut answer: Answer) -> Answer {
        answer.headers.remove(header::SESSION_ID);
        let Body::Message(text) = &answer.body else { return answer };
        let Some(message) = response_of(text) else { return answer };
        if let Some(result) = message.result() {
            let result = downward::result(&self.method, &result, self.server_info.as_deref());
            let text = result_response(&self.id, std::str::from_utf8(&result).unwrap_or("{}"));
            return Answer { body: Body::Message(text), ..answer };
        }
        let error = message.error_object();
        let Some(mut error) = error.map(downward::error) else { return answer };
        if let Some(session) = &self.session {
            error.message = error.message.replace(&**session, "…");
        }
        if let Some(asks) = self.addresses(&error) {
            answer.status = StatusCode::OK;
            answer.body = Body::Message(result_response(&self.id, &asks));
            return answer;
        }
        answer.status = status(answer.status, &error);
        answer.body = Body::Message(error_response(Some(&self.id), &error));
        answer
    }
}

impl Phrase {
    /// What an upstream that wants addresses visited first asks in this era; the request is simply sent again then.
    fn addresses(&self, error: &ErrorObject) -> Option<String> {
        if error.code != code::URL_ELICITATION_REQUIRED {
            return None;
        }
        let asked = downward::url_questions(error.data.as_ref().map(|data| data.get()));
        let keys: Vec<QuestionKey> = asked.iter().map(|_| QuestionKey::random()).collect();
        let questions = keys.iter().zip(&asked);
        let questions =
            questions.map(|(key, params)| (key.as_str(), method::ELICITATION_CREATE, Some(params.as_str())));
        (!asked.is_empty()).then(|| rounds::input_required(questions, None, self.server_info.as_deref()))
    }
}

/// Statuses that say more than the message keep it; every other error has that of the stateless era.
fn status(status: StatusCode, error: &ErrorObject) -> StatusCode {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS => status,
        _ if error.code == METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        StatusCode::BAD_REQUEST if code::is_stateless(error.code) => status,
        _ => StatusCode::OK,
    }
}

/// Whether an answer may say that the upstream does not know the session any more: by 404, or, as some servers have it,
/// by 400 with words about the session. If it is so, the request was not served.
pub(super) fn may_be_lost(answer: &Answer) -> bool {
    match (answer.status, &answer.body) {
        (StatusCode::NOT_FOUND, _) => true,
        (StatusCode::BAD_REQUEST, Body::Message(text)) => speaks_of_session(text),
        _ => false,
    }
}

fn speaks_of_session(text: &Bytes) -> bool {
    let error = response_of(text).and_then(|message| message.error_object());
    error.is_some_and(|error| error.message.to_lowercase().contains("session"))
}
