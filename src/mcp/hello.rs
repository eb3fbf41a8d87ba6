//! What the two sides of `initialize` told each other.

use std::ops::Range;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::jsonrpc::{Edit, entries, insert_first, members, offset_in, splice};

use super::params::declares_tasks;
use super::patch::{Change, apply_text};
use super::{Abilities, TASKS_EXTENSION, Version};

/// What a client said in `initialize`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientHello {
    /// Whether it declares the tasks extension, in `extensions` or `experimental`.
    pub declares_tasks: bool,
    /// What it can be asked.
    pub abilities: Abilities,
    /// `clientInfo` as `name/version`.
    pub client: String,
}

/// What a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerHello {
    /// The version it negotiated.
    pub version: Version,
    /// Which tasks it speaks itself.
    pub own_tasks: OwnTasks,
}

/// The tasks that a server has of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnTasks {
    /// None: it is synchronous.
    #[default]
    None,
    /// Those of 2025-11-25.
    Core,
    /// Those of the extension.
    Extension,
}

impl ClientHello {
    /// Reads the parameters of `initialize`.
    #[must_use]
    pub fn read(params: Option<&str>) -> Self {
        let params = entries(params.unwrap_or_default());
        let info = entries(params.get("clientInfo").copied().unwrap_or_default());
        let part = |name| info.get(name).and_then(|raw| serde_json::from_str::<String>(raw).ok()).unwrap_or_default();
        let capabilities = params.get("capabilities").copied().unwrap_or_default();
        Self {
            declares_tasks: declares_tasks(capabilities, &["extensions", "experimental"]),
            abilities: Abilities::read(capabilities),
            client: format!("{}/{}", part("name"), part("version")),
        }
    }
}

impl ServerHello {
    /// Reads the result of `initialize`.
    #[must_use]
    pub fn read(result: &str) -> Self {
        let result = entries(result);
        let version = result.get("protocolVersion").and_then(|raw| serde_json::from_str::<String>(raw).ok());
        let capabilities = result.get("capabilities").copied().unwrap_or_default();
        Self {
            version: version.map_or(Version::V2025_03_26, |text| Version::negotiated(&text)),
            own_tasks: if declares_tasks(capabilities, &["extensions", "experimental"]) {
                OwnTasks::Extension
            } else if entries(capabilities).get("tasks").is_some_and(|value| *value != "null") {
                OwnTasks::Core
            } else {
                OwnTasks::None
            },
        }
    }
}

/// The result of `initialize` with the tasks extension among its capabilities.
#[must_use]
pub fn with_extension(result: &Bytes) -> Bytes {
    let declared = format!("{{\"{TASKS_EXTENSION}\":{{}}}}");
    match member(result, 0, "capabilities") {
        None => insert_first(result, 0, "capabilities", &format!("{{\"extensions\":{declared}}}")),
        Some(capabilities) => match member(result, capabilities.start, "extensions") {
            Some(at) if result[at.start] == b'{' => insert_first(result, at.start, TASKS_EXTENSION, "{}"),
            Some(_) => result.clone(),
            None => insert_first(result, capabilities.start, "extensions", &declared),
        },
    }
}

/// The result of `initialize` with tasks of 2025-11-25 among its capabilities, in the nested form that clients look
/// for; `lists` says whether `tasks/list` is offered too.
#[must_use]
pub fn with_tasks(result: &Bytes, lists: Lists) -> Bytes {
    let tasks = match lists {
        Lists::Offered => r#"{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}"#,
        Lists::Not => r#"{"cancel":{},"requests":{"tools":{"call":{}}}}"#,
    };
    match member(result, 0, "capabilities") {
        None => insert_first(result, 0, "capabilities", &format!("{{\"tasks\":{tasks}}}")),
        Some(capabilities) => match member(result, capabilities.start, "tasks") {
            Some(null) => splice(result, vec![Edit::new(null, tasks)]),
            None => insert_first(result, capabilities.start, "tasks", tasks),
        },
    }
}

