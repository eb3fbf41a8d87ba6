//! What clients that may be given a job handle see in `tools/list`.

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::jsonrpc::{Edit, Member, Object, members, offset_in, remove, splice};
use crate::mcp::Era;

/// What happens to `outputSchema` of tools that may be deferred: validating clients throw a handle away otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputSchema {
    /// Removed.
    #[default]
    Drop,
    /// Widened to the original or a handle.
    Widen,
    /// Left alone.
    Keep,
}

/// The names of the job tools, as one session knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobNames {
    /// Reads a job.
    pub result: String,
    /// Cancels one.
    pub cancel: String,
    /// Lists them.
    pub list: String,
}

impl Default for JobNames {
    fn default() -> Self {
        Self { result: "get_job_result".into(), cancel: "cancel_job".into(), list: "list_jobs".into() }
    }
}

impl JobNames {
    /// The names to fall back on when the upstream has a tool of one of these names.
    #[must_use]
    pub fn fallback(&self) -> Self {
        let other = |name: &str| format!("taskgate_{name}");
        Self { result: other(&self.result), cancel: other(&self.cancel), list: other(&self.list) }
    }

    /// All three.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        [&*self.result, &*self.cancel, &*self.list].into_iter()
    }
}

/// Which job tools a page gets.
#[derive(Clone, Copy, Debug)]
pub enum Added<'a> {
    /// Those that read and cancel.
    ById(&'a JobNames),
    /// The one that lists as well: only for callers that can be told apart.
    WithList(&'a JobNames),
}

/// What becomes of one tool's entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// This client may be given a job handle for it.
    pub may_defer: bool,
    /// This client may ask for it to run as a task of 2025-11-25.
    pub runs_as_task: bool,
}

/// What to do with one page of `tools/list`.
#[derive(Clone, Copy, Debug)]
pub struct Listing<'a> {
    /// The job tools to add, on the first page.
    pub add: Option<Added<'a>>,
    /// What the tool that reads jobs is called for this client.
    pub result_tool: &'a str,
    /// What happens to `outputSchema`.
    pub output_schema: OutputSchema,
    /// Whose clients see it: those of the handshake era loop on an empty cursor, in the stateless era it is one.
    pub era: Era,
}

const READS: &str = r#"{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}"#;
const CANCELS: &str = r#"{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":true,"openWorldHint":false}"#;
const HANDLE_SCHEMA: &str = r#"{"type":"object","properties":{"status":{"type":"string"},"job_id":{"type":"string"},"message":{"type":"string"}},"required":["status","job_id"]}"#;

/// The text of a `tools/list` result for such a client; `effects` tells of a tool by its name.
#[must_use]
pub fn edit_tools_list(result: &Bytes, listing: Listing<'_>, effects: impl Fn(&str) -> Effects) -> Bytes {
    let Ok(text) = std::str::from_utf8(result) else { return result.clone() };
    let Some(page) = members(text) else { return result.clone() };
    let mut edits = Vec::new();
    let is_empty = |member: &Member<'_>| member.name == "nextCursor" && member.value == "\"\"";
    if listing.era == Era::Handshake && page.iter().any(is_empty) {
        edits.extend(remove(&page, 0, "nextCursor"));
    }
    let tools = page.iter().find(|member| member.name == "tools" && member.value.starts_with('['));
    let Some(tools) = tools else { return splice(result, edits) };
    let Ok(list) = serde_json::from_str::<Vec<&RawValue>>(tools.value) else { return splice(result, edits) };
    let sentence = sentence(listing.result_tool);
    for tool in &list {
        let at = offset_in(text, tool.get()).start;
        edits.extend(edit_tool(tool.get(), at, (&sentence, listing.output_schema), &effects));
    }
    if let Some(added) = listing.add {
        let ours = definitions(added).join(",");
        let comma = if list.is_empty() { "" } else { "," };
        edits.push(Edit::insert(tools.value_at.end - 1, format!("{comma}{ours}")));
    }
    splice(result, edits)
}

/// What models are told of a tool that may be deferred, as the inside of a JSON string.
fn sentence(result_tool: &str) -> String {
    format!("If this takes long, the answer is a job handle: read the result with {result_tool}.")
}

