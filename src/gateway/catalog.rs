//! `tools/list`: the upstream's tools, edited for clients that may be given a job handle, and ours.

use std::sync::Arc;

use bytes::Bytes;
use tracing::error;

use crate::call::{Answer, Body, Outgoing};
use crate::dialect::{Added, Dialect, Effects, Listing, edit_tools_list};
use crate::jsonrpc::{Edit, Envelope, Id, splice};
use crate::mcp::results::private;
use crate::mcp::{Era, OwnTasks, Params};
use crate::policy::{Ability, may_defer};
use crate::session::Catalog;
use crate::task::OwnerMode;
use crate::upstream::{list_on, list_tools};

use super::caller::Caller;
use super::hello::result_in;
use super::{Framing, Gateway, Reply};

/// What a caller of this dialect can be given.
pub(super) fn ability(dialect: Dialect) -> Ability {
    match dialect {
        Dialect::Ext => Ability::Tasks,
        Dialect::Core => Ability::OnlyTasks,
        Dialect::Job => Ability::Jobs,
    }
}

impl Gateway {
    pub(super) fn list_tools(&self, caller: Caller, message: &Envelope, id: &Id) -> Reply {
        let is_first = !Params::peek(message.params()).has_cursor();
        let mut assignment = self.assignment(&caller, message.text().clone(), id);
        if caller.upstream_tasks() == OwnTasks::Extension {
            return caller.reply(Outgoing::Later(self.inner.worker.start(assignment)));
        }
        assignment.inline = usize::MAX;
        assignment.log = None;
        let steps = self.inner.worker.start(assignment);
        let gateway = self.clone();
        let (method, dialect) = (caller.method, caller.dialect.word());
        let steps = self.edited(
            steps,
            |_| {},
            move |answer| async move {
                if is_first { gateway.first_page(&caller, answer).await } else { gateway.page(&caller, answer, false) }
            },
        );
        Reply { outgoing: Outgoing::Later(steps), framing: Framing::Either, method, dialect }
    }

    async fn first_page(&self, caller: &Caller, answer: Answer) -> Answer {
        let Some((_, result)) = result_in(&answer) else { return answer };
        let catalog = self.read_catalog(caller, &result).await;
        let ability = ability(caller.dialect);
        let any = catalog.names().any(|tool| self.may_defer(caller, tool, ability));
        if any && self.inner.job_names(Some(&catalog)).is_none() {
            error!(
                upstream = caller.leg.upstream.options.name,
                "the upstream has tools of all names that job tools could have: slow calls are held for clients \
                 without tasks; set other names in [jobs]"
            );
        }
        self.page(caller, answer, any)
    }

    /// One page with its edits; `with_jobs` says whether the job tools go on it.
    fn page(&self, caller: &Caller, mut answer: Answer, with_jobs: bool) -> Answer {
        let Some((message, result)) = result_in(&answer) else { return answer };
        let Some(at) = message.result_at() else { return answer };
        let ability = ability(caller.dialect);
        let found = self.inner.job_names(caller.catalog().as_deref());
        // Without names there are no handles for clients that know nothing of tasks.
        let named = found.is_some() || caller.dialect == Dialect::Ext;
        let catalog = caller.catalog();
        let runs_as_task = |tool: &str| match caller.upstream_tasks() {
            OwnTasks::None => caller.speaks_core() && self.may_defer(caller, tool, Ability::OnlyTasks),
            // A tool that they run only as a task can be called without one here, and clients throw at `required`.
            OwnTasks::Core => named && catalog.as_ref().is_some_and(|catalog| catalog.requires_task(tool)),
            OwnTasks::Extension => false,
        };
        // A task of the stateless era has no handle beside it.
        let gives_handles = caller.era == Era::Handshake || caller.dialect == Dialect::Job;
        let effects = |tool: &str| Effects {
            may_defer: gives_handles && named && self.may_defer(caller, tool, ability),
            runs_as_task: runs_as_task(tool),
        };
        let has_list = self.has_list(caller);
        let add = found.as_ref().filter(|_| with_jobs && gives_handles);
        let add = add.map(|names| if has_list { Added::WithList(names) } else { Added::ById(names) });
        let names = found.clone().unwrap_or_default();
        let output_schema = self.inner.options.jobs.output_schema;
        let listing = Listing { add, result_tool: &names.result, output_schema, era: caller.era };
        let edited = edit_tools_list(&result, listing, effects);
        let depends = caller.is_native() && self.depends_on_client(caller, &result);
        let edited = if depends { private(&edited) } else { edited };
        if edited != result {
            let edit = Edit::new(at, String::from_utf8_lossy(&edited));
            answer.body = Body::Message(splice(message.text(), vec![edit]));
        }
        answer
    }

    /// Whether a list is another for another client: some tool of the upstream can be deferred.
    fn depends_on_client(&self, caller: &Caller, page: &Bytes) -> bool {
        let mut tools = Catalog::default();
        tools.add_page(std::str::from_utf8(page).unwrap_or_default());
        let any = |catalog: &Catalog| {
            let able = [Ability::Tasks, Ability::Jobs];
            catalog.names().any(|tool| able.iter().any(|ability| self.may_defer(caller, tool, *ability)))
        };
        any(&tools) || caller.catalog().is_some_and(|catalog| any(&catalog))
    }

    fn may_defer(&self, caller: &Caller, tool: &str, ability: Ability) -> bool {
        self.inner.options.owner != OwnerMode::Principal
            && caller.route.rules.possible(tool).iter().any(|terms| may_defer(terms, ability))
    }

    /// All names, beginning with the page at hand; remembered for the calls to come.
    async fn read_catalog(&self, caller: &Caller, first: &Bytes) -> Arc<Catalog> {
        let mut catalog = Catalog::default();
        let cursor = catalog.add_page(std::str::from_utf8(first).unwrap_or_default());
        if cursor.is_some()
            && let Some(known) = caller.session().and_then(|session| session.catalog())
        {
            return known;
        }
        list_on(&caller.leg, &mut catalog, cursor).await;
        known(caller, catalog)
    }

    /// All names, asked for because somebody calls a tool before listing any.
    pub(super) async fn learn_catalog(&self, caller: &Caller) -> Option<Arc<Catalog>> {
        Some(known(caller, list_tools(&caller.leg).await?))
    }
}

fn known(caller: &Caller, catalog: Catalog) -> Arc<Catalog> {
    let catalog = Arc::new(catalog);
    caller.set_catalog(catalog.clone());
    catalog
}
