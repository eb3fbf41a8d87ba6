//! What an upstream answered, whatever it is, as an answer with the caller's id.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::value::RawValue;

use crate::call::{Answer, Body, Error, PassBody, Side, Standing};
use crate::dialect::error_object;
use crate::jsonrpc::{Envelope, Id, Kind as MessageKind, entries, error_response};
use crate::mcp::Era;
use crate::upstream::{self, Kind, Leg};

/// How much of an upstream's body is repeated in an error.
const QUOTED: usize = 100;
/// How many characters of a tool's error are told where its result is not.
const TOLD: usize = 500;

/// The response in a complete body.
pub(super) fn response(status: StatusCode, kind: Kind, body: &Bytes) -> Result<Envelope, Error> {
    let wrong = |what: &str, body: &Bytes| {
        let said = quoted(body);
        let text = if said.is_empty() {
            format!("HTTP {} {what}", status.as_u16())
        } else {
            format!("HTTP {} {what}: {said}", status.as_u16())
        };
        Error::Protocol { text, status: Some(status.as_u16()) }
    };
    if body.is_empty() {
        return Err(wrong("without a body", body));
    }
    if kind == Kind::Other && status.is_success() {
        return Err(wrong("with a body that is neither JSON nor an event stream", body));
    }
    match Envelope::read(body.clone()) {
        // Authorisation servers answer with an object whose `error` is a word.
        Ok(envelope)
            if envelope.kind() == MessageKind::Response
                && envelope.error().is_none_or(|error| error.starts_with('{')) =>
        {
            Ok(envelope)
        }
        _ => Err(wrong("with a body that is no JSON-RPC response", body)),
    }
}

/// An answer that only a server of the other era gives corrects what is known of the upstream.
pub(super) fn learn_era(leg: &Leg, status: StatusCode, (kind, body): (Kind, &Bytes)) {
    if status.is_success() {
        return;
    }
    let facts = &leg.upstream.facts;
    let message = || response(status, kind, body).ok();
    match leg.era {
        Era::Stateless => {
            let way = facts.way(leg.credential(), leg.query());
            facts.heard_stateless(way, status, message().as_ref());
        }
        Era::Handshake if leg.session.as_ref().is_some_and(|session| session.hello().is_none()) => {
            facts.heard_in_session(message().as_ref());
        }
        Era::Handshake => {}
    }
}

/// The answer that a complete body of an upstream becomes.
pub(super) fn whole(
    status: StatusCode,
    headers: HeaderMap,
    body: (Kind, Bytes),
    id: &Id,
    standing: Standing,
) -> (Answer, Side) {
    let (kind, body) = body;
    match response(status, kind, &body) {
        Ok(envelope) => {
            let side = if status.is_success() { Side::None } else { Side::Upstream };
            (Answer { status, headers, body: Body::Message(envelope.with_id(id)) }, side)
        }
        // What an authorisation server says is not ours to rephrase.
        Err(error) if status == StatusCode::UNAUTHORIZED => {
            let instead = error_response(Some(id), &error_object(&error));
            (Answer { status, headers, body: Body::Foreign(pass(body), instead) }, Side::Client)
        }
        Err(error) if status.is_client_error() => {
            let message = error_response(Some(id), &error_object(&error));
            (Answer { status, headers, body: Body::Message(message) }, Side::Upstream)
        }
        Err(error) => {
            let mut answer = failed(&error, id, standing);
            answer.headers = headers;
            (answer, side(&error))
        }
    }
}

/// The answer that says an error.
#[must_use]
pub fn failed(error: &Error, id: &Id, standing: Standing) -> Answer {
    Answer::message(http_status(error, standing), error_response(Some(id), &error_object(error)))
}

/// The answer that says an error to a request whose id is not known.
#[must_use]
pub fn refused(status: StatusCode, error: &Error) -> Answer {
    Answer::message(status, error_response(None, &error_object(error)))
}

/// Whose side failed, for the counters.
pub(super) fn side(error: &Error) -> Side {
    error.side()
}

/// The HTTP status of an error.
fn http_status(error: &Error, standing: Standing) -> StatusCode {
    let stateless = standing == Standing::Stateless;
    let outside = standing == Standing::Outside;
    match error {
        Error::SessionEnded => StatusCode::NOT_FOUND,
        Error::InvalidRequest(_)
        | Error::InvalidEnvelope(_)
        | Error::HeaderMismatch(_)
        | Error::TasksUndeclared(_)
        | Error::UnsupportedVersion { .. } => StatusCode::BAD_REQUEST,
        Error::MethodNotFound(_) if stateless => StatusCode::NOT_FOUND,
        Error::ShuttingDown | Error::StoreUnavailable if outside => StatusCode::SERVICE_UNAVAILABLE,
        Error::Unreachable(_) | Error::Protocol { .. } if outside => StatusCode::BAD_GATEWAY,
        Error::MethodNotFound(_)
        | Error::InvalidParams(_)
        | Error::ShuttingDown
        | Error::StoreUnavailable
        | Error::TooManyTasks
        | Error::Unreachable(_)
        | Error::Protocol { .. }
        | Error::OutcomeUnknown(_)
        | Error::Unanswered(_)
        | Error::MaxRuntime(_)
        | Error::TooLarge { .. } => StatusCode::OK,
    }
}

