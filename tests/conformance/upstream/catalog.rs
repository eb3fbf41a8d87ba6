//! What the server offers, as the suite names it.

use rmcp::model::{Prompt, Resource, ResourceTemplate, Tool};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A pixel, as PNG.
pub(crate) const IMAGE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8/5+hHgAHggJ/PchI7wAAAABJRU5ErkJggg==";
/// Silence, as WAV.
pub(crate) const SOUND: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=";
pub(crate) const TEXT_URI: &str = "test://static-text";
pub(crate) const BINARY_URI: &str = "test://static-binary";
pub(crate) const WATCHED_URI: &str = "test://watched-resource";

/// The tools without arguments.
const PLAIN: [(&str, &str); 28] = [
    ("test_simple_text", "Answers with text"),
    ("test_image_content", "Answers with an image"),
    ("test_audio_content", "Answers with sound"),
    ("test_embedded_resource", "Answers with a resource"),
    ("test_multiple_content_types", "Answers with text, an image and a resource"),
    ("test_tool_with_logging", "Logs three times"),
    ("test_error_handling", "Fails"),
    ("test_tool_with_progress", "Reports three times"),
    ("test_elicitation_sep1034_defaults", "Asks for values that have defaults"),
    ("test_elicitation_sep1330_enums", "Asks for choices"),
    ("test_reconnection", "Closes its stream before it answers"),
    ("test_missing_capability", "Needs sampling"),
    ("test_streaming_elicitation", "Asks for a name"),
    ("test_logging_tool", "Logs once"),
    ("test_trigger_tool_change", "Says that the list of tools has changed"),
    ("test_trigger_prompt_change", "Says that the list of prompts has changed"),
    ("test_input_required_result_elicitation", "Asks for a name"),
    ("test_input_required_result_sampling", "Asks the model"),
    ("test_input_required_result_list_roots", "Asks for the roots"),
    ("test_input_required_result_request_state", "Asks for a confirmation"),
    ("test_input_required_result_multiple_inputs", "Asks three things at once"),
    ("test_input_required_result_multi_round", "Asks one thing after another"),
    ("test_input_required_result_tampered_state", "Asks for a confirmation"),
    ("test_input_required_result_capabilities", "Asks what the client can answer"),
    ("failing_job", "Fails after a second"),
    ("protocol_error_job", "Breaks after a second"),
    ("multi_input", "Asks two things at once, after a second"),
    ("test_tool_with_task", "Asks for a name, and works for a second"),
];

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("it is written in this file")
}

fn tool(name: &str, description: &str, schema: &Value) -> Tool {
    read(json!({"name": name, "description": description, "inputSchema": schema}))
}

/// All tools, always in the same order.
pub(crate) fn tools() -> Vec<Tool> {
    let none = json!({"type": "object", "properties": {}});
    let mut tools: Vec<Tool> = PLAIN.iter().map(|(name, description)| tool(name, description, &none)).collect();
    let one =
        |name: &str, property: Value| json!({"type": "object", "properties": {name: property}, "required": [name]});
    let text = || json!({"type": "string"});
    tools.extend([
        tool("test_sampling", "Asks the model", &one("prompt", text())),
        tool("test_elicitation", "Asks for a name and an address", &one("message", text())),
        tool("greet", "Greets", &one("name", text())),
        tool("confirm_delete", "Asks for a confirmation, after a second", &one("filename", text())),
        tool(
            "slow_compute",
            "Works for some seconds",
            &json!({"type": "object", "properties": {"seconds": {"type": "number"}, "label": text()}}),
        ),
        tool(
            "test_custom_header",
            "Takes an argument that is mirrored in a header",
            &one("region", json!({"type": "string", "x-mcp-header": "Region"})),
        ),
        tool("json_schema_2020_12_tool", "Has a rich schema", &rich_schema()),
    ]);
    tools
}

fn rich_schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }},
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": false,
    })
}

/// All prompts.
pub(crate) fn prompts() -> Vec<Prompt> {
    let argument = |name: &str| json!({"name": name, "description": "An argument", "required": true});
    read(json!([
        {"name": "test_simple_prompt", "description": "A prompt without arguments"},
        {"name": "test_prompt_with_arguments", "description": "A prompt with two arguments",
         "arguments": [argument("arg1"), argument("arg2")]},
        {"name": "test_prompt_with_embedded_resource", "description": "A prompt with a resource",
         "arguments": [argument("resourceUri")]},
        {"name": "test_prompt_with_image", "description": "A prompt with an image"},
        {"name": "test_input_required_result_prompt", "description": "A prompt that asks for its context"},
    ]))
}

/// What a prompt says; none for an unknown one.
pub(crate) fn messages(name: &str, argument: impl Fn(&str) -> String) -> Option<Value> {
    let says = |content: Value| json!({"role": "user", "content": content});
    let text = |text: String| says(json!({"type": "text", "text": text}));
    Some(match name {
        "test_simple_prompt" => json!([text("This is a simple prompt for testing.".to_owned())]),
        "test_prompt_with_arguments" => {
            let (first, second) = (argument("arg1"), argument("arg2"));
            json!([text(format!("Prompt with arguments: arg1='{first}', arg2='{second}'"))])
        }
        "test_prompt_with_embedded_resource" => {
            let resource = json!({"uri": argument("resourceUri"), "mimeType": "text/plain",
                "text": "Embedded resource content for testing."});
            let asks = text("Please process the embedded resource above.".to_owned());
            json!([says(json!({"type": "resource", "resource": resource})), asks])
        }
        "test_prompt_with_image" => {
            let image = json!({"type": "image", "data": IMAGE, "mimeType": "image/png"});
            json!([says(image), text("Please analyze the image above.".to_owned())])
        }
        _ => return None,
    })
}

/// All resources.
pub(crate) fn resources() -> Vec<Resource> {
    read(json!([
        {"uri": TEXT_URI, "name": "text", "description": "A text", "mimeType": "text/plain"},
        {"uri": BINARY_URI, "name": "binary", "description": "An image", "mimeType": "image/png"},
        {"uri": WATCHED_URI, "name": "watched", "description": "A text to subscribe to", "mimeType": "text/plain"},
    ]))
}

/// All templates of resources.
pub(crate) fn templates() -> Vec<ResourceTemplate> {
    read(json!([{"uriTemplate": "test://template/{id}/data", "name": "template",
        "description": "Data by id", "mimeType": "application/json"}]))
}

/// What a resource holds; none for an unknown one.
pub(crate) fn contents(uri: &str) -> Option<Value> {
    let text = |text: String, kind: &str| json!([{"uri": uri, "mimeType": kind, "text": text}]);
    Some(match uri {
        TEXT_URI => text("This is the content of the static text resource.".to_owned(), "text/plain"),
        WATCHED_URI => text("This is the content of the watched resource.".to_owned(), "text/plain"),
        BINARY_URI => json!([{"uri": uri, "mimeType": "image/png", "blob": IMAGE}]),
        _ => {
            let id = uri.strip_prefix("test://template/")?.strip_suffix("/data")?;
            let data = json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
            text(data.to_string(), "application/json")
        }
    })
}
