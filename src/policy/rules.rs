//! The rules of one upstream, in order: the first that matches a call gives its terms.
//!
//! Arguments are only parsed for a rule that asks about them; every other call costs a look at its name.

use std::sync::Arc;

use super::Terms;
use super::selector::{Selector, Subject};

/// Rules in the order they were written, and what is left when none matches.
#[derive(Debug)]
pub struct Rules {
    rules: Vec<(Selector, Arc<Terms>)>,
    defaults: Arc<Terms>,
}

impl Rules {
    /// Rules in order of precedence, and the terms of calls that none of them matches.
    pub fn new(rules: Vec<(Selector, Arc<Terms>)>, defaults: Arc<Terms>) -> Self {
        Self { rules, defaults }
    }

    /// The terms of one call. `arguments` is their JSON text as the client sent it, if it sent any.
    pub fn terms(&self, tool: &str, arguments: Option<&str>) -> &Arc<Terms> {
        let mut subject = None;
        for (selector, terms) in &self.rules {
            if !selector.names(tool) {
                continue;
            }
            if !selector.is_conditional()
                || selector.holds(subject.get_or_insert_with(|| Subject::new(tool, arguments)))
            {
                return terms;
            }
        }
        &self.defaults
    }

    /// The rules in order of precedence.
    pub fn iter(&self) -> impl Iterator<Item = (&Selector, &Terms)> {
        self.rules.iter().map(|(selector, terms)| (selector, &**terms))
    }

    /// The terms of calls that no rule matches.
    pub fn defaults(&self) -> &Arc<Terms> {
        &self.defaults
    }

