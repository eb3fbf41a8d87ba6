//! The house rules that no compiler knows: floors, pure rooms, short files.
//!
//! A plain test that reads `src/`, because one module that imports the wrong way is how circles begin.
//!
//! Two things look like exceptions and are agreed:
//!
//! - Every room may define `Options`, what it needs to know from the configuration, out of lower rooms only: so that
//!   no room imports `config`.
//! - `config` imports the `Options` of all rooms, up to `server` and `admin`: somebody has to fill them. It stands
//!   above them for that reason alone; only `app` and `cli` see it.

use std::fs;
use std::path::{Path, PathBuf};

/// From the ground up. On one floor a later name may import an earlier one, never the reverse.
const FLOORS: &[&[&str]] = &[
    &["jsonrpc", "telemetry", "shutdown"],
    &["mcp", "task", "call"],
    &["policy", "session", "store"],
    &["upstream"],
    &["dialect", "worker"],
    &["gateway"],
    &["server", "admin"],
    &["config"],
    &["app", "cli"],
];

/// What pure rooms may not name: protocols, runtimes and engines.
const BANNED: &[&str] = &["http", "hyper", "tokio", "reqwest", "tower", "rustls", "dashmap"];

/// Pure rooms, each with the paths it may name all the same. `call` and `dialect` say what is answered and need the
/// vocabulary of HTTP for it; `call` also carries the steps of an answer through a channel and keeps them for a while,
/// which is no I/O.
const PURE: &[(&str, &[&str])] = &[
    ("jsonrpc", &[]),
    ("mcp", &[]),
    ("task", &[]),
    ("policy", &[]),
    (
        "call",
        &[
            "http::",
            "http_body::",
            "http_body_util::",
            "tokio::sync::mpsc",
            "tokio::sync::Notify",
            "tokio::time::Instant",
        ],
    ),
    ("dialect", &["http::", "http_body::", "http_body_util::"]),
];

/// Lines of a file, its tests not counted.
const LONGEST: usize = 400;

#[test]
fn the_house_stands() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    collect(&root, &mut files);
    assert!(files.len() > 20, "src/ is elsewhere: {files:?}");
    let problems: Vec<String> = files
        .iter()
        .flat_map(|file| {
            let text = fs::read_to_string(file).expect("a source file is readable");
            let path = file.strip_prefix(&root).expect("it was found below").to_string_lossy().replace('\\', "/");
            check(&path, &text)
        })
        .collect();
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder is readable") {
        let path = entry.expect("an entry is readable").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Everything that is wrong with a file, `path` being relative to `src/`.
fn check(path: &str, text: &str) -> Vec<String> {
    let code = without_tests(text);
    let mut problems = Vec::new();
    if code.len() > LONGEST {
        problems.push(format!("{path}: {} lines, {LONGEST} are allowed", code.len()));
    }
    let room = path.split(['/', '.']).next().unwrap_or_default();
    if matches!(path, "lib.rs" | "main.rs") {
        return problems;
    }
    let Some(own) = place(room) else {
        problems.push(format!("{path}: the room `{room}` has no floor"));
        return problems;
    };
    let code = without_comments(&code);
    for import in rooms_named(path, &code) {
        let allowed = import == room || place(&import).is_none_or(|other| other < own);
        if !allowed {
            problems.push(format!("{path}: `{room}` may not import `{import}`"));
        }
    }
    if let Some((_, allowed)) = PURE.iter().find(|(pure, _)| *pure == room) {
        for named in banned(&code) {
            if !allowed.iter().any(|prefix| named.starts_with(prefix)) {
                problems.push(format!("{path}: the pure room `{room}` may not name `{named}`"));
            }
        }
    }
    problems
}

/// Floor, then place on it.
fn place(room: &str) -> Option<(usize, usize)> {
    FLOORS.iter().enumerate().find_map(|(floor, rooms)| Some((floor, rooms.iter().position(|name| *name == room)?)))
}

/// The lines of a file without `#[cfg(test)]` items, which end where rustfmt closes them. A `mod tests { … }` is the end of its file.
fn without_tests(text: &str) -> Vec<&str> {
    let mut kept = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            kept.push(line);
            continue;
        }
        if lines.peek().is_some_and(|next| next.starts_with("mod tests")) {
            break;
        }
        let closing = format!("{}}}", &line[..line.len() - line.trim_start().len()]);
        if lines.next().is_some_and(|first| !first.ends_with([';', '}'])) {
            lines.by_ref().find(|skipped| skipped.trim_end_matches(';') == closing);
        }
    }
    kept
}

fn without_comments(lines: &[&str]) -> String {
    let mut code = String::new();
    for line in lines {
        let line = line.trim_start();
        let comment = if line.starts_with("//") { 0 } else { line.find(" // ").unwrap_or(line.len()) };
        code.push_str(&line[..comment]);
        code.push('\n');
    }
    code
}

/// The first names of all paths that begin at the root of the crate.
fn rooms_named(path: &str, code: &str) -> Vec<String> {
    let depth = path.trim_end_matches(".rs").split('/').filter(|part| *part != "mod").count();
    let climb = "super::".repeat(depth);
    let mut named = starts(code, "crate::");
    named.extend(starts(code, &climb).into_iter().filter(|name| name != "super"));
    named
}

