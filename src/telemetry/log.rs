//! Log output: one format for people, one for machines.
//!
//! Lines go to stderr, so that stdout stays free for what a command prints.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

/// Environment variable that wins over the configured level.
const VARIABLE: &str = "RUST_LOG";

/// How lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// `[log]`, resolved.
#[derive(Clone, Debug)]
pub struct Options {
    /// How lines look.
    pub format: Format,
    /// Filter in the style of `RUST_LOG`.
    pub level: String,
}

/// Starts logging for the whole process; `RUST_LOG`, where set, wins over `options.level`.
///
/// # Errors
///
/// A filter that cannot be read, or logging that was started before; the text says which.
pub fn init(options: &Options) -> Result<(), String> {
    let written = std::env::var(VARIABLE).ok().filter(|level| !level.trim().is_empty());
    let filter = filter(written.as_deref(), &options.level)?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let started = match options.format {
        Format::Text => builder.with_ansi(io::stderr().is_terminal()).try_init(),
        Format::Json => builder.json().flatten_event(true).with_ansi(false).try_init(),
    };
    started.map_err(|error| format!("logging cannot be started: {error}"))?;
    super::access::start(options.format);
    Ok(())
}

fn filter(written: Option<&str>, configured: &str) -> Result<EnvFilter, String> {
    let (source, level) = written.map_or(("log.level", configured), |level| (VARIABLE, level));
    EnvFilter::builder().parse(level).map_err(|error| format!("{source} = {level:?} cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_wins_and_errors_name_their_source() {
        assert_eq!(filter(None, "info").unwrap().to_string(), "info");
        assert_eq!(filter(Some("warn,taskgate=debug"), "info").unwrap().to_string(), "taskgate=debug,warn");
        assert!(filter(None, "taskgate=loud").unwrap_err().starts_with("log.level = \"taskgate=loud\""));
        assert!(filter(Some("x=loud"), "info").unwrap_err().starts_with("RUST_LOG"));
    }
}
