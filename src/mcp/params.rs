//! A peek at `params`: the few members that decide what is done with a request, borrowed from its text.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{Abilities, TASKS_EXTENSION};

/// Keys of `_meta` (2026-07-28).
pub mod meta_key {
    /// The protocol version of this request.
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// What this client can do.
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// Which client sends this request.
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    /// From which level on it wants the log messages of this request.
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// Which server answers.
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    /// Which subscription a message belongs to.
    pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
}

/// Members of `params`, as raw text; what is no object has none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Params<'a> {
    name: Option<&'a RawValue>,
    arguments: Option<&'a RawValue>,
    meta: Option<&'a RawValue>,
    task: Option<&'a RawValue>,
    task_id: Option<&'a RawValue>,
    request_id: Option<&'a RawValue>,
    cursor: Option<&'a RawValue>,
    progress_token: Option<&'a RawValue>,
}

/// Members of `_meta`.
#[derive(Clone, Debug, Default)]
pub struct Meta<'a> {
    /// The progress token, as sent.
    pub progress_token: Option<&'a str>,
    /// The protocol version that the request declares.
    pub protocol_version: Option<Cow<'a, str>>,
    /// Whether the request declares the tasks extension.
    pub declares_tasks: bool,
    /// What the request says its client can be asked.
    pub abilities: Option<Abilities>,
    /// The text of what the request says its client can do.
    pub capabilities: Option<&'a str>,
    /// The text of what the request says its client is.
    pub client_info: Option<&'a str>,
    /// From which level on the request asks for log messages.
    pub log_level: Option<Cow<'a, str>>,
}

impl<'a> Params<'a> {
    /// Looks into the text of `params`.
    #[must_use]
    pub fn peek(text: Option<&'a str>) -> Self {
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// `name`, where it is a string.
    #[must_use]
    pub fn name(&self) -> Option<Cow<'a, str>> {
        self.name.and_then(|raw| string(raw.get()))
    }

    /// The text of `name`.
    #[must_use]
    pub fn name_text(&self) -> Option<&'a str> {
        self.name.map(RawValue::get)
    }

    /// The text of `arguments`.
    #[must_use]
    pub fn arguments(&self) -> Option<&'a str> {
        self.arguments.map(RawValue::get)
    }

    /// The text of `_meta`, where it is an object.
    #[must_use]
    pub fn meta_text(&self) -> Option<&'a str> {
        self.meta.map(RawValue::get).filter(|text| text.starts_with('{'))
    }

    /// Whether there is a `_meta` member, whatever it is.
    #[must_use]
    pub fn has_meta(&self) -> bool {
        self.meta.is_some()
    }

    /// A peek at `_meta`.
    #[must_use]
    pub fn meta(&self) -> Meta<'a> {
        self.meta_text().map(Meta::peek).unwrap_or_default()
    }

    /// The text of `task`, where it is an object (2025-11-25).
    #[must_use]
    pub fn task(&self) -> Option<&'a str> {
        self.task.map(RawValue::get).filter(|text| text.starts_with('{'))
    }

    /// The text of `cursor`.
    #[must_use]
    pub fn cursor(&self) -> Option<&'a str> {
        self.cursor.map(RawValue::get).filter(|text| *text != "null")
    }

    /// Whether there is a `task` member (2025-11-25).
    #[must_use]
    pub fn has_task(&self) -> bool {
        self.task.is_some()
    }

    /// `taskId`, where it is a string.
    #[must_use]
    pub fn task_id(&self) -> Option<Cow<'a, str>> {
        self.task_id.and_then(|raw| string(raw.get()))
    }

    /// The text of `requestId`.
    #[must_use]
    pub fn request_id(&self) -> Option<&'a str> {
        self.request_id.map(RawValue::get)
    }

    /// Whether there is a `cursor`.
    #[must_use]
    pub fn has_cursor(&self) -> bool {
        self.cursor().is_some()
    }

    /// The text of `progressToken` (of a progress notification).
    #[must_use]
    pub fn progress_token(&self) -> Option<&'a str> {
        self.progress_token.map(RawValue::get)
    }
}

