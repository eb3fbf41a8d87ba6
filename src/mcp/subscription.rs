//! `subscriptions/listen` (2026-07-28, and SEP-2663 for tasks): what a client asks to be told, and the messages that
//! frame what it is told.

use std::collections::HashSet;

use bytes::Bytes;

use crate::jsonrpc::{Envelope, Id, Object, entries, notification, quote, result_response};

use super::meta_key::SUBSCRIPTION_ID;
use super::method;
use super::patch::Change;
use super::rounds::apply_to_params;

/// How many tasks, and how many resources, one subscription may name.
pub const MOST: usize = 1_000;

const NOTIFICATIONS: &str = "notifications";
const TASK_IDS: &str = "taskIds";
const TOOLS: &str = "toolsListChanged";
const PROMPTS: &str = "promptsListChanged";
const RESOURCES: &str = "resourcesListChanged";
const URIS: &str = "resourceSubscriptions";

/// What a client asks to be told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Changes of these tasks, each named once; `None` if it says nothing of tasks.
    pub task_ids: Option<Vec<String>>,
    /// That the list of tools is another.
    pub tools: bool,
    /// That the list of prompts is another.
    pub prompts: bool,
    /// That the list of resources is another.
    pub resources: bool,
    /// That one of these resources is another, each named once.
    pub uris: Vec<String>,
}

/// What is wrong with a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongFilter {
    /// There is none.
    #[error("notifications is missing: it is an object that says what to listen to")]
    Missing,
    /// A member that has to be a list of strings is something else.
    #[error("notifications.{0} is a list of strings")]
    NoStrings(&'static str),
    /// A member that has to be true or false is something else.
    #[error("notifications.{0} is true or false")]
    NoSwitch(&'static str),
    /// A list is too long.
    #[error("notifications.{0} names more than {MOST}")]
    TooMany(&'static str),
}

impl Filter {
    /// Reads the parameters of the request.
    ///
    /// # Errors
    /// If there is no filter, or a member that is known here is of a wrong type or too long.
    pub fn read(params: Option<&str>) -> Result<Self, WrongFilter> {
        let params = entries(params.unwrap_or_default());
        let filter = params.get(NOTIFICATIONS).filter(|text| text.starts_with('{')).ok_or(WrongFilter::Missing)?;
        let filter = entries(filter);
        let strings = |name: &'static str| match filter.get(name) {
            None => Ok(None),
            Some(text) => serde_json::from_str(text).map(Some).map_err(|_| WrongFilter::NoStrings(name)),
        };
        let switch = |name: &'static str| match filter.get(name) {
            None => Ok(false),
            Some(text) => serde_json::from_str(text).map_err(|_| WrongFilter::NoSwitch(name)),
        };
        Ok(Self {
            task_ids: strings(TASK_IDS)?.map(|ids| once(TASK_IDS, ids)).transpose()?,
            tools: switch(TOOLS)?,
            prompts: switch(PROMPTS)?,
            resources: switch(RESOURCES)?,
            uris: once(URIS, strings(URIS)?.unwrap_or_default())?,
        })
    }

    /// Whether it asks for anything but tasks.
    #[must_use]
    pub fn is_for_more_than_tasks(&self) -> bool {
        self.tools || self.prompts || self.resources || !self.uris.is_empty()
    }

    fn text(&self) -> String {
        let mut object = Object::new();
        if let Some(ids) = &self.task_ids {
            object = object.raw(TASK_IDS, &list(ids));
        }
        for (name, is_on) in [(TOOLS, self.tools), (PROMPTS, self.prompts), (RESOURCES, self.resources)] {
            if is_on {
                object = object.raw(name, "true");
            }
        }
        if !self.uris.is_empty() {
            object = object.raw(URIS, &list(&self.uris));
        }
        object.finish()
    }
}

/// Whether the parameters of a request name tasks to listen to, well or badly.
#[must_use]
pub fn names_tasks(params: Option<&str>) -> bool {
    let params = entries(params.unwrap_or_default());
    params.get(NOTIFICATIONS).is_some_and(|filter| entries(filter).contains_key(TASK_IDS))
}

/// Whether a filter asks for something that is neither a task nor turned off, known here or not.
#[must_use]
pub fn asks_for_more(params: Option<&str>) -> bool {
    let params = entries(params.unwrap_or_default());
    let filter = entries(params.get(NOTIFICATIONS).copied().unwrap_or_default());
    filter.iter().any(|(name, value)| name != TASK_IDS && !matches!(*value, "false" | "null" | "[]"))
}

