//! How a call asks its client: by requests of its own in the handshake era, by an unfinished result in the stateless one.

use std::collections::BTreeMap;

use futures_util::future::try_join_all;
use rmcp::model::{
    ClientCapabilities, ErrorData, InputRequest, InputRequiredResult, InputResponses, ProtocolVersion, ServerRequest,
};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
use serde_json::{Value, json};

/// The answers, by the names of the questions.
pub(crate) type Answers = BTreeMap<String, Value>;

/// Why a call ends before its result.
pub(crate) enum Stop {
    /// The client is to answer, and to call again.
    Unfinished(InputRequiredResult),
    /// The request cannot be served.
    Refused(ErrorData),
    /// The tool failed.
    Failed(String),
}

impl From<ErrorData> for Stop {
    fn from(error: ErrorData) -> Self {
        Self::Refused(error)
    }
}

/// One call's exchange of questions and answers with its client.
pub(crate) struct Conversation {
    pub(crate) abilities: ClientCapabilities,
    pub(crate) stateless: bool,
    peer: Peer<RoleServer>,
    about: String,
    given: Answers,
    /// How many rounds of questions the client has been through.
    passed: u32,
    asked: u32,
}

impl Conversation {
    /// Reads what a call brings from earlier rounds; a state that this server did not give is refused.
    pub(crate) fn resume(
        context: &RequestContext<RoleServer>,
        about: &str,
        given: Option<InputResponses>,
        state: Option<&str>,
    ) -> Result<Self, Stop> {
        let passed = match state {
            None => 0,
            Some(state) => (0..3)
                .find(|round| state_after(about, *round) == state)
                .ok_or_else(|| ErrorData::invalid_params("this is not a state of this request", None))?,
        };
        Ok(Self {
            abilities: context.client_capabilities().unwrap_or_default(),
            stateless: context.protocol_version().is_some_and(|spoken| spoken == ProtocolVersion::V_2026_07_28),
            peer: context.peer.clone(),
            about: about.to_owned(),
            given: given.unwrap_or_default(),
            passed,
            asked: 0,
        })
    }

    /// Asks everything at once; the answers to rounds that are over are not told again.
    pub(crate) async fn ask(&mut self, questions: Vec<(&str, Value)>) -> Result<Answers, Stop> {
        let round = self.asked;
        self.asked += 1;
        if !self.stateless {
            return self.ask_now(questions).await;
        }
        if round < self.passed {
            return Ok(Answers::new());
        }
        if questions.iter().all(|(name, _)| self.given.get(*name).is_some_and(Value::is_object)) {
            return Ok(self.given.clone());
        }
        let requests = questions.into_iter().map(|(name, question)| (name.to_owned(), request(question))).collect();
        let state = state_after(&self.about, round);
        Err(Stop::Unfinished(InputRequiredResult::new(Some(requests), Some(state))))
    }

    async fn ask_now(&self, questions: Vec<(&str, Value)>) -> Result<Answers, Stop> {
        let answers = questions.into_iter().map(|(name, question)| async move {
            let request = match request(question) {
                InputRequest::Elicitation(request) => ServerRequest::from(request),
                InputRequest::CreateMessage(request) => ServerRequest::from(request),
                InputRequest::ListRoots(request) => ServerRequest::from(request),
                _ => unreachable!("there are three kinds of questions"),
            };
            let answer = self.peer.send_request(request).await.map_err(|error| Stop::Failed(error.to_string()))?;
            Ok::<_, Stop>((name.to_owned(), serde_json::to_value(answer).expect("it was JSON")))
        });
        Ok(try_join_all(answers).await?.into_iter().collect())
    }
}

fn state_after(about: &str, round: u32) -> String {
    format!("{about}/{round}")
}

fn request(question: Value) -> InputRequest {
    serde_json::from_value(question).expect("it is written in this server")
}

/// A form, with the properties of its schema; all are required.
pub(crate) fn form(message: &str, properties: &Value) -> Value {
    let required: Vec<_> = properties.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
    let schema = json!({"type": "object", "properties": properties, "required": required});
    json!({"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}})
}

/// A prompt for the client's model.
pub(crate) fn prompt(text: &str) -> Value {
    let message = json!({"role": "user", "content": {"type": "text", "text": text}});
    json!({"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": 100}})
}

/// The question for the client's roots.
pub(crate) fn roots() -> Value {
    json!({"method": "roots/list"})
}
