//! The settings that a flag or an environment variable may give; either goes before the file.
//!
//! They are text here: what they mean is decided by the readers that read the file, so that a wrong flag and a wrong
//! line are reported together.

/// Flags that stand over the file, shared by the subcommands that read a configuration.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Overrides {
    /// URL of the MCP server to stand in front of; without a file it is served on the path /mcp
    #[arg(long, value_name = "URL", env = "TASKGATE_UPSTREAM", hide_env_values = true)]
    pub upstream: Option<String>,
    /// Address to listen on [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS", env = "TASKGATE_LISTEN")]
    pub listen: Option<String>,
    /// How long a call is waited for before it is deferred [default: 4s]
    #[arg(long, value_name = "DURATION", env = "TASKGATE_THRESHOLD")]
    pub threshold: Option<String>,
    /// Where tasks are kept: a file, or memory [default: taskgate.db]
    #[arg(long, value_name = "STORE", env = "TASKGATE_STORE", hide_env_values = true)]
    pub store: Option<String>,
    /// Address of health, readiness and metrics; "" for none [default: 127.0.0.1:9090]
    #[arg(long, value_name = "ADDRESS", env = "TASKGATE_ADMIN_LISTEN")]
    pub admin_listen: Option<String>,
    /// Form of the log: text or json
    #[arg(long, value_name = "FORMAT", env = "TASKGATE_LOG_FORMAT")]
    pub log_format: Option<String>,
}

/// One of them, with the name it is reported under.
#[derive(Clone, Copy)]
pub(super) struct Flag<'a> {
    pub(super) name: &'static str,
    pub(super) value: Option<&'a str>,
}

impl Overrides {
    pub(super) fn upstream_flag(&self) -> Flag<'_> {
        given("--upstream (TASKGATE_UPSTREAM)", self.upstream.as_deref())
    }

    pub(super) fn listen_flag(&self) -> Flag<'_> {
        given("--listen (TASKGATE_LISTEN)", self.listen.as_deref())
    }

    pub(super) fn threshold_flag(&self) -> Flag<'_> {
        given("--threshold (TASKGATE_THRESHOLD)", self.threshold.as_deref())
    }

    pub(super) fn store_flag(&self) -> Flag<'_> {
        given("--store (TASKGATE_STORE)", self.store.as_deref())
    }

    /// Empty text has a meaning here: no admin listener.
    pub(super) fn admin_listen_flag(&self) -> Flag<'_> {
        Flag { name: "--admin-listen (TASKGATE_ADMIN_LISTEN)", value: self.admin_listen.as_deref() }
    }

    pub(super) fn log_format_flag(&self) -> Flag<'_> {
        given("--log-format (TASKGATE_LOG_FORMAT)", self.log_format.as_deref())
    }
}

/// An empty variable counts as none: that is how compose files leave one out.
fn given<'a>(name: &'static str, value: Option<&'a str>) -> Flag<'a> {
    Flag { name, value: value.filter(|text| !text.is_empty()) }
}
