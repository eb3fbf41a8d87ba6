//! What several dialects tell of a task in the same words.

use crate::jsonrpc::entries;
use crate::mcp::method;
use crate::task::{Note, Question, Status};

use super::error::failure_object;

/// In which of the two spellings `tasks/get` gives its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// The dialect's own.
    Own,
    /// The dialect's own, for clients of the stateless era, to whom each result says what it is.
    Stateless,
    /// Both, for clients that declare the extension and may expect either.
    Both,
}

/// What is going on, in words.
pub(super) fn status_message(status: &Status) -> Option<String> {
    match status {
        Status::Working { note } => note.as_ref().map(Note::line),
        Status::InputRequired { questions, .. } => questions.first().map(waiting),
        Status::Failed { failure, .. } => Some(failure_object(failure).message),
        Status::Completed { .. } | Status::Cancelled { .. } => None,
    }
}

/// What a task waits for.
pub(super) fn waiting(question: &Question) -> String {
    let params = entries(question.params.as_deref().unwrap_or_default());
    let message = params.get("message").and_then(|raw| serde_json::from_str::<String>(raw).ok());
    match (&*question.method, message) {
        (method::SAMPLING_CREATE, _) => "waiting for the client's model".into(),
        (method::ROOTS_LIST, _) => "waiting for the client's roots".into(),
        (_, Some(message)) => format!("waiting for an answer: {message}"),
        (_, None) => "waiting for an answer".into(),
    }
}
