//! `[tasks]`, `[jobs]` and `[dialect]`: what calls get.
//!
//! The same reader makes the defaults and the rules, since a rule is the defaults with some keys changed.

use std::time::Duration;

use super::document::Section;
use super::overrides::{Flag, Overrides};
use super::problem::Wrong;
use super::value::{self, Read, Value};
use crate::gateway::{Jobs, OutputSchema, SessionEnd};
use crate::policy::{Mode, Retry, Terms, WithoutTasks};
use crate::task::OwnerMode;
use crate::{gateway, store, worker};

/// From here on clients may have given up first.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(50);

/// The longest wait that every client was seen to sit through.
const LONGEST_WAIT: Duration = Duration::from_secs(25);

/// Keys of `[tasks]` that a rule cannot have.
pub(super) const NOT_PER_RULE: [&str; 6] =
    ["owner", "on_session_end", "harvest_progress", "max_running", "max_running_per_owner", "max_retained"];

/// `[tasks]`, resolved.
pub(super) struct Tasks {
    pub(super) terms: Terms,
    pub(super) owner: OwnerMode,
    pub(super) on_session_end: SessionEnd,
    pub(super) harvest_progress: bool,
    pub(super) worker: worker::Options,
    pub(super) store: store::Options,
}

fn defaults() -> Terms {
    Terms {
        mode: Mode::default(),
        threshold: Duration::from_secs(4),
        ttl: Duration::from_secs(3600),
        max_ttl: Duration::from_secs(24 * 3600),
        poll_interval: Duration::from_secs(2),
        max_runtime: Duration::from_secs(3600),
        input_timeout: Duration::from_secs(300),
        without_tasks: WithoutTasks::default(),
        retry: Retry::default(),
        coalesce: false,
        max_result: 32 << 20,
    }
}

pub(super) fn tasks(section: Section<'_>, overrides: &Overrides, store: store::Kind) -> Tasks {
    let max_retained = match &store {
        store::Kind::Memory => 256 << 20,
        store::Kind::Embedded { .. } => 4 << 30,
    };
    let owners = [
        ("auto", OwnerMode::Auto),
        ("session", OwnerMode::Session),
        ("principal", OwnerMode::Principal),
        ("id", OwnerMode::Id),
    ];
    let ends = [("auto", SessionEnd::Auto), ("keep", SessionEnd::Keep), ("cancel", SessionEnd::Cancel)];
    let terms = terms(&section, &defaults(), overrides.threshold_flag());
    let tasks = Tasks {
        owner: section.read_or("owner", OwnerMode::default(), value::choice(&owners)),
        on_session_end: section.read_or("on_session_end", SessionEnd::default(), value::choice(&ends)),
        harvest_progress: section.read_or("harvest_progress", true, value::boolean),
        worker: worker::Options {
            max_running: section.read_or("max_running", 10_000, value::count),
            max_running_per_owner: section.read_or("max_running_per_owner", 64, value::count),
        },
        store: store::Options {
            kind: store,
            max_retained: section.read_or("max_retained", max_retained, value::size),
            ..store::Options::default()
        },
        terms,
    };
    if tasks.owner == OwnerMode::Principal {
        section.warn("owner", "without [auth] no caller has a principal, so every call is held");
    }
    if tasks.terms.max_result > tasks.store.max_retained {
        section.warn("max_result", "is more than max_retained: the largest results could not be kept");
    }
    section.done();
    tasks
}

/// The keys from `mode` to `max_result`, laid over a base.
pub(super) fn terms(section: &Section<'_>, base: &Terms, threshold: Flag<'_>) -> Terms {
    let modes = [("auto", Mode::Auto), ("async", Mode::Async), ("sync", Mode::Sync)];
    let without = [("job", WithoutTasks::Job), ("hold", WithoutTasks::Hold), ("refuse", WithoutTasks::Refuse)];
    let retries = [("never", Retry::Never), ("idempotent", Retry::Idempotent)];
    let interval = value::duration_in(Duration::from_nanos(1)..=Duration::from_secs(3600));
    let terms = Terms {
        mode: section.read_or("mode", base.mode, value::choice(&modes)),
        threshold: section.read_flag("threshold", threshold, value::duration).unwrap_or(base.threshold),
        ttl: section.read_or("ttl", base.ttl, value::duration),
        max_ttl: section.read_or("max_ttl", base.max_ttl, value::duration),
        poll_interval: section.read_or("poll_interval", base.poll_interval, interval),
        max_runtime: section.read_or("max_runtime", base.max_runtime, value::duration),
        input_timeout: section.read_or("input_timeout", base.input_timeout, value::duration),
        without_tasks: section.read_or("without_tasks", base.without_tasks, value::choice(&without)),
        retry: section.read_or("retry", base.retry, value::choice(&retries)),
        coalesce: section.read_or("coalesce", base.coalesce, value::boolean),
        max_result: section.read_or("max_result", base.max_result, value::size),
    };
    check_terms(section, &terms, threshold);
    terms
}