/// The event that carries nothing but a message keeps its headers; a body that passes needs its type.
pub(super) fn streamed(status: StatusCode, mut headers: HeaderMap, body: PassBody) -> Answer {
    headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
    Answer { status, headers, body: Body::Pass(body) }
}

/// The beginning of what a result says, if it says `isError: true`.
pub(super) fn tool_error(result: &str) -> Option<Arc<str>> {
    let found = entries(result);
    if found.get("isError") != Some(&"true") {
        return None;
    }
    let blocks: Vec<&RawValue> =
        found.get("content").and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let said = blocks.iter().find_map(|block| {
        let text = entries(block.get()).get("text").copied()?;
        serde_json::from_str::<String>(text).ok()
    });
    Some(said.unwrap_or_default().chars().take(TOLD).collect::<String>().into())
}

/// What an error of the upstream room means for the caller.
#[must_use]
pub fn from_upstream(error: upstream::Error) -> Error {
    match error {
        upstream::Error::Setup(text) | upstream::Error::Unreachable(text) => Error::Unreachable(text),
        upstream::Error::Broken(text) => Error::OutcomeUnknown(format!("the connection broke ({text})")),
        upstream::Error::Cut => Error::OutcomeUnknown("the event stream ended without an answer".into()),
        upstream::Error::Refused => {
            Error::OutcomeUnknown("the upstream refused the credential when its event stream was taken up".into())
        }
        upstream::Error::Encoding(name) => {
            Error::Protocol { text: format!("unknown content encoding {name}"), status: None }
        }
        upstream::Error::Unanswered(method) => Error::Unanswered(method),
        upstream::Error::Protocol(text) => Error::Protocol { text, status: None },
        upstream::Error::TooLarge { limit } => Error::TooLarge { limit: limit as u64 },
    }
}

fn pass(body: Bytes) -> PassBody {
    PassBody::new(Full::new(body).map_err(|never| match never {}))
}

/// The beginning of a body, on one line.
fn quoted(body: &Bytes) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(QUOTED * 4)]);
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(QUOTED).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(status: u16, kind: Kind, body: &'static str, standing: Standing) -> (u16, String) {
        let id = Id::from_raw(b"7").unwrap();
        let status = StatusCode::from_u16(status).unwrap();
        let body = (kind, Bytes::from_static(body.as_bytes()));
        let (answer, _) = whole(status, HeaderMap::new(), body, &id, standing);
        let text = match answer.body {
            Body::Message(message) => String::from_utf8(message.to_vec()).unwrap(),
            other => format!("{other:?}"),
        };
        (answer.status.as_u16(), text)
    }

    #[test]
    fn b79_everything_becomes_an_answer_with_the_callers_id() {
        for (status, kind, body, standing, expected, part) in [
            (200, Kind::Json, r#"{"id":7,"result":{}}"#, Standing::Session, 200, r#"{"id":7,"result":{}}"#),
            (200, Kind::Json, r#"{"id":"x","result":{}}"#, Standing::Session, 200, r#"{"id":7,"result":{}}"#),
            (
                400,
                Kind::Json,
                r#"{"id":null,"error":{"code":1}}"#,
                Standing::Session,
                400,
                r#"{"id":7,"error":{"code":1}}"#,
            ),
            (502, Kind::Other, "<html>bad</html>", Standing::Session, 200, "upstream_protocol"),
            (502, Kind::Other, "<html>bad</html>", Standing::Outside, 502, "\"status\":502"),
            (200, Kind::Other, "<html>", Standing::Session, 200, "neither JSON"),
            (200, Kind::Json, r#"{"id":7,"resu"#, Standing::Session, 200, "no JSON-RPC response"),
            (200, Kind::Json, r#"{"hello":1}"#, Standing::Session, 200, "no JSON-RPC response"),
            (204, Kind::Other, "", Standing::Session, 200, "without a body"),
            (400, Kind::Other, "no session", Standing::Session, 400, "no session"),
            (502, Kind::Other, "<html>bad</html>", Standing::Stateless, 200, "\"status\":502"),
            (429, Kind::Other, "slow down", Standing::Session, 429, "slow down"),
        ] {
            let (got, text) = judged(status, kind, body, standing);
            assert_eq!(got, expected, "{status} {body}");
            assert!(text.contains(part) && text.contains("\"id\":7"), "{status} {body}: {text}");
        }
        assert!(judged(401, Kind::Other, "who?", Standing::Session).1.starts_with("Foreign"));
    }
}
