//! Questions of a server in the stateless era: a result that asks, and the same request again with the answers (2026-07-28,
//! "Multi Round-Trip Requests").

use std::borrow::Cow;

use bytes::Bytes;

use crate::jsonrpc::{Envelope, Object, entries, members, quote};

use super::params::{meta_key, string};
use super::patch::{Change, Named, apply, apply_text};
use super::{RELATED_TASK, STATELESS, method};

/// The parameter with the answers, by the keys of the questions.
pub const INPUT_RESPONSES: &str = "inputResponses";
/// The parameter that says what the answers belong to.
pub const REQUEST_STATE: &str = "requestState";

/// An `InputRequiredResult` that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputRequired {
    /// What is asked, in order.
    pub questions: Vec<Question>,
    /// The text of `requestState`, to be sent back as it is.
    pub request_state: Option<String>,
}

/// One question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Its key in the result.
    pub key: String,
    /// Its method.
    pub method: String,
    /// The text of its parameters.
    pub params: Option<String>,
}

/// What a request brings along when it comes again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retry<'a> {
    /// The answers: key, and the text of what was answered.
    pub responses: Vec<(Cow<'a, str>, &'a str)>,
    /// What we gave it.
    pub request_state: Option<Cow<'a, str>>,
}

impl<'a> Retry<'a> {
    /// Whether `params` brings something as `requestState` that is no text.
    #[must_use]
    pub fn is_odd(params: Option<&str>) -> bool {
        entries(params.unwrap_or_default()).get(REQUEST_STATE).is_some_and(|raw| string(raw).is_none())
    }

    /// Looks into the text of `params`.
    #[must_use]
    pub fn read(params: Option<&'a str>) -> Self {
        let params = entries(params.unwrap_or_default());
        let given = params.get(INPUT_RESPONSES).and_then(|text| members(text)).unwrap_or_default();
        Self {
            responses: given.into_iter().map(|member| (member.name, member.value)).collect(),
            request_state: params.get(REQUEST_STATE).and_then(|raw| string(raw)),
        }
    }
}

impl InputRequired {
    /// Reads a result; `None` unless it asks. A question without a method is left out.
    #[must_use]
    pub fn read(result: &str) -> Option<Self> {
        let result = entries(result);
        (string(result.get("resultType")?)? == "input_required").then(|| {
            let asked = result.get("inputRequests").and_then(|text| members(text)).unwrap_or_default();
            let question = |key: Cow<'_, str>, text: &str| {
                let parts = entries(text);
                Some(Question {
                    key: key.into_owned(),
                    method: string(parts.get("method")?)?.into_owned(),
                    params: parts.get("params").map(|text| (*text).to_owned()),
                })
            };
            Self {
                questions: asked.into_iter().filter_map(|member| question(member.name, member.value)).collect(),
                request_state: result.get(REQUEST_STATE).filter(|raw| **raw != "null").map(|raw| (*raw).to_owned()),
            }
        })
    }
}

/// A result that asks `questions` (key, method, text of the parameters, which [`question`] has made fit), and wants
/// `request_state` back if it is there.
#[must_use]
pub fn input_required<'a>(
    questions: impl IntoIterator<Item = (&'a str, &'a str, Option<&'a str>)>,
    request_state: Option<&str>,
    server_info: Option<&str>,
) -> String {
    let asked = questions.into_iter().fold(Object::new(), |asked, (key, method, params)| {
        let question = Object::new().string("method", method);
        asked.raw(key, &params.map_or(question.clone(), |params| question.raw("params", params)).finish())
    });
    let result = Object::new()
        .string("resultType", "input_required")
        .raw("inputRequests", &asked.finish())
        .maybe_string(REQUEST_STATE, request_state);
    let meta = server_info.map(|info| Object::new().raw(meta_key::SERVER_INFO, info).finish());
    meta.map_or(result.clone(), |meta| result.raw("_meta", &meta)).finish()
}

/// The parameters of a question of the handshake era as the stateless era puts it: nothing in them belongs to that one
/// request, and an address has no `elicitationId`.
#[must_use]
pub fn question(method: &str, params: Option<&str>) -> Option<String> {
    let mut changes = vec![
        ("task", Change::Remove),
        ("_meta", Change::Pruned(vec![("progressToken", Change::Remove), (RELATED_TASK, Change::Remove)])),
    ];
    if method == method::ELICITATION_CREATE {
        changes.push(("elicitationId", Change::Remove));
    }
    params.map(|params| apply_text(params, &changes))
}

/// The request again with the answers (key, text) and the text of the state it was given; earlier ones go. It still
/// has its old id, see [`Envelope::with_id`].
#[must_use]
pub fn retry(request: &Envelope, responses: &[(&str, &str)], request_state: Option<&str>) -> Bytes {
    let answers = responses.iter().fold(Object::new(), |object, (key, answer)| object.raw(key, answer));
    let changes = vec![
        (INPUT_RESPONSES, if responses.is_empty() { Change::Remove } else { Change::Set(answers.finish()) }),
        (REQUEST_STATE, request_state.map_or(Change::Remove, |state| Change::Set(state.into()))),
    ];
    apply_to_params(request, changes)
}

