//! What the two sides of `initialize` told each other.

use crate::jsonrpc::entries;

use super::params::declares_tasks;
use super::{TASKS_EXTENSION, Version};

/// What a client said in `initialize`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientHello {
    /// Whether it declares the tasks extension, in `extensions` or `experimental`.
    pub declares_tasks: bool,
    /// `clientInfo` as `name/version`.
    pub client: String,
}

/// What a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerHello {
    /// The version it negotiated.
    pub version: Version,
    /// Whether it speaks tasks itself, in any form.
    pub speaks_tasks: bool,
}

impl ClientHello {
    /// Reads the parameters of `initialize`.
    #[must_use]
    pub fn read(params: Option<&str>) -> Self {
        let params = entries(params.unwrap_or_default());
        let info = entries(params.get("clientInfo").copied().unwrap_or_default());
        let part = |name| info.get(name).and_then(|raw| serde_json::from_str::<String>(raw).ok()).unwrap_or_default();
        Self {
            declares_tasks: params
                .get("capabilities")
                .is_some_and(|capabilities| declares_tasks(capabilities, &["extensions", "experimental"])),
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
            speaks_tasks: entries(capabilities).get("tasks").is_some_and(|value| *value != "null")
                || declares_tasks(capabilities, &["extensions", "experimental"]),
        }
    }
}

/// The result of `initialize` with the tasks extension among its capabilities.
#[must_use]
pub fn with_extension(result: &bytes::Bytes) -> bytes::Bytes {
    use crate::jsonrpc::{insert_first, members};
    let text = std::str::from_utf8(result).unwrap_or_default();
    let find = |object: &str, name: &str| {
        members(object)?
            .into_iter()
            .find(|member| member.name == name)
            .map(|member| (member.value_at, member.value.to_owned()))
    };
    let declared = format!("{{\"{TASKS_EXTENSION}\":{{}}}}");
    match find(text, "capabilities") {
        None => insert_first(result, 0, "capabilities", &format!("{{\"extensions\":{declared}}}")),
        Some((at, capabilities)) => match find(&capabilities, "extensions") {
            Some((inner, value)) if value.starts_with('{') => {
                insert_first(result, at.start + inner.start, TASKS_EXTENSION, "{}")
            }
            Some(_) => result.clone(),
            None => insert_first(result, at.start, "extensions", &declared),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn reads_both_sides() {
        let client = ClientHello::read(Some(
            r#"{"capabilities":{"experimental":{"io.modelcontextprotocol/tasks":{}}},"clientInfo":{"name":"a","version":"1"}}"#,
        ));
        assert_eq!(client, ClientHello { declares_tasks: true, client: "a/1".into() });
        assert!(!ClientHello::read(None).declares_tasks);
        for (text, tasks) in [
            (r#"{"protocolVersion":"2025-11-25","capabilities":{"tasks":{}}}"#, true),
            (r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}"#, false),
        ] {
            assert_eq!(ServerHello::read(text), ServerHello { version: Version::V2025_11_25, speaks_tasks: tasks });
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
}