    /// Every terms that a call of this tool may get, whatever its arguments, in order of precedence; never empty.
    pub fn possible(&self, tool: &str) -> Vec<&Arc<Terms>> {
        let mut possible = Vec::new();
        for (selector, terms) in self.rules.iter().filter(|(selector, _)| selector.names(tool)) {
            possible.push(terms);
            if !selector.is_conditional() {
                return possible;
            }
        }
        possible.push(&self.defaults);
        possible
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::policy::{Mode, Retry, WithoutTasks};

    fn terms(threshold: u64) -> Arc<Terms> {
        Arc::new(Terms {
            mode: Mode::Auto,
            threshold: Duration::from_secs(threshold),
            ttl: Duration::from_secs(3600),
            max_ttl: Duration::from_secs(86400),
            poll_interval: Duration::from_secs(2),
            max_runtime: Duration::from_secs(3600),
            input_timeout: Duration::from_secs(300),
            without_tasks: WithoutTasks::Job,
            retry: Retry::Never,
            coalesce: false,
            max_result: 1024,
        })
    }

    /// Rules numbered from 1 by their threshold; the defaults are 0.
    fn rules(list: &[(&str, Option<&str>)]) -> Rules {
        let rule =
            |(at, (glob, when)): (u64, &(&str, Option<&str>))| (Selector::new(&[glob], *when).unwrap(), terms(at));
        Rules::new((1..).zip(list).map(rule).collect(), terms(0))
    }

    fn chosen(rules: &Rules, tool: &str, arguments: Option<&str>) -> u64 {
        rules.terms(tool, arguments).threshold.as_secs()
    }

    #[test]
    fn the_first_match_wins() {
        let rules = rules(&[("run_fast", None), ("run_*", None), ("get_{a,b}", None), ("*.x", None)]);
        let table = [
            ("run_fast", 1),
            ("run_slow", 2),
            ("run_", 2),
            ("Run_slow", 0),
            ("get_a", 3),
            ("get_c", 0),
            ("a/b.x", 4),
            ("", 0),
        ];
        for (tool, expected) in table {
            assert_eq!(chosen(&rules, tool, None), expected, "{tool}");
        }
    }

    #[test]
    fn conditions_see_the_arguments() {
        let table: [(&str, Option<&str>, bool); 22] = [
            ("args.n > 1000", Some(r#"{"n": 1001}"#), true),
            ("args.n > 1000", Some(r#"{"n": 1000}"#), false),
            ("args.n > 1000", Some(r#"{"n": 1000.5}"#), true),
            ("args.n > 1000", Some(r#"{"n": 99999999999999999999999999}"#), true),
            ("args.n > 1000", Some(r#"{"n": 1e400}"#), true),
            ("args.n + 1 > 1000", Some(r#"{"n": 9223372036854775807}"#), false),
            ("args.n > 1000", Some(r#"{"n": "5000"}"#), false),
            ("args.n > 1000", Some(r"{}"), false),
            ("args.n > 1000", None, false),
            ("!(args.n > 1000)", None, false),
            ("!has(args.n)", None, true),
            ("args.n > 1 || args.m > 1", Some(r#"{"m": 2}"#), true),
            ("args.n", Some(r#"{"n": 1}"#), false),
            ("args.n", Some(r#"{"n": true}"#), true),
            ("args.mesh.cells >= 10", Some(r#"{"mesh": {"cells": 10}}"#), true),
            ("args.list.exists(x, x == 'a')", Some(r#"{"list": ["b", "a"]}"#), true),
            ("size(args.list) > 2", Some(r#"{"list": [1, 2]}"#), false),
            ("tool == 'mesh' && args.quality.matches('^hi')", Some(r#"{"quality": "high"}"#), true),
            ("tool.endsWith('sh')", Some("null"), true),
            ("tool == 'mesh'", Some("[1]"), false),
            ("tool == 'mesh'", Some("not json"), false),
            ("args.n / 0 == 1", Some(r#"{"n": 1}"#), false),
        ];
        for (condition, arguments, holds) in table {
            let rules = rules(&[("mesh", Some(condition))]);
            assert_eq!(chosen(&rules, "mesh", arguments), u64::from(holds), "{condition} on {arguments:?}");
            assert_eq!(chosen(&rules, "other", arguments), 0);
        }
    }

    #[test]
    fn no_arithmetic_on_arguments_panics() {
        let conditions = [
            "args.a / args.b > 0",
            "args.a % args.b > 0",
            "-args.a > 0",
            "args.a - args.b > 0",
            "args.a * args.b > 0",
            "int(args.a) > 0",
            "uint(args.a) > 0u",
            "string(args.a) == ''",
            "[1][args.a] > 0",
            "args.c[args.a] > 0",
            "args.c.matches(args.c)",
        ];
        let numbers =
            ["-9223372036854775808", "9223372036854775807", "-1", "0", "1e300", "-1e400", "0.5", "[]", "null"];
        for condition in conditions {
            let rules = rules(&[("*", Some(condition))]);
            for (a, b) in numbers.iter().flat_map(|a| numbers.iter().map(move |b| (a, b))) {
                let arguments = format!(r#"{{"a": {a}, "b": {b}, "c": "(\u00e9["}}"#);
                assert!(chosen(&rules, "x", Some(&arguments)) <= 1);
            }
        }
    }

    #[test]
    fn what_is_possible_ends_with_the_first_rule_without_condition() {
        let rules = rules(&[("a*", Some("args.n > 1")), ("b", None), ("ab", None), ("a*", Some("args.m > 1"))]);
        let possible = |tool| rules.possible(tool).iter().map(|terms| terms.threshold.as_secs()).collect::<Vec<_>>();
        assert_eq!(possible("ab"), [1, 3]);
        assert_eq!(possible("ac"), [1, 4, 0]);
        assert_eq!(possible("b"), [2]);
        assert_eq!(possible("c"), [0]);
    }

    #[test]
    fn rules_are_shared_between_threads() {
        fn shared<T: Send + Sync + 'static>() {}
        shared::<Rules>();
    }

    proptest! {
        #[test]
        fn terms_are_always_among_the_possible(tool in "[a-c]{0,3}", arguments in r#"(\{"n": [0-9e]{1,5}\}|.{0,12})"#) {
            let rules = rules(&[("a*", Some("args.n > 50")), ("?b*", Some("args.n * 3 < 9")), ("*c", None)]);
            let terms = rules.terms(&tool, Some(&arguments));
            prop_assert!(rules.possible(&tool).iter().any(|possible| Arc::ptr_eq(possible, terms)));
        }
    }
}