/// What follows `prefix` where a path begins with it: one name, or those of a group in braces.
fn starts(code: &str, prefix: &str) -> Vec<String> {
    let mut names = Vec::new();
    for rest in begins(code, prefix) {
        if let Some(group) = rest.strip_prefix('{') {
            names.extend(top_level(group).iter().map(|part| name(part)));
        } else {
            names.push(name(rest));
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// The text after each `prefix` that stands at the beginning of a path.
fn begins<'a>(code: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    code.match_indices(prefix).filter_map(move |(at, _)| {
        let before = code[..at].chars().next_back();
        let inside = before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_' || letter == ':');
        (!inside).then(|| &code[at + prefix.len()..])
    })
}

fn name(text: &str) -> String {
    text.trim_start().chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
}

/// The parts of a group up to its closing brace, split at its own commas.
fn top_level(group: &str) -> Vec<&str> {
    let (mut depth, mut from, mut parts) = (0, 0, Vec::new());
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            '}' => {
                parts.push(&group[from..at]);
                break;
            }
            ',' if depth == 0 => {
                parts.push(&group[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts
}

/// Paths into banned crates, with what they name.
fn banned(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("::").chain(code.match_indices(';')) {
        let start = code[..at].rfind(|letter: char| !letter.is_alphanumeric() && letter != '_').map_or(0, |i| i + 1);
        let first = &code[start..at];
        let statement = code[..start].trim_end();
        let begins = !code[..start].ends_with("::") && (code[at..].starts_with("::") || statement.ends_with("use"));
        let family = first.split('_').next().unwrap_or_default();
        if begins && BANNED.contains(&family) {
            let end = code[at..].find(|letter: char| !letter.is_alphanumeric() && !"_:".contains(letter));
            found.push(code[start..end.map_or(code.len(), |end| at + end)].to_owned());
        }
    }
    found
}

#[test]
fn finds_an_import_of_a_higher_floor() {
    assert_eq!(
        check("task/model.rs", "use crate::server::Options;"),
        ["task/model.rs: `task` may not import `server`"]
    );
    assert_eq!(check("mcp/mod.rs", "fn f() { crate::task::new() }"), ["mcp/mod.rs: `mcp` may not import `task`"]);
    assert_eq!(check("store/a.rs", "use super::super::worker::X;"), ["store/a.rs: `store` may not import `worker`"]);
    assert_eq!(check("shutdown.rs", "use super::app;").len(), 1);
    let group = "pub(crate) use crate::{\n    jsonrpc::{Id, Error},\n    gateway::Gateway,\n    cli,\n};";
    assert_eq!(
        check("policy/mod.rs", group),
        ["policy/mod.rs: `policy` may not import `gateway`", "policy/mod.rs: `policy` may not import `cli`"]
    );
    assert_eq!(check("attic/mod.rs", ""), ["attic/mod.rs: the room `attic` has no floor"]);
}

#[test]
fn allows_lower_floors_and_earlier_neighbours() {
    let code = "use crate::task::Task;\nuse super::mode::Mode;\nuse crate::jsonrpc::{self, Id};\n// crate::server";
    assert!(check("policy/deep/mod.rs", code).is_empty());
    assert!(check("task/mod.rs", "use crate::mcp::Era;").is_empty());
    assert!(check("config/resolve.rs", "use crate::{server::Options, admin, worker};").is_empty());
    assert!(check("main.rs", "fn main() { taskgate::cli::main() }").is_empty());
}

#[test]
fn finds_banned_crates_in_pure_rooms_only() {
    assert_eq!(check("mcp/a.rs", "use http::Uri;"), ["mcp/a.rs: the pure room `mcp` may not name `http::Uri`"]);
    assert_eq!(check("task/a.rs", "type B = hyper_util::rt::TokioIo<()>;").len(), 1);
    assert_eq!(check("task/a.rs", "use tokio;").len(), 1);
    assert_eq!(check("dialect/a.rs", "use tokio::sync::mpsc;").len(), 1);
    assert_eq!(check("call/a.rs", "use tokio::sync::{mpsc, oneshot};").len(), 1);
    assert!(check("call/a.rs", "use tokio::sync::mpsc;\nuse bytes::Bytes;\nuse http_body_util::Full;").is_empty());
    assert!(check("policy/a.rs", "const URL: &str = \"http://x\"; use crate::mcp::http::X; let tokio = a;").is_empty());
    assert!(check("server/a.rs", "use hyper::Request;").is_empty());
}

#[test]
fn counts_lines_and_forgives_tests() {
    let long = "fn f() {}\n".repeat(LONGEST + 1);
    assert_eq!(check("task/a.rs", &long), ["task/a.rs: 401 lines, 400 are allowed"]);
    let tests = format!("fn f() {{}}\n#[cfg(test)]\nmod tests {{\n    use tokio::time;\n{long}}}\n");
    assert!(check("task/a.rs", &tests).is_empty());
    let single = "#[cfg(test)]\nuse tokio::time;\n#[cfg(test)]\nmod x {\n    use tokio::time;\n    use tokio::net;\n    fn f() {}\n}\nuse http::Uri;";
    assert_eq!(check("task/a.rs", single).len(), 1, "{:?}", check("task/a.rs", single));
}