/// The request as it goes on to an upstream: with these tasks in place of all that it names.
#[must_use]
pub fn request(message: &Envelope, task_ids: &[String]) -> Bytes {
    let tasks = if task_ids.is_empty() { Change::Remove } else { Change::Set(list(task_ids)) };
    apply_to_params(message, vec![(NOTIFICATIONS, Change::Inside(vec![(TASK_IDS, tasks)]))])
}

/// The first message of the subscription `id`: what of it is honoured.
#[must_use]
pub fn acknowledged(id: &Id, honoured: &Filter) -> Bytes {
    let params = Object::new().raw("_meta", &meta(id)).raw(NOTIFICATIONS, &honoured.text());
    notification(method::ACKNOWLEDGED, &params.finish())
}

/// The same from an upstream's, with these tasks beside those that it honours itself.
#[must_use]
pub fn acknowledged_too(upstreams: &Envelope, id: &Id, task_ids: &[String]) -> Bytes {
    let params = entries(upstreams.params().unwrap_or_default());
    let filter = entries(params.get(NOTIFICATIONS).copied().unwrap_or_default());
    let theirs = filter.get(TASK_IDS).and_then(|text| serde_json::from_str::<Vec<String>>(text).ok());
    let mut named = HashSet::new();
    let all = task_ids.iter().cloned().chain(theirs.unwrap_or_default());
    let all: Vec<String> = all.filter(|task| named.insert(task.clone())).collect();
    let changes = vec![
        (NOTIFICATIONS, Change::Inside(vec![(TASK_IDS, Change::Set(list(&all)))])),
        ("_meta", Change::Inside(vec![(SUBSCRIPTION_ID, Change::Set(id.raw().to_owned()))])),
    ];
    apply_to_params(upstreams, changes)
}

/// A message of the subscription `id`.
#[must_use]
pub fn tagged(message: &Envelope, id: &Id) -> Bytes {
    let tag = vec![(SUBSCRIPTION_ID, Change::Set(id.raw().to_owned()))];
    apply_to_params(message, vec![("_meta", Change::Inside(tag))])
}

/// A notification of the subscription `id` that says nothing but its method.
#[must_use]
pub fn bare(method: &str, id: &Id) -> Bytes {
    notification(method, &Object::new().raw("_meta", &meta(id)).finish())
}

/// The answer that ends the subscription `id` in good order.
#[must_use]
pub fn ended(id: &Id) -> Bytes {
    result_response(id, &Object::new().string("resultType", "complete").raw("_meta", &meta(id)).finish())
}

/// The metadata of every message of the subscription `id`, as JSON text.
#[must_use]
pub fn meta(id: &Id) -> String {
    Object::new().raw(SUBSCRIPTION_ID, id.raw()).finish()
}

/// The resource that a `notifications/resources/updated` is about.
#[must_use]
pub fn updated_uri(message: &Envelope) -> Option<String> {
    let params = entries(message.params()?);
    serde_json::from_str(params.get("uri")?).ok()
}

/// What a server that said this in `initialize` tells of by itself, of what `asked` asks for.
#[must_use]
pub fn offered(asked: &Filter, initialize_result: &str) -> Filter {
    let result = entries(initialize_result);
    let capabilities = entries(result.get("capabilities").copied().unwrap_or_default());
    let has = |part: &str, name: &str| {
        let part = entries(capabilities.get(part).copied().unwrap_or_default());
        part.get(name).is_some_and(|value| *value == "true")
    };
    Filter {
        task_ids: None,
        tools: asked.tools && has("tools", "listChanged"),
        prompts: asked.prompts && has("prompts", "listChanged"),
        resources: asked.resources && has("resources", "listChanged"),
        uris: if has("resources", "subscribe") { asked.uris.clone() } else { Vec::new() },
    }
}

fn once(name: &'static str, all: Vec<String>) -> Result<Vec<String>, WrongFilter> {
    if all.len() > MOST {
        return Err(WrongFilter::TooMany(name));
    }
    let mut seen = HashSet::new();
    Ok(all.into_iter().filter(|one| seen.insert(one.clone())).collect())
}

