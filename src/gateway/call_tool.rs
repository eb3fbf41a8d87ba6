//! `tools/call`: passed on, raced against its threshold, deferred.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::call::{Error, Outgoing};
use crate::dialect::Dialect;
use crate::jsonrpc::{Edit, Envelope, Id, entries, members, offset_in, remove, splice};
use crate::mcp::{Era, OwnTasks, Params, fresh_token};
use crate::policy::{Mode, Plan, Retry, Terms, plan};
use crate::task::{Owner, OwnerMode};
use crate::worker::{Alike, Assignment, Deferral, Permit};

use super::caller::Caller;
use super::catalog::ability;
use super::jobs::JobTool;
use super::{Gateway, Handling, Reply};

/// The shortest retention that a client can ask for: less would be a handle that is dead on arrival.
const SHORTEST_TTL: Duration = Duration::from_secs(1);
const NO_SESSION: &str = "Task-capable async tool calls require an MCP session";

impl Gateway {
    pub(super) fn call_tool(&self, caller: Caller, message: Envelope, params: &Params<'_>, id: &Id) -> Handling {
        let own_tasks = caller.upstream_tasks();
        // Its tasks, and its own way of making them, are the upstream's business.
        let is_theirs =
            own_tasks == OwnTasks::Extension || own_tasks == OwnTasks::Core && caller.dialect == Dialect::Core;
        let Some(tool) = params.name().filter(|_| !is_theirs) else {
            return self.forward(&caller, &message, id).into();
        };
        let id = id.clone();
        match self.job_tool(&tool) {
            Some(kind) => self.later(|gateway| async move { gateway.job_or_call(caller, kind, &message, &id).await }),
            // Whether the tool runs only as a task has to be known first.
            None if own_tasks == OwnTasks::Core && caller.catalog().is_none() => self.later(|gateway| async move {
                gateway.learn_catalog(&caller).await;
                gateway.start_call(&caller, &message, &Params::peek(message.params()), &id)
            }),
            None => self.start_call(&caller, &message, params, &id).into(),
        }
    }

    /// A call by the name of a job tool: ours, or one of the upstream's own.
    async fn job_or_call(&self, caller: Caller, kind: JobTool, message: &Envelope, id: &Id) -> Reply {
        let params = Params::peek(message.params());
        match self.job_call(&caller, kind, message).await {
            Some(job) => self.job(caller, job, id).await,
            None => self.start_call(&caller, message, &params, id),
        }
    }

    fn start_call(&self, caller: &Caller, message: &Envelope, params: &Params<'_>, id: &Id) -> Reply {
        if self.is_draining() {
            return self.fails(caller, id, &Error::ShuttingDown);
        }
        let tool = params.name().unwrap_or_default();
        let terms = caller.route.rules.terms(&tool, params.arguments()).clone();
        let deferral = match self.deferral(caller, &tool, params, &terms) {
            Ok(deferral) => deferral,
            Err(error) => return self.fails(caller, id, &error),
        };
        let assignment = self.call(caller, (message, params, id), &terms, deferral);
        caller.reply(Outgoing::Later(self.inner.worker.start(assignment)))
    }

    /// Whether such a call is sent at all.
    ///
    /// # Errors
    /// If it is not.
    pub(super) fn check_call(&self, caller: &Caller, params: &Params<'_>) -> Result<(), Error> {
        let tool = params.name().unwrap_or_default();
        let terms = caller.route.rules.terms(&tool, params.arguments());
        match plan(terms, ability(caller.dialect)) {
            Plan::Refuse => Err(refused(caller, &tool)),
            Plan::Hold | Plan::Race { .. } | Plan::AtOnce { .. } => Ok(()),
        }
    }

    /// How this call may be deferred, if it may.
    pub(super) fn deferral(
        &self,
        caller: &Caller,
        tool: &str,
        params: &Params<'_>,
        terms: &Terms,
    ) -> Result<Option<Deferral>, Error> {
        let plan = match plan(terms, ability(caller.dialect)) {
            Plan::Hold => return Ok(None),
            Plan::Refuse => return Err(refused(caller, tool)),
            Plan::Race { threshold } => Plan::Race { threshold: self.patience(caller, threshold) },
            Plan::AtOnce { within } => Plan::AtOnce { within },
        };
        let is_core = caller.dialect == Dialect::Core;
        let retention = retention(params.task().filter(|_| is_core), (terms.ttl, terms.max_ttl))?;
        let Some(owner) = self.owner(caller, terms)? else {
            return if is_core { Err(refused(caller, tool)) } else { Ok(None) };
        };
        let names = match self.inner.job_names(caller.catalog().as_deref()) {
            Some(names) => names,
            None if caller.dialect == Dialect::Job => return Ok(None),
            None => self.inner.job_names(None).unwrap_or_default(),
        };
        Ok(Some(Deferral {
            plan,
            dialect: caller.dialect,
            names: Arc::new(names),
            permit: if is_core { Some(self.permit(&owner)?) } else { None },
            owner,
            tool: tool.into(),
            threshold: terms.threshold,
            retention,
            poll_interval: terms.poll_interval,
        }))
    }

