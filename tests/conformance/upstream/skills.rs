//! The one skill of the server (SEP-2640): an extension that taskgate has never heard of.

use rmcp::model::{Resource, Skill, SkillFrontmatter, SkillResource, SkillResources};
use serde_json::{Value, json};

const SKILL: &str = "skill://greeting";
const MANIFEST: &str = "skill://greeting/SKILL.md";
const NOTES: &str = "skill://greeting/notes";
const STYLE: &str = "skill://greeting/notes/style.md";

const MANIFEST_TEXT: &str = "---\nname: greeting\ndescription: How to greet\n---\nGreet as notes/style.md says.\n";
const STYLE_TEXT: &str = "Be brief.\n";

pub(crate) fn skill() -> Skill {
    let files = [(MANIFEST, MANIFEST_TEXT), (STYLE, STYLE_TEXT)];
    let files = files.map(|(uri, text)| SkillResource::from_bytes(uri, text.as_bytes())).to_vec();
    Skill::new(MANIFEST, SkillFrontmatter::new("greeting", "How to greet"), SkillResources::Files(files))
}

fn resource(uri: &str, name: &str, description: &str, kind: &str) -> Resource {
    let resource = json!({"uri": uri, "name": name, "description": description, "mimeType": kind});
    serde_json::from_value(resource).expect("it is written here")
}

/// The manifest, as it stands among the resources.
pub(crate) fn manifest() -> Resource {
    resource(MANIFEST, "greeting", "How to greet", "text/markdown")
}

/// What is in a folder of the skill; none if it is not a folder.
pub(crate) fn folder(uri: &str) -> Option<Vec<Resource>> {
    match uri {
        SKILL => Some(vec![manifest(), resource(NOTES, "notes", "Notes", "inode/directory")]),
        NOTES => Some(vec![resource(STYLE, "style.md", "How to word it", "text/markdown")]),
        _ => None,
    }
}

/// What a file of the skill holds; none if it is not one.
pub(crate) fn contents(uri: &str) -> Option<Value> {
    let text = match uri {
        MANIFEST => MANIFEST_TEXT,
        STYLE => STYLE_TEXT,
        _ => return None,
    };
    Some(json!([{"uri": uri, "mimeType": "text/markdown", "text": text}]))
}