fn list(strings: &[String]) -> String {
    format!("[{}]", strings.iter().map(|text| quote(text)).collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(text: &str) -> Envelope {
        Envelope::read(Bytes::copy_from_slice(text.as_bytes())).unwrap()
    }

    fn id() -> Id {
        Id::from_raw(b"\"s-1\"").unwrap()
    }

    #[test]
    fn reads_what_is_asked_for() {
        let read = Filter::read(Some(
            r#"{"notifications":{"taskIds":["a","b","a"],"toolsListChanged":true,"promptsListChanged":false,"resourceSubscriptions":["x://1"],"later":{"k":1}}}"#,
        ));
        let expected = Filter {
            task_ids: Some(vec!["a".into(), "b".into()]),
            tools: true,
            uris: vec!["x://1".into()],
            ..Filter::default()
        };
        assert_eq!(read, Ok(expected));
        assert_eq!(Filter::read(Some(r#"{"notifications":{}}"#)), Ok(Filter::default()));
    }

    #[test]
    fn b61c_wrong_filters_are_told_apart() {
        let many = format!(r#"{{"notifications":{{"taskIds":{:?}}}}}"#, vec!["x"; MOST + 1]);
        for (params, expected) in [
            (None, WrongFilter::Missing),
            (Some("{}"), WrongFilter::Missing),
            (Some("[]"), WrongFilter::Missing),
            (Some(r#"{"notifications":null}"#), WrongFilter::Missing),
            (Some(r#"{"notifications":["taskIds"]}"#), WrongFilter::Missing),
            (Some(r#"{"notifications":{"taskIds":"x"}}"#), WrongFilter::NoStrings("taskIds")),
            (Some(r#"{"notifications":{"taskIds":null}}"#), WrongFilter::NoStrings("taskIds")),
            (Some(r#"{"notifications":{"taskIds":["x",1]}}"#), WrongFilter::NoStrings("taskIds")),
            (Some(r#"{"notifications":{"resourceSubscriptions":{}}}"#), WrongFilter::NoStrings(URIS)),
            (Some(r#"{"notifications":{"toolsListChanged":1}}"#), WrongFilter::NoSwitch(TOOLS)),
            (Some(&*many), WrongFilter::TooMany("taskIds")),
        ] {
            assert_eq!(Filter::read(params), Err(expected), "{params:?}");
        }
    }

    #[test]
    fn what_is_not_ours_goes_on_as_it_was_written() {
        let message = envelope(
            r#"{"id":1.0,"method":"subscriptions/listen","params":{"notifications":{"taskIds":["a","b"], "later":{"n":1.0}},"_meta":{"k":1}}}"#,
        );
        assert_eq!(
            request(&message, &["b".into()]),
            r#"{"id":1.0,"method":"subscriptions/listen","params":{"notifications":{"taskIds":["b"], "later":{"n":1.0}},"_meta":{"k":1}}}"#
        );
        let alone = String::from_utf8(request(&message, &[]).to_vec()).unwrap();
        assert!(!alone.contains("taskIds") && alone.contains(r#""later":{"n":1.0}"#), "{alone}");
        assert!(names_tasks(message.params()) && asks_for_more(message.params()));
        let only = envelope(r#"{"method":"x","params":{"notifications":{"taskIds":[],"toolsListChanged":false}}}"#);
        assert!(names_tasks(only.params()) && !asks_for_more(only.params()));
    }

    #[test]
    fn one_acknowledgement_names_the_tasks_of_both() {
        let theirs = envelope(
            r#"{"method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":9,"k":1},"notifications":{"taskIds":["b","c"],"later":{"n":1.0}}}}"#,
        );
        assert_eq!(
            acknowledged_too(&theirs, &id(), &["a".into(), "b".into()]),
            r#"{"method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"s-1","k":1},"notifications":{"taskIds":["a","b","c"],"later":{"n":1.0}}}}"#
        );
    }

    #[test]
    fn every_message_says_which_subscription_it_belongs_to() {
        let list_changed = r#""method":"notifications/tools/list_changed""#;
        for (before, after) in [
            (
                format!("{{{list_changed}}}"),
                format!(r#"{{"params":{{"_meta":{{"{SUBSCRIPTION_ID}":"s-1"}}}},{list_changed}}}"#),
            ),
            (
                format!(r#"{{{list_changed},"params":{{"uri":"x"}}}}"#),
                format!(r#"{{{list_changed},"params":{{"_meta":{{"{SUBSCRIPTION_ID}":"s-1"}},"uri":"x"}}}}"#),
            ),
        ] {
            assert_eq!(tagged(&envelope(&before), &id()), after);
        }
    }

    #[test]
    fn only_what_the_server_declares_is_offered() {
        let asked = Filter {
            task_ids: Some(vec!["a".into()]),
            tools: true,
            prompts: true,
            resources: true,
            uris: vec!["x".into()],
        };
        let told = r#"{"capabilities":{"tools":{"listChanged": true},"prompts":{},"resources":{"subscribe":true,"listChanged":false}}}"#;
        let offered_here = Filter { tools: true, uris: vec!["x".into()], ..Filter::default() };
        assert_eq!(offered(&asked, told), offered_here);
        assert_eq!(offered(&asked, "{}"), Filter::default());
        assert_eq!(offered(&Filter::default(), told), Filter::default());
    }
}