fn edit_tool(
    tool: &str,
    at: usize,
    (sentence, schema): (&str, OutputSchema),
    effects: &impl Fn(&str) -> Effects,
) -> Vec<Edit> {
    let Some(found) = members(tool) else { return Vec::new() };
    let find = |name: &str| found.iter().find(|member| member.name == name);
    let name = find("name").and_then(|member| serde_json::from_str::<String>(member.value).ok());
    let effects = name.map(|name| effects(&name)).unwrap_or_default();
    let mut edits = Vec::new();
    if effects.runs_as_task {
        edits.push(task_support(find("execution"), at));
    }
    if !effects.may_defer {
        return edits;
    }
    match find("description") {
        Some(member) if member.value.len() > 2 && member.value.ends_with('"') => {
            edits.push(Edit::insert(at + member.value_at.end - 1, format!(" {sentence}")));
        }
        Some(member) => {
            let value_at = at + member.value_at.start..at + member.value_at.end;
            edits.push(Edit::new(value_at, format!("\"{sentence}\"")));
        }
        None => edits.push(Edit::insert(at + 1, format!("\"description\":\"{sentence}\","))),
    }
    match (schema, find("outputSchema")) {
        (OutputSchema::Keep, _) | (_, None) => {}
        (OutputSchema::Drop, Some(_)) => edits.extend(remove(&found, at, "outputSchema")),
        (OutputSchema::Widen, Some(member)) => edits.push(widen(member, at)),
    }
    edits
}

/// `execution.taskSupport` becomes `optional`, whatever it said: servers say `forbidden` of every ordinary tool.
fn task_support(execution: Option<&Member<'_>>, at: usize) -> Edit {
    const OPTIONAL: &str = r#""taskSupport":"optional""#;
    let Some(member) = execution else { return Edit::insert(at + 1, format!("\"execution\":{{{OPTIONAL}}},")) };
    let value_at = at + member.value_at.start;
    let Some(inside) = members(member.value) else {
        return Edit::new(value_at..at + member.value_at.end, format!("{{{OPTIONAL}}}"));
    };
    match inside.iter().find(|member| member.name == "taskSupport") {
        Some(known) => Edit::new(value_at + known.at.start..value_at + known.at.end, OPTIONAL),
        None => {
            let comma = if inside.is_empty() { "" } else { "," };
            Edit::insert(value_at + 1, format!("{OPTIONAL}{comma}"))
        }
    }
}

/// The original schema or a handle; definitions move to the root, where references look for them.
fn widen(member: &Member<'_>, at: usize) -> Edit {
    let value_at = at + member.value_at.start..at + member.value_at.end;
    let parts = members(member.value).unwrap_or_default();
    let mut root = Object::new().raw("type", "\"object\"");
    let mut bare = Bytes::copy_from_slice(member.value.as_bytes());
    for name in ["$defs", "definitions"] {
        if let Some(definitions) = parts.iter().find(|part| part.name == name) {
            root = root.raw(name, definitions.value);
        }
    }
    let hoisted: Vec<Edit> = parts
        .iter()
        .filter(|part| matches!(&*part.name, "$defs" | "definitions"))
        .map(|part| Edit::new(part.value_at.clone(), "{}"))
        .collect();
    if !hoisted.is_empty() {
        bare = splice(&bare, hoisted);
    }
    let original = String::from_utf8_lossy(&bare);
    Edit::new(value_at, root.raw("anyOf", &format!("[{original},{HANDLE_SCHEMA}]")).finish())
}

/// The job tools as `tools/list` shows them, in fixed order.
fn definitions(added: Added<'_>) -> Vec<String> {
    let (Added::ById(names) | Added::WithList(names)) = added;
    let by_id = |extra: &str| {
        format!(
            r#"{{"type":"object","properties":{{"job_id":{{"type":"string","description":"The job_id of the handle"}}{extra}}},"required":["job_id"],"additionalProperties":false}}"#
        )
    };
    let wait = r#","wait_s":{"type":"number","minimum":0,"maximum":25,"description":"How many seconds to wait for the end; leave it out to let the server decide"}"#;
    let mut tools = vec![
        definition(
            &names.result,
            "Waits for a job that was started earlier and returns its result, or tells that it is still running. Call it again until the status is no longer running.",
            &by_id(wait),
            READS,
        ),
        definition(&names.cancel, "Cancels a running job. What it has done so far is not undone.", &by_id(""), CANCELS),
    ];
    if let Added::WithList(_) = added {
        let nothing = r#"{"type":"object","properties":{},"additionalProperties":false}"#;
        tools.push(definition(&names.list, "Lists the jobs of this session, newest first.", nothing, READS));
    }
    tools
}