/// What a client said it can do, without tasks: they are taskgate's to give, and no upstream hears of them.
#[must_use]
pub fn without_tasks(capabilities: &str) -> String {
    let extension = || vec![(TASKS_EXTENSION, Change::Remove)];
    let changes = [
        ("tasks", Change::Remove),
        ("extensions", Change::Pruned(extension())),
        ("experimental", Change::Pruned(extension())),
    ];
    apply_text(capabilities, &changes)
}

/// Whether callers can be told apart, so that each has a list of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lists {
    /// They can.
    Offered,
    /// They cannot.
    Not,
}

/// Where the value of a member lies, of the object that begins at `from`.
fn member(text: &Bytes, from: usize, name: &str) -> Option<Range<usize>> {
    let text = std::str::from_utf8(text).ok()?;
    let object: &RawValue = serde_json::Deserializer::from_str(&text[from..]).into_iter().next()?.ok()?;
    let start = offset_in(text, object.get()).start;
    let found = members(object.get())?.into_iter().find(|member| member.name == name)?;
    Some(start + found.value_at.start..start + found.value_at.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_sides() {
        let client = ClientHello::read(Some(
            r#"{"capabilities":{"experimental":{"io.modelcontextprotocol/tasks":{}}},"clientInfo":{"name":"a","version":"1"}}"#,
        ));
        assert_eq!(client, ClientHello { declares_tasks: true, abilities: Abilities::default(), client: "a/1".into() });
        assert!(!ClientHello::read(None).declares_tasks);
        for (text, own_tasks) in [
            (r#"{"protocolVersion":"2025-11-25","capabilities":{"tasks":{}}}"#, OwnTasks::Core),
            (
                r#"{"protocolVersion":"2025-11-25","capabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#,
                OwnTasks::Extension,
            ),
            (r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}"#, OwnTasks::None),
        ] {
            assert_eq!(ServerHello::read(text), ServerHello { version: Version::V2025_11_25, own_tasks });
        }
    }

    #[test]
    fn adds_the_extension_once_in_its_place() {
        for (text, expected) in [
            (r#"{"a":1}"#, r#"{"capabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}},"a":1}"#),
            (
                r#"{"capabilities":{"tools":{}}}"#,
                r#"{"capabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}},"tools":{}}}"#,
            ),
            (
                r#"{"capabilities":{"extensions":{"x":{}}}}"#,
                r#"{"capabilities":{"extensions":{"io.modelcontextprotocol/tasks":{},"x":{}}}}"#,
            ),
        ] {
            assert_eq!(with_extension(&Bytes::copy_from_slice(text.as_bytes())), expected);
        }
    }

    #[test]
    fn tasks_are_not_among_what_a_client_can_do() {
        for (before, after) in [
            (
                r#"{"tasks":{"list":{}},"roots":{},"extensions":{"io.modelcontextprotocol/tasks":{},"x/y":{"n":1.0}}}"#,
                r#"{"roots":{},"extensions":{"x/y":{"n":1.0}}}"#,
            ),
            (r#"{"experimental":{"io.modelcontextprotocol/tasks":{}},"sampling":{}}"#, r#"{"sampling":{}}"#),
            ("{}", "{}"),
            ("null", "null"),
        ] {
            assert_eq!(without_tasks(before), after);
        }
    }

    #[test]
    fn announces_core_tasks_in_the_nested_form() {
        for (text, expected) in [
            (
                r#"{"capabilities":{"tools":{}},"x":1.0}"#,
                r#"{"capabilities":{"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}},"tools":{}},"x":1.0}"#,
            ),
            (
                r#"{"capabilities": {"tasks":null}}"#,
                r#"{"capabilities": {"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}}}"#,
            ),
            (r#"{}"#, r#"{"capabilities":{"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}}}"#),
        ] {
            assert_eq!(with_tasks(&Bytes::copy_from_slice(text.as_bytes()), Lists::Not), expected);
        }
        let listed = with_tasks(&Bytes::from_static(br#"{"capabilities":{}}"#), Lists::Offered);
        assert!(listed.starts_with(br#"{"capabilities":{"tasks":{"list":{},"#));
    }
}
