//! `[[upstream]]` and its rules.

use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};

use super::Upstream;
use super::document::Section;
use super::overrides::{Flag, Overrides};
use super::problem::Wrong;
use super::server::web_address;
use super::tasks::{NOT_PER_RULE, is_name, not_a_name, terms};
use super::value::{self, Read, Value};
use crate::policy::{Rules, Selector, SelectorError, Terms};
use crate::upstream::{self, Bridge, BridgeSessions, Bridging, MaxSessions};

/// Headers that taskgate writes itself, or that belong to one connection.
const OWN_HEADERS: [&str; 12] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "keep-alive",
    "mcp-session-id",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Every upstream, in the order of the file; one by itself for `--upstream` without any in the file.
pub(super) fn upstreams(
    root: &Section<'_>,
    overrides: &Overrides,
    defaults: &Arc<Terms>,
    public_url: Option<&Uri>,
) -> Vec<Upstream> {
    let mut flag = overrides.upstream_flag();
    let mut sections = root.tables("upstream");
    if sections.is_empty() && flag.value.is_some() {
        sections.push(root.absent("upstream"));
    } else if sections.is_empty() && root.sound("upstream") {
        let wrong = Wrong::new("there is no upstream").expected("one [[upstream]] or more");
        root.problem("upstream", wrong.hint("add [[upstream]] with url = \"http://…\", or give --upstream URL"));
    } else if sections.len() > 1 && flag.value.is_some() {
        let wrong = Wrong::new(format!("the file has {} upstreams", sections.len()));
        root.flag_problem(flag, wrong.expected("one, whose url it replaces"));
        flag.value = None;
    }
    let mut taken = Taken::default();
    let read = sections.into_iter().filter_map(|section| one(section, flag, defaults, &mut taken));
    read.map(|upstream| {
        let options = upstream::Options { public_url: public_url.cloned(), ..upstream.options };
        Upstream { options, ..upstream }
    })
    .collect()
}

/// Names and paths of the upstreams so far.
#[derive(Default)]
struct Taken {
    names: Vec<String>,
    paths: Vec<String>,
}

fn one(section: Section<'_>, flag: Flag<'_>, defaults: &Arc<Terms>, taken: &mut Taken) -> Option<Upstream> {
    if !section.has("url") && section.sound("url") && flag.value.is_none() {
        let wrong = Wrong::new("is missing").expected("where the MCP server is");
        section.problem("url", wrong.hint("url = \"http://127.0.0.1:8000/mcp\""));
    }
    let url = section.read_flag("url", flag, url);
    let name = section.read_or("name", "default".to_owned(), name);
    let path = section.read_or("path", "/mcp".to_owned(), path);
    unique(&section, ("name", &name), &mut taken.names);
    unique(&section, ("path", &path), &mut taken.paths);
    let timeout = |key, seconds| section.read_or(key, Duration::from_secs(seconds), value::duration);
    let credential_header = section.read("credential_header", header_name);
    // Every key is read even when there is no URL: what nobody has asked for counts as unknown.
    let options = upstream::Options {
        name,
        path,
        url: url.clone().unwrap_or_default(),
        public_url: None,
        connect_timeout: timeout("connect_timeout", 5),
        idle_timeout: timeout("idle_timeout", 4),
        headers: headers(&section),
        forward_authorization: section.read_or("forward_authorization", true, value::boolean),
        credential_header: credential_header.unwrap_or(http::header::AUTHORIZATION),
        mint_sessions: section.read_or("mint_sessions", false, value::boolean),
        bridging: bridging(&section),
    };
    let rules = rules(&section, defaults);
    section.done();
    url.map(|_| Upstream { options, rules })
}

fn bridging(section: &Section<'_>) -> Bridging {
    let modes = [("auto", Bridge::Auto), ("always", Bridge::Always), ("off", Bridge::Off)];
    let sessions = [("owner", BridgeSessions::Owner), ("shared", BridgeSessions::Shared)];
    Bridging {
        bridge: section.read_or("bridge", Bridge::default(), value::choice(&modes)),
        sessions: section.read_or("bridge_sessions", BridgeSessions::default(), value::choice(&sessions)),
        max_sessions: MaxSessions(section.read_or("bridge_max_sessions", MaxSessions::default().0, value::count)),
    }
}

fn unique(section: &Section<'_>, (key, text): (&'static str, &str), taken: &mut Vec<String>) {
    if !section.sound(key) {
        return;
    }
    if taken.iter().any(|other| other == text) {
        let wrong = Wrong::new(format!("another upstream has the {key} {text:?}"));
        section.problem(key, wrong.hint(format!("give each upstream a {key} of its own")));
    }
    taken.push(text.to_owned());
}

fn name(value: &Value<'_>) -> Read<String> {
    let name = value::text(value)?;
    if is_name(&name) { Ok(name) } else { Err(not_a_name(&name).into()) }
}