    /// A call that can only run as a task must find its place before it is sent: it cannot be held.
    fn permit(&self, owner: &Owner) -> Result<Permit, Error> {
        let worker = &self.inner.worker;
        if worker.tasks.is_down() {
            return Err(Error::StoreUnavailable);
        }
        worker.limits.permit(owner).ok_or(Error::TooManyTasks)
    }

    /// Who would own the task; `None` if nobody could, so that the call is held.
    fn owner(&self, caller: &Caller, terms: &Terms) -> Result<Option<Owner>, Error> {
        let mode = self.inner.options.owner;
        let lacks_session = caller.era == Era::Handshake
            && caller.session().is_none()
            && match mode {
                OwnerMode::Session => true,
                OwnerMode::Auto => {
                    // A hop has dropped the header.
                    caller.credential().is_none() && caller.leg.upstream.gives_sessions() == Some(true)
                }
                OwnerMode::Principal | OwnerMode::Id => false,
            };
        match (caller.dialect, terms.mode) {
            (Dialect::Core, _) | (Dialect::Ext, Mode::Async) if lacks_session => {
                Err(Error::InvalidParams(NO_SESSION.into()))
            }
            (Dialect::Ext, Mode::Auto | Mode::Sync) if lacks_session => Ok(None),
            _ if caller.era == Era::Stateless => Ok(Owner::without_session(mode, caller.identity)),
            _ => Ok(Owner::new(mode, caller.identity)),
        }
    }

    /// A threshold that such a client lives to see.
    pub(super) fn patience(&self, caller: &Caller, threshold: Duration) -> Duration {
        let patience = &self.inner.worker.patience;
        let limit = patience.has_learnt().then(|| patience.limit(&caller.habit())).flatten();
        limit.map_or(threshold, |limit| limit.min(threshold))
    }

    fn call(
        &self,
        caller: &Caller,
        (message, params, id): (&Envelope, &Params<'_>, &Id),
        terms: &Terms,
        deferral: Option<Deferral>,
    ) -> Assignment {
        let harvests = self.inner.options.harvest_progress && deferral.is_some();
        let has_tasks = caller.upstream_tasks() == OwnTasks::Core;
        let requires_task = has_tasks
            && params.name().is_some_and(|tool| caller.catalog().is_some_and(|catalog| catalog.requires_task(&tool)));
        let task = if requires_task { TaskParam::Added } else { TaskParam::Removed };
        let (text, own_token) = edited(message, params, task, harvests.then(fresh_token));
        let mut assignment = self.assignment(caller, text, id);
        let call = assignment.ticket.call();
        let token = own_token.clone().or_else(|| params.meta().progress_token.map(str::to_owned));
        if let Some(token) = token {
            call.set_token(token);
        }
        let repeatable = terms.retry == Retry::Idempotent
            && params.name().is_some_and(|tool| caller.catalog().is_some_and(|catalog| catalog.is_repeatable(&tool)));
        assignment.max_runtime = Some(terms.max_runtime);
        assignment.input_timeout = terms.input_timeout;
        assignment.max_result = terms.max_result;
        assignment.repeatable = repeatable;
        assignment.own_token = own_token;
        assignment.alike = deferral
            .as_ref()
            // A call that becomes a task of the upstream's own cannot be cancelled by halves.
            .filter(|_| terms.coalesce && !has_tasks)
            .and_then(|deferral| Alike::new(&caller.leg, caller.identity, &deferral.tool, params.arguments()));
        assignment.follows_tasks = has_tasks;
        assignment.deferral = deferral;
        assignment
    }
}

/// Why a call is not sent at all.
fn refused(caller: &Caller, tool: &str) -> Error {
    if caller.era == Era::Stateless {
        return Error::TasksUndeclared(format!("{tool} is only for clients that support tasks"));
    }
    Error::MethodNotFound(match caller.dialect {
        Dialect::Core => format!("{tool} does not run as a task here: call it without `task`"),
        Dialect::Ext | Dialect::Job => format!(
            "{tool} is only for clients that support tasks: declare the extension io.modelcontextprotocol/tasks"
        ),
    })
}

/// How long the outcome is kept: as long as the client asks for, within bounds.
fn retention(task: Option<&str>, (ttl, max_ttl): (Duration, Duration)) -> Result<Duration, Error> {
    let members = entries(task.unwrap_or_default());
    let Some(asked) = members.get("ttl").filter(|text| **text != "null") else { return Ok(ttl) };
    let wrong = || Error::InvalidParams("task.ttl is a whole number of milliseconds, at least 0".into());
    let number: f64 = asked.parse().map_err(|_| wrong())?;
    if number.is_nan() || number < 0.0 || (number.is_finite() && number.fract() != 0.0) {
        return Err(wrong());
    }
    let asked = Duration::try_from_secs_f64(number / 1_000.0).unwrap_or(Duration::MAX);
    Ok(asked.max(SHORTEST_TTL).min(max_ttl))
}

/// What becomes of `task` in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskParam {
    /// It is taken out: servers without tasks fail on it.
    Removed,
    /// It is put in: the tool runs in no other way, and taskgate follows the upstream's task.
    Added,
}

