//! `taskgate check`: what a configuration means, or everything that is wrong with it.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use humantime::format_duration;

use super::source;
use crate::config::{Config, Overrides, Upstream};
use crate::policy::{Mode, Terms, WithoutTasks};
use crate::store;

/// What to check.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The file; without it and without --upstream, taskgate.toml in this directory
    #[arg(value_name = "FILE", env = "TASKGATE_CONFIG", value_parser = source::maybe_empty())]
    file: Option<PathBuf>,
    /// The same, as for `run`
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
}

/// Prints a summary and status 0, or the problems and status 78.
pub(super) fn run(args: Args) -> ExitCode {
    let Args { file, config, overrides } = args;
    match source::read(config.or(file).as_deref(), &overrides) {
        Ok(config) => {
            print!("{}", summary(&config));
            ExitCode::SUCCESS
        }
        Err(problems) => source::report(&problems),
    }
}

/// What is in effect, in a few lines, without secrets.
fn summary(config: &Config) -> String {
    let mut lines = vec!["ok".to_owned(), format!("listen    {}", config.server.listen)];
    lines.push(match &config.admin {
        Some(admin) => format!("admin     {}", admin.listen),
        None => "admin     off".to_owned(),
    });
    lines.push(match &config.store.kind {
        store::Kind::Memory => "store     memory".to_owned(),
        store::Kind::Embedded { path } => format!("store     {}", path.display()),
    });
    config.upstreams.iter().for_each(|upstream| lines.extend(described(upstream)));
    lines.extend(config.warnings.iter().map(|warning| format!("warning: {warning}")));
    lines.join("\n") + "\n"
}

fn described(upstream: &Upstream) -> Vec<String> {
    let options = &upstream.options;
    let host = options.url.authority().map_or("", |authority| authority.as_str());
    let scheme = options.url.scheme_str().unwrap_or_default();
    let mut lines =
        vec![format!("upstream  {}: {} -> {scheme}://{host}{}", options.name, options.path, options.url.path())];
    let rules = upstream.rules.iter().map(|(selector, terms)| (selector.to_string(), terms));
    let all = rules.chain([("everything else".to_owned(), &**upstream.rules.defaults())]);
    lines.extend(all.map(|(tools, terms)| format!("  {tools}: {}", in_words(terms))));
    lines
}

/// `auto, deferred after 4s, kept 1h`.
fn in_words(terms: &Terms) -> String {
    let mut words = match terms.mode {
        Mode::Sync => return "sync, always held".to_owned(),
        Mode::Auto => format!("auto, deferred after {}", format_duration(terms.threshold)),
        Mode::Async => "async, deferred at once".to_owned(),
    };
    // Writing to a string cannot fail.
    let _ = write!(words, ", kept {}", format_duration(terms.ttl));
    match terms.without_tasks {
        WithoutTasks::Job => {}
        WithoutTasks::Hold => words.push_str(", held for clients without tasks"),
        WithoutTasks::Refuse => words.push_str(", refused to clients without tasks"),
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_shows_rules_and_warnings_but_no_secret() {
        let text = r#"
            [store]
            kind = "memory"
            [[upstream]]
            name = "solver"
            url = "http://h:1/mcp?key=hunter2"
            [[upstream.rule]]
            tool = ["get_*", "list_*"]
            mode = "sync"
            [[upstream.rule]]
            tool = "run"
            when = "args.n > 1"
            mode = "async"
            ttl = "6h"
            without_tasks = "refuse"
        "#;
        let config = Config::parse(text, &Overrides::default()).unwrap();
        let expected = [
            "ok",
            "listen    127.0.0.1:8080",
            "admin     127.0.0.1:9090",
            "store     memory",
            "upstream  solver: /mcp -> http://h:1/mcp",
            "  get_*, list_*: sync, always held",
            "  run when args.n > 1: async, deferred at once, kept 6h, refused to clients without tasks",
            "  everything else: auto, deferred after 4s, kept 1h",
        ];
        let summary = summary(&config);
        let lines: Vec<_> = summary.lines().collect();
        assert_eq!(lines[..8], expected);
        assert!(lines.len() == 9 && lines[8].starts_with("warning: line 3: store.kind: "), "{summary}");
    }
}