fn url(value: &Value<'_>) -> Read<Uri> {
    Ok(web_address(&value::secret(value)?)?)
}

fn path(value: &Value<'_>) -> Read<String> {
    let text = value::text(value)?;
    let wrong = |what: &str| Wrong::new(format!("{text:?} {what}")).expected("a path such as \"/mcp\"");
    if !text.starts_with('/') {
        return Err(wrong("does not start with /").into());
    }
    let path = if text.len() > 1 { text.strip_suffix('/').unwrap_or(&text) } else { &text };
    if path.parse::<PathAndQuery>().is_err() || path.contains(['?', '#', '%', '\\']) {
        return Err(wrong("has characters that a path cannot have").into());
    }
    if path.len() > 1 && path[1..].split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(wrong("has an empty part, or \".\" or \"..\"").into());
    }
    if path == "/.well-known" || path.starts_with("/.well-known/") {
        return Err(wrong("is reserved for metadata").into());
    }
    Ok(path.to_owned())
}

fn header_name(value: &Value<'_>) -> Read<HeaderName> {
    let text = value::text(value)?;
    Ok(text.parse().map_err(|_| Wrong::new(format!("is {text:?}")).expected("the name of a header"))?)
}

/// Headers with their values marked sensitive, so that they are not printed.
fn headers(section: &Section<'_>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in section.entries("headers") {
        let place = |wrong: Wrong| if wrong.at.is_some() { wrong } else { wrong.at(value.span()) };
        match header(name, value) {
            Ok((name, value)) => {
                if headers.insert(&name, value).is_some() {
                    section.problem("headers", place(Wrong::new(format!("{name} is there twice"))));
                }
            }
            Err(wrongs) => wrongs.into_iter().for_each(|wrong| {
                let what = format!("{name}: {}", wrong.what);
                section.problem("headers", place(Wrong { what, ..wrong }));
            }),
        }
    }
    headers
}

fn header(name: &str, value: &Value<'_>) -> Read<(HeaderName, HeaderValue)> {
    let name: HeaderName = name.parse().map_err(|_| Wrong::new("is not the name of a header"))?;
    if OWN_HEADERS.contains(&name.as_str()) {
        return Err(Wrong::new("is written by taskgate itself").hint("take it out").into());
    }
    let text = value::secret(value)?;
    let mut value = HeaderValue::from_str(&text)
        .map_err(|_| Wrong::new("has characters that a header cannot have").expected("visible ASCII"))?;
    value.set_sensitive(true);
    Ok((name, value))
}

fn rules(section: &Section<'_>, defaults: &Arc<Terms>) -> Rules {
    let mut rules: Vec<(Selector, Arc<Terms>)> = Vec::new();
    let mut total = None;
    for (at, section) in section.tables("rule").into_iter().enumerate() {
        if let Some(earlier) = total {
            section.warn("tool", format!("can never match: rule[{earlier}] takes every call"));
        }
        let terms = Arc::new(terms(&section, defaults, Flag { name: "", value: None }));
        let wrong = Wrong::new("is not per rule").hint("it stands in [tasks], for all tools");
        section.refuse(&NOT_PER_RULE, &wrong);
        if let Some(selector) = selector(&section) {
            total = total.or(selector.is_total().then_some(at));
            rules.push((selector, terms));
        }
        section.done();
    }
    Rules::new(rules, Arc::clone(defaults))
}

fn selector(section: &Section<'_>) -> Option<Selector> {
    if !section.has("tool") && section.sound("tool") {
        let wrong = Wrong::new("is missing").expected("a glob over tool names, or a list of them");
        section.problem("tool", wrong.hint("tool = \"*\" for every tool"));
    }
    let globs = section.read("tool", |value| {
        let globs = match value.get_ref().is_array() {
            true => value::list(value::placed)(value)?,
            false => vec![value::placed(value)?],
        };
        if globs.iter().any(|(glob, _)| glob.is_empty()) || globs.is_empty() {
            return Err(Wrong::new("is empty").expected("a glob such as \"run_*\"").into());
        }
        Ok(globs)
    });
    let condition = section.read("when", value::text);
    let places = globs.clone().unwrap_or_default();
    let texts: Vec<&String> = places.iter().map(|(glob, _)| glob).collect();
    let made = Selector::new(&texts, condition.as_deref());
    let found = made.map_err(|errors| {
        for error in errors {
            let wrong = Wrong::new(error.to_string());
            match error {
                SelectorError::Glob { index, .. } => {
                    let wrong =
                        Wrong::new(format!("{:?}: {error}", places[index].0)).expected("a glob such as \"run_*\"");
                    section.problem("tool", wrong.at(places[index].1.clone()));
                }
                SelectorError::Condition { .. } => {
                    section.problem("when", wrong.expected("CEL, such as \"args.nsteps > 1000\""));
                }
            }
        }
    });
    let readable = globs.is_some() && (condition.is_some() || !section.has("when"));
    found.ok().filter(|_| readable)
}