/// The call without `task`, or with one, and with our progress token if it brings none; returns the token if it went
/// in.
fn edited(message: &Envelope, params: &Params<'_>, task: TaskParam, token: Option<String>) -> (Bytes, Option<String>) {
    let text = std::str::from_utf8(message.text()).unwrap_or_default();
    let mut edits = Vec::new();
    if params.has_task()
        && let (Some(at), Some(inner)) = (message.params_at(), message.params())
    {
        edits.extend(remove(&members(inner).unwrap_or_default(), at.start, "task"));
    }
    if let (TaskParam::Added, Some(name)) = (task, params.name_text()) {
        edits.push(Edit::insert(offset_in(text, name).end, ",\"task\":{}"));
    }
    let place = token.and_then(|token| Some((token_edit(text, params, &token)?, token)));
    let token = place.map(|(edit, token)| {
        edits.push(edit);
        token
    });
    let text = if edits.is_empty() { message.text().clone() } else { splice(message.text(), edits) };
    (text, token)
}

/// Where our token goes; nowhere if the client speaks of one, or of something that is no `_meta`.
fn token_edit(text: &str, params: &Params<'_>, token: &str) -> Option<Edit> {
    match params.meta_text() {
        Some(meta) if meta.contains("progressToken") => None,
        Some(meta) => {
            let comma = if meta[1..].trim_start().starts_with('}') { "" } else { "," };
            Some(Edit::insert(offset_in(text, meta).start + 1, format!("\"progressToken\":{token}{comma}")))
        }
        None if params.has_meta() => None,
        None => {
            let at = offset_in(text, params.name_text()?).end;
            Some(Edit::insert(at, format!(",\"_meta\":{{\"progressToken\":{token}}}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(params: &str, token: Option<&str>) -> (String, Option<String>) {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
        let message = Envelope::read(Bytes::from(text)).unwrap();
        let (text, token) =
            edited(&message, &Params::peek(message.params()), TaskParam::Removed, token.map(str::to_owned));
        let message = Envelope::read(text).unwrap();
        (message.params().unwrap().to_owned(), token)
    }

    #[test]
    fn a_call_gets_our_token_only_where_it_has_none() {
        for (params, expected, used) in [
            (
                r#"{"name":"a","arguments":{"n":1.0}}"#,
                r#"{"name":"a","_meta":{"progressToken":"t"},"arguments":{"n":1.0}}"#,
                true,
            ),
            (r#"{"_meta":{},"name":"a"}"#, r#"{"_meta":{"progressToken":"t"},"name":"a"}"#, true),
            (r#"{"_meta":{"x":1},"name":"a"}"#, r#"{"_meta":{"progressToken":"t","x":1},"name":"a"}"#, true),
            (r#"{"_meta":{"progressToken":7},"name":"a"}"#, r#"{"_meta":{"progressToken":7},"name":"a"}"#, false),
            (r#"{"_meta":null,"name":"a"}"#, r#"{"_meta":null,"name":"a"}"#, false),
            (r#"{"name":"a","task":{"ttl":5}}"#, r#"{"name":"a","_meta":{"progressToken":"t"}}"#, true),
            (r#"{"task":{},"name":"a"}"#, r#"{"name":"a","_meta":{"progressToken":"t"}}"#, true),
        ] {
            let (text, token) = edit(params, Some("\"t\""));
            assert_eq!((text.as_str(), token.is_some()), (expected, used), "{params}");
        }
        assert_eq!(edit(r#"{"name":"a","arguments":{}}"#, None).0, r#"{"name":"a","arguments":{}}"#);
        let text = Bytes::from_static(br#"{"id":1,"method":"tools/call","params":{"name":"a","task":7}}"#);
        let message = Envelope::read(text).unwrap();
        let (text, _) = edited(&message, &Params::peek(message.params()), TaskParam::Added, Some("\"t\"".into()));
        let message = Envelope::read(text).unwrap();
        assert_eq!(message.params().unwrap(), r#"{"name":"a","task":{},"_meta":{"progressToken":"t"}}"#);
    }

    #[test]
    fn b56_a_ttl_is_kept_within_bounds_or_refused() {
        let bounds = (Duration::from_secs(3_600), Duration::from_secs(86_400));
        for (ttl, expected) in [
            ("60000", Some(60_000)),
            ("0", Some(1_000)),
            ("1", Some(1_000)),
            ("-0", Some(1_000)),
            ("null", Some(3_600_000)),
            ("9007199254740992", Some(86_400_000)),
            ("9223372036854775807", Some(86_400_000)),
            ("1e300", Some(86_400_000)),
            ("1e400", Some(86_400_000)),
            ("1e4", Some(10_000)),
            ("-1", None),
            ("-1e400", None),
            ("1.5", None),
            ("\"60000\"", None),
            ("true", None),
            ("{}", None),
        ] {
            let kept = retention(Some(&format!("{{\"ttl\":{ttl}}}")), bounds).ok();
            assert_eq!(kept.map(|kept| kept.as_millis()), expected, "{ttl}");
        }
        assert_eq!(retention(None, bounds).ok(), Some(bounds.0));
    }
}