fn definition(name: &str, description: &str, input: &str, annotations: &str) -> String {
    Object::new()
        .string("name", name)
        .string("description", description)
        .raw("inputSchema", input)
        .raw("annotations", annotations)
        .finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn edited(text: &str, listing: Listing<'_>) -> String {
        let slow = |name: &str| Effects { may_defer: name == "slow", runs_as_task: name == "task" };
        String::from_utf8(edit_tools_list(&Bytes::copy_from_slice(text.as_bytes()), listing, slow).to_vec()).unwrap()
    }

    fn only(output_schema: OutputSchema) -> Listing<'static> {
        Listing { add: None, result_tool: "get_job_result", output_schema, era: Era::Handshake }
    }

    #[test]
    fn touches_only_what_may_be_deferred() {
        let text = r#"{"tools":[{"name":"fast","outputSchema":{"n":1.0},"x-vendor":[1e400]} , {"name":"slow","description":"Runs.","outputSchema":{"type":"object"},"icons":[]}],"nextCursor":"p2"}"#;
        let expected = format!(
            r#"{{"tools":[{{"name":"fast","outputSchema":{{"n":1.0}},"x-vendor":[1e400]}} , {{"name":"slow","description":"Runs. {}","icons":[]}}],"nextCursor":"p2"}}"#,
            sentence("get_job_result")
        );
        assert_eq!(edited(text, only(OutputSchema::Drop)), expected);
        for text in ["7", r#"{"tools":7}"#, r#"{"tools":[7,{"name":5}]}"#] {
            assert_eq!(edited(text, only(OutputSchema::Drop)), text);
        }
    }

    #[test]
    fn b52_what_may_run_as_a_task_says_optional() {
        for (more, expected) in [
            ("", r#""execution":{"taskSupport":"optional"},"name":"task""#),
            (r#","execution":{"taskSupport":"forbidden","x":1}"#, r#""execution":{"taskSupport":"optional","x":1}"#),
            (r#","execution":{"x":1}"#, r#""execution":{"taskSupport":"optional","x":1}"#),
            (r#","execution":{}"#, r#""execution":{"taskSupport":"optional"}"#),
            (r#","execution":null"#, r#""execution":{"taskSupport":"optional"}"#),
        ] {
            let told = edited(&format!(r#"{{"tools":[{{"name":"task"{more}}}]}}"#), only(OutputSchema::Drop));
            assert!(told.contains(expected), "{told}");
            assert!(serde_json::from_str::<Value>(&told).unwrap()["tools"][0].get("description").is_none());
        }
    }

    #[test]
    fn widens_with_definitions_at_the_root() {
        let text = r##"{"tools":[{"name":"slow","outputSchema":{"type":"object","properties":{"a":{"$ref":"#/$defs/A"}},"$defs":{"A":{"type":"string"}}}}]}"##;
        let told: Value = serde_json::from_str(&edited(text, only(OutputSchema::Widen))).unwrap();
        let schema = &told["tools"][0]["outputSchema"];
        assert_eq!(schema["type"], "object");
        assert_eq!(schema["$defs"]["A"]["type"], "string");
        assert_eq!(schema["anyOf"][0]["properties"]["a"]["$ref"], "#/$defs/A");
        assert_eq!(schema["anyOf"][1]["required"][1], "job_id");
        assert!(edited(text, only(OutputSchema::Keep)).contains(r#""outputSchema":{"type":"object","properties""#));
    }

    #[test]
    fn b68_job_tools_are_harmless_and_strict() {
        let names = JobNames::default();
        for (text, count, added) in [
            (r#"{"tools":[]}"#, 2, Added::ById(&names)),
            (r#"{"tools":[{"name":"slow"}],"nextCursor":""}"#, 4, Added::WithList(&names)),
        ] {
            let listing = Listing {
                add: Some(added),
                result_tool: "get_job_result",
                output_schema: OutputSchema::Drop,
                era: Era::Handshake,
            };
            let told: Value = serde_json::from_str(&edited(text, listing)).unwrap();
            assert!(told.get("nextCursor").is_none());
            let tools = told["tools"].as_array().unwrap();
            assert_eq!(tools.len(), count);
            for tool in tools.iter().filter(|tool| tool["name"] != "slow") {
                let (notes, cancels) = (&tool["annotations"], tool["name"] == "cancel_job");
                assert_eq!((&notes["readOnlyHint"], &notes["destructiveHint"]), (&(!cancels).into(), &cancels.into()));
                assert_eq!((&notes["idempotentHint"], &notes["openWorldHint"]), (&true.into(), &false.into()));
                assert_eq!(tool["inputSchema"]["additionalProperties"], false);
                assert!(tool.get("outputSchema").is_none());
            }
        }
    }
}