/// A request of our own with what a caller's request says in `_meta`, save what belongs to that one request.
#[must_use]
pub fn own_request(request: &Bytes, meta: Option<&str>) -> Bytes {
    let Some(meta) = meta.filter(|meta| meta.starts_with('{')) else { return request.clone() };
    let meta = apply_text(meta, &[("progressToken", Change::Remove)]);
    apply(request, &[("params", Change::Inside(vec![("_meta", Change::Set(meta))]))])
}

/// What a request's `_meta` says of its client, as that of a well-formed request of the first stateless version.
#[must_use]
pub fn well_formed(meta: Option<&str>) -> String {
    let meta = meta.filter(|meta| meta.starts_with('{')).unwrap_or("{}");
    apply_text(
        meta,
        &[
            (meta_key::PROTOCOL_VERSION, Change::Set(quote(STATELESS))),
            (meta_key::CLIENT_CAPABILITIES, Change::Default("{}".into())),
        ],
    )
}

/// The message with changed parameters. A list of parameters is left alone: it has no place for any.
pub(super) fn apply_to_params(message: &Envelope, changes: Vec<Named<'_>>) -> Bytes {
    if message.params().is_some_and(|params| !params.starts_with('{') && params != "null") {
        return message.text().clone();
    }
    apply(message.text(), &[("params", Change::Inside(changes))])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn envelope(text: &str) -> Envelope {
        Envelope::read(Bytes::copy_from_slice(text.as_bytes())).unwrap()
    }

    #[test]
    fn what_is_asked_is_read_back() {
        let ask = [("k\"1", "elicitation/create", Some(r#"{"n":1.0}"#)), ("k2", "roots/list", None)];
        let text = input_required(ask, Some("se\"al"), Some(r#"{"name":"s","version":"1"}"#));
        let read = InputRequired::read(&text).unwrap();
        let questions: Vec<_> = read.questions.iter().map(|q| (&*q.key, &*q.method, q.params.as_deref())).collect();
        assert_eq!(questions, ask);
        assert_eq!(read.request_state.as_deref(), Some(r#""se\"al""#));
        let told: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(told["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "s");
        assert!(!input_required(ask, None, None).contains("_meta"));
    }

    #[test]
    fn only_results_that_ask_are_questions() {
        for text in ["", "7", "[]", "{}", r#"{"resultType":"complete"}"#, r#"{"resultType":7}"#] {
            assert_eq!(InputRequired::read(text), None, "{text}");
        }
        for text in [
            r#"{"resultType":"input_required"}"#,
            r#"{"resultType":"input_required","inputRequests":[1],"requestState":null}"#,
            r#"{"resultType":"input_required","inputRequests":{"a":7,"b":{},"c":{"method":1}}}"#,
        ] {
            assert_eq!(InputRequired::read(text), Some(InputRequired::default()), "{text}");
        }
    }

    #[test]
    fn a_question_keeps_nothing_of_its_request() {
        for (method, before, after) in [
            (
                "elicitation/create",
                r#"{"mode":"url","elicitationId":"e", "url":"https://x","task":{"ttl":1},"_meta":{"progressToken":1}}"#,
                r#"{"mode":"url", "url":"https://x"}"#,
            ),
            (
                "sampling/createMessage",
                r#"{"elicitationId":"mine","maxTokens":1.0,"_meta":{"io.modelcontextprotocol/related-task":{},"x":1}}"#,
                r#"{"elicitationId":"mine","maxTokens":1.0,"_meta":{"x":1}}"#,
            ),
            ("roots/list", r#"{"_meta":null}"#, r#"{"_meta":null}"#),
            ("roots/list", "[1]", "[1]"),
        ] {
            assert_eq!(question(method, Some(before)).as_deref(), Some(after));
        }
        assert_eq!(question("roots/list", None), None);
    }

    #[test]
    fn a_retry_brings_the_answers_of_this_round() {
        let first = r#"{"id":1,"method":"tools/call","params":{"name":"t", "arguments":{"n":1.50}}}"#;
        let text = retry(&envelope(first), &[("a", r#"{"action":"accept"}"#)], Some(r#""s1""#));
        assert_eq!(
            text,
            r#"{"id":1,"method":"tools/call","params":{"inputResponses":{"a":{"action":"accept"}},"requestState":"s1","name":"t", "arguments":{"n":1.50}}}"#
        );
        let again = Envelope::read(text).unwrap();
        let read = Retry::read(again.params());
        assert_eq!(read.responses, [(Cow::from("a"), r#"{"action":"accept"}"#)]);
        assert_eq!(read.request_state.as_deref(), Some("s1"));
        let second = retry(&again, &[("b", "{}")], None);
        let value: Value = serde_json::from_slice(&second).unwrap();
        assert_eq!(value["params"]["inputResponses"], json!({"b": {}}));
        assert!(value["params"].get("requestState").is_none());
        assert_eq!(retry(&again, &[], None), first);
    }

    #[test]
    fn odd_parameters_hold_no_answers() {
        for params in [None, Some("null"), Some("[1]"), Some("{"), Some(r#"{"inputResponses":[],"requestState":7}"#)] {
            assert_eq!(Retry::read(params), Retry::default());
        }
        let list = r#"{"id":1,"method":"x","params":[1]}"#;
        assert_eq!(retry(&envelope(list), &[("a", "{}")], None), list);
        assert_eq!(
            retry(&envelope(r#"{"id":1,"method":"x"}"#), &[("a", "{}")], None),
            r#"{"params":{"inputResponses":{"a":{}}},"id":1,"method":"x"}"#
        );
    }
}
