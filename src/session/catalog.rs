//! The names of an upstream's tools: which of ours are taken, which calls may be repeated.

use std::collections::HashMap;

use crate::jsonrpc::{entries, members};

/// Names the header that repeats an argument.
const ROUTED: &str = "x-mcp-header";

/// What a tool says about itself, as far as it matters here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tool {
    /// Declares itself idempotent or read-only: calling it twice does no more than once.
    pub repeatable: bool,
    /// Runs only as a task of the upstream's own (2025-11-25).
    pub requires_task: bool,
}

/// The tools of an upstream, over all pages.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    tools: HashMap<String, Tool>,
    /// Input schemas with arguments that headers have to repeat (`x-mcp-header`, 2026-07-28), as JSON text.
    routed: HashMap<String, Box<str>>,
}

impl Catalog {
    /// Whether the upstream has a tool of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.tools.contains_key(name)
    }

    /// Whether the tool declares that calling it twice does no harm.
    #[must_use]
    pub fn is_repeatable(&self, name: &str) -> bool {
        self.tools.get(name).is_some_and(|tool| tool.repeatable)
    }

    /// Whether the tool runs only as a task of the upstream's own.
    #[must_use]
    pub fn requires_task(&self, name: &str) -> bool {
        self.tools.get(name).is_some_and(|tool| tool.requires_task)
    }

    /// The input schema of a tool, if calls have to repeat arguments in headers.
    #[must_use]
    pub fn routed_by(&self, name: &str) -> Option<&str> {
        self.routed.get(name).map(|schema| &**schema)
    }

    /// All names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.keys().map(String::as_str)
    }

    /// Adds a page, the text of a `tools/list` result; returns its `nextCursor` as JSON text, unless it is empty.
    pub fn add_page(&mut self, result: &str) -> Option<String> {
        let page = entries(result);
        let tools: Vec<&serde_json::value::RawValue> =
            page.get("tools").and_then(|tools| serde_json::from_str(tools).ok()).unwrap_or_default();
        for tool in tools {
            let tool = entries(tool.get());
            let Some(Ok(name)) = tool.get("name").map(|raw| serde_json::from_str::<String>(raw)) else { continue };
            let hints = members(tool.get("annotations").copied().unwrap_or_default()).unwrap_or_default();
            let says = |hint: &str| hints.iter().any(|member| member.name == hint && member.value == "true");
            let execution = entries(tool.get("execution").copied().unwrap_or_default());
            let requires_task = execution.get("taskSupport") == Some(&"\"required\"");
            let repeatable = says("idempotentHint") || says("readOnlyHint");
            if let Some(schema) = tool.get("inputSchema").filter(|schema| schema.contains(ROUTED)) {
                self.routed.insert(name.clone(), (*schema).into());
            }
            self.tools.insert(name, Tool { repeatable, requires_task });
        }
        page.get("nextCursor").filter(|cursor| !matches!(**cursor, "null" | "\"\"")).map(|cursor| (*cursor).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collects_pages() {
        let mut catalog = Catalog::default();
        let first = r#"{"tools":[{"name":"a","annotations":{"readOnlyHint":true}},{"x":1}],"nextCursor":"p2"}"#;
        assert_eq!(catalog.add_page(first).as_deref(), Some("\"p2\""));
        assert_eq!(
            catalog.add_page(r#"{"tools":[{"name":"b","execution":{"taskSupport":"required"}}],"nextCursor":""}"#),
            None
        );
        assert_eq!(catalog.add_page("7"), None);
        assert!(catalog.has("a") && catalog.has("b") && !catalog.has("c"));
        assert!(catalog.requires_task("b") && !catalog.requires_task("a"));
        assert!(catalog.is_repeatable("a") && !catalog.is_repeatable("b"));
    }
}