fn check_terms(section: &Section<'_>, terms: &Terms, threshold: Flag<'_>) {
    let written = |key| section.has(key);
    let sound = |key| section.sound(key) && (written(key) || section.sound_at(&format!("tasks.{key}")));
    let comparable = sound("ttl") && sound("max_ttl") && (written("ttl") || written("max_ttl"));
    if comparable && terms.ttl > terms.max_ttl {
        let (ttl, max_ttl) = (humantime::format_duration(terms.ttl), humantime::format_duration(terms.max_ttl));
        let key = if written("ttl") { "ttl" } else { "max_ttl" };
        let wrong = Wrong::new(format!("ttl is {ttl}, longer than max_ttl, which is {max_ttl}"));
        section.problem(key, wrong.expected("ttl at most max_ttl").hint("lower ttl or raise max_ttl"));
    }
    let threshold_is_ours = written("threshold") || threshold.value.is_some();
    if threshold_is_ours && terms.threshold >= CLIENT_TIMEOUT {
        section.warn("threshold", "most clients give up after 60 s, some sooner: stay below 50s");
    }
    let timed = threshold_is_ours || written("max_runtime");
    if timed && terms.mode == Mode::Auto && terms.threshold >= terms.max_runtime {
        section.warn("threshold", "is not below max_runtime: a call is cancelled before it could be deferred");
    }
}

pub(super) fn gateway(jobs: Section<'_>, dialect: Section<'_>, tasks: &Tasks, keepalive: Duration) -> gateway::Options {
    let handshake_extension = dialect.read_or("handshake_extension", true, value::boolean);
    dialect.done();
    gateway::Options {
        max_result: tasks.terms.max_result,
        input_timeout: tasks.terms.input_timeout,
        jobs: read_jobs(jobs),
        handshake_extension,
        owner: tasks.owner,
        on_session_end: tasks.on_session_end,
        keepalive,
        harvest_progress: tasks.harvest_progress,
    }
}

fn read_jobs(section: Section<'_>) -> Jobs {
    let schemas = [("drop", OutputSchema::Drop), ("widen", OutputSchema::Widen), ("keep", OutputSchema::Keep)];
    let wait = value::duration_in(value::up_to(LONGEST_WAIT));
    let name = |key, default: &str| section.read_or(key, default.to_owned(), tool_name);
    let jobs = Jobs {
        result_tool: name("result_tool", "get_job_result"),
        cancel_tool: name("cancel_tool", "cancel_job"),
        list_tool: name("list_tool", "list_jobs"),
        wait: section.read_or("wait", Duration::from_secs(20), wait),
        output_schema: section.read_or("output_schema", OutputSchema::default(), value::choice(&schemas)),
    };
    let names =
        [("result_tool", &jobs.result_tool), ("cancel_tool", &jobs.cancel_tool), ("list_tool", &jobs.list_tool)];
    let names: Vec<_> = names.into_iter().filter(|(key, _)| section.sound(key)).collect();
    for (at, (key, name)) in names.iter().enumerate() {
        if let Some((other, _)) = names.iter().take(at).find(|(_, before)| before == name) {
            // Reported where something is written: the other one may be a default.
            let key = if section.has(key) { key } else { other };
            let wrong = Wrong::new(format!("{name:?} is the name of two job tools"));
            section.problem(key, wrong.expected("three different names"));
        }
    }
    section.done();
    jobs
}

fn tool_name(value: &Value<'_>) -> Read<String> {
    let name = value::text(value)?;
    if is_name(&name) { Ok(name) } else { Err(not_a_name(&name).into()) }
}

/// Letters, digits, `_`, `-` and `.`, from 1 to 64 of them.
pub(super) fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (1..=64).contains(&text.len()) && text.bytes().all(allowed)
}

pub(super) fn not_a_name(text: &str) -> Wrong {
    Wrong::new(format!("is {text:?}")).expected("1 to 64 letters, digits, \"_\", \"-\" or \".\"")
}