impl<'a> Meta<'a> {
    fn peek(text: &'a str) -> Self {
        let mut meta = Self::default();
        let Some(members) = crate::jsonrpc::members(text) else { return meta };
        for member in members {
            match &*member.name {
                "progressToken" if member.value != "null" => meta.progress_token = Some(member.value),
                meta_key::PROTOCOL_VERSION => meta.protocol_version = string(member.value),
                meta_key::CLIENT_CAPABILITIES => {
                    meta.declares_tasks = declares_tasks(member.value, &["extensions"]);
                    meta.abilities = Some(Abilities::read(member.value));
                    meta.capabilities = Some(member.value);
                }
                meta_key::CLIENT_INFO => meta.client_info = Some(member.value),
                meta_key::LOG_LEVEL => meta.log_level = string(member.value),
                _ => {}
            }
        }
        meta
    }
}

/// Whether `capabilities` names the tasks extension under one of `places`.
pub(super) fn declares_tasks(capabilities: &str, places: &[&str]) -> bool {
    let capabilities = crate::jsonrpc::entries(capabilities);
    places.iter().any(|place| {
        let declared = capabilities.get(*place).map(|text| crate::jsonrpc::entries(text));
        declared.is_some_and(|declared| declared.get(TASKS_EXTENSION).is_some_and(|value| *value != "null"))
    })
}

/// A JSON string's content; borrowed where it has no escapes.
pub(super) fn string(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') { serde_json::from_str(raw).ok().map(Cow::Owned) } else { Some(Cow::Borrowed(inner)) }
}

enum Key {
    Name,
    Arguments,
    Meta,
    Task,
    TaskId,
    RequestId,
    Cursor,
    ProgressToken,
    Other,
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = Key;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a member name")
            }
            fn visit_str<E>(self, name: &str) -> Result<Key, E> {
                Ok(match name {
                    "name" => Key::Name,
                    "arguments" => Key::Arguments,
                    "_meta" => Key::Meta,
                    "task" => Key::Task,
                    "taskId" => Key::TaskId,
                    "requestId" => Key::RequestId,
                    "cursor" => Key::Cursor,
                    "progressToken" => Key::ProgressToken,
                    _ => Key::Other,
                })
            }
        }
        deserializer.deserialize_str(Name)
    }
}

impl<'de> Deserialize<'de> for Params<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Params<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object or a list")
            }
            // A list has no members. JSON-RPC knows no other parameters; some clients write null for none.
            fn visit_unit<E>(self) -> Result<Params<'de>, E> {
                Ok(Params::default())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Params<'de>, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Params::default())
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Params<'de>, A::Error> {
                let mut params = Params::default();
                while let Some(key) = map.next_key::<Key>()? {
                    let slot = match key {
                        Key::Name => &mut params.name,
                        Key::Arguments => &mut params.arguments,
                        Key::Meta => &mut params.meta,
                        Key::Task => &mut params.task,
                        Key::TaskId => &mut params.task_id,
                        Key::RequestId => &mut params.request_id,
                        Key::Cursor => &mut params.cursor,
                        Key::ProgressToken => &mut params.progress_token,
                        Key::Other => {
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                    *slot = Some(map.next_value()?);
                }
                Ok(params)
            }
        }
        deserializer.deserialize_any(Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_decides() {
        let text = r#"{"name":"sl\u006fw","arguments":{"n":1e400},"task":{"ttl":5},"x":[1],
            "_meta":{"progressToken":7,"io.modelcontextprotocol/protocolVersion":"2026-07-28",
                     "io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}}"#;
        let params = Params::peek(Some(text));
        assert_eq!(params.name().as_deref(), Some("slow"));
        assert_eq!(params.arguments(), Some(r#"{"n":1e400}"#));
        assert!(params.has_task());
        let meta = params.meta();
        assert_eq!(meta.progress_token, Some("7"));
        assert_eq!(meta.protocol_version.as_deref(), Some("2026-07-28"));
        assert!(meta.declares_tasks);
    }

    #[test]
    fn odd_parameters_have_nothing() {
        for text in [None, Some("[]"), Some("[\"name\"]"), Some("null"), Some("7"), Some(r#"{"name":5,"_meta":["a"]}"#)]
        {
            let params = Params::peek(text);
            assert!(params.name().is_none() && params.meta_text().is_none(), "{text:?}");
        }
    }
}
