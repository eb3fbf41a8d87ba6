//! What to do with a call: its terms against what its client can be given.

use std::time::Duration;

use super::{Mode, Terms, WithoutTasks};

/// How long a call that is deferred at once may take to be accepted by its upstream.
const ACCEPTANCE: Duration = Duration::from_millis(250);

/// What a caller can be given for a call that is not finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// A task: its client speaks the tasks extension.
    Tasks,
    /// A job: a tool result that names the tool to poll with.
    Jobs,
    /// Nothing but a task: its client asked for one (`params.task`, 2025-11-25).
    OnlyTasks,
}

/// How a call is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// It is waited for to its end.
    Hold,
    /// It is waited for, and deferred if it outlasts the threshold.
    Race {
        /// From the last byte of the client's request.
        threshold: Duration,
    },
    /// It is deferred as soon as the upstream has accepted it.
    AtOnce {
        /// Or after this long, whichever is first.
        within: Duration,
    },
    /// It is refused before anything is sent.
    Refuse,
}

/// How a call on these terms is carried for a client with this ability.
pub fn plan(terms: &Terms, ability: Ability) -> Plan {
    match (terms.mode, ability, terms.without_tasks) {
        (Mode::Sync, Ability::OnlyTasks, _) | (Mode::Auto | Mode::Async, Ability::Jobs, WithoutTasks::Refuse) => {
            Plan::Refuse
        }
        (Mode::Sync, Ability::Tasks | Ability::Jobs, _) | (_, Ability::Jobs, WithoutTasks::Hold) => Plan::Hold,
        (Mode::Auto, Ability::Tasks, _) | (Mode::Auto, Ability::Jobs, WithoutTasks::Job) => {
            Plan::Race { threshold: terms.threshold }
        }
        (Mode::Auto | Mode::Async, Ability::OnlyTasks, _)
        | (Mode::Async, Ability::Tasks, _)
        | (Mode::Async, Ability::Jobs, WithoutTasks::Job) => Plan::AtOnce { within: ACCEPTANCE },
    }
}

/// Whether a call on these terms could end in a handle.
pub fn may_defer(terms: &Terms, ability: Ability) -> bool {
    match plan(terms, ability) {
        Plan::Race { .. } | Plan::AtOnce { .. } => true,
        Plan::Hold | Plan::Refuse => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Retry;

    #[test]
    fn every_combination_has_its_plan() {
        use Ability::{Jobs, OnlyTasks, Tasks};
        let threshold = Duration::from_secs(3);
        let race = Plan::Race { threshold };
        let at_once = Plan::AtOnce { within: Duration::from_millis(250) };
        let table = [
            (Mode::Auto, WithoutTasks::Job, race, race),
            (Mode::Auto, WithoutTasks::Hold, race, Plan::Hold),
            (Mode::Auto, WithoutTasks::Refuse, race, Plan::Refuse),
            (Mode::Async, WithoutTasks::Job, at_once, at_once),
            (Mode::Async, WithoutTasks::Hold, at_once, Plan::Hold),
            (Mode::Async, WithoutTasks::Refuse, at_once, Plan::Refuse),
            (Mode::Sync, WithoutTasks::Job, Plan::Hold, Plan::Hold),
            (Mode::Sync, WithoutTasks::Hold, Plan::Hold, Plan::Hold),
            (Mode::Sync, WithoutTasks::Refuse, Plan::Hold, Plan::Hold),
        ];
        for (mode, without_tasks, with, without) in table {
            let terms = Terms {
                mode,
                threshold,
                ttl: threshold,
                max_ttl: threshold,
                poll_interval: threshold,
                max_runtime: threshold,
                input_timeout: threshold,
                without_tasks,
                retry: Retry::Never,
                coalesce: false,
                max_result: 1,
            };
            let asked = if mode == Mode::Sync { Plan::Refuse } else { at_once };
            for (ability, expected) in [(Tasks, with), (Jobs, without), (OnlyTasks, asked)] {
                assert_eq!(plan(&terms, ability), expected, "{mode:?} {without_tasks:?} {ability:?}");
                let defers = expected == race || expected == at_once;
                assert_eq!(may_defer(&terms, ability), defers, "{mode:?} {without_tasks:?} {ability:?}");
            }
        }
    }
}
