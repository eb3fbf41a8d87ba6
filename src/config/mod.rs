//! The configuration: what was written, checked, as the options of each room.
//!
//! A file is read in one pass by readers that note every problem and go on ([`Problems`]); what comes out is complete,
//! so that no room knows of files, defaults or precedence. That order is: flag, environment variable, file, default.

mod document;
mod overrides;
mod problem;
mod server;
mod tasks;
mod upstreams;
mod value;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use overrides::Overrides;
pub use problem::{Problem, Problems, Wrong};
pub use server::MEMORY;

use document::{Document, Section};

use crate::{admin, gateway, policy, session, store, telemetry, upstream, worker};

/// Everything that the rooms need to know.
pub struct Config {
    /// The listener that clients use.
    pub server: crate::server::Options,
    /// How long running work may take to end after the first signal.
    pub drain_timeout: Duration,
    /// What seals and hashes with a key; the store's own when absent.
    pub secret: Option<Vec<u8>>,
    /// Bounds on sessions.
    pub session: session::Options,
    /// The admin listener, unless it is off.
    pub admin: Option<admin::Options>,
    /// Log output.
    pub log: telemetry::log::Options,
    /// Where tasks are kept.
    pub store: store::Options,
    /// Bounds on background work.
    pub worker: worker::Options,
    /// How calls are answered.
    pub gateway: gateway::Options,
    /// At least one, names and paths distinct.
    pub upstreams: Vec<Upstream>,
    /// What is allowed but probably not meant, one sentence each.
    pub warnings: Vec<String>,
}

/// One server to stand in front of.
#[derive(Debug)]
pub struct Upstream {
    /// Where it is and how it is reached.
    pub options: upstream::Options,
    /// What its calls get.
    pub rules: policy::Rules,
}

/// Without the secret, the admin token and the URLs, which may hold one.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let upstreams: Vec<_> = self.upstreams.iter().map(|upstream| &upstream.options.name).collect();
        let mut all = f.debug_struct("Config");
        all.field("server", &self.server).field("admin", &self.admin.as_ref().map(|admin| admin.listen));
        all.field("upstreams", &upstreams).field("warnings", &self.warnings).finish_non_exhaustive()
    }
}

impl Config {
    /// The configuration in a text.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it and with the overrides.
    pub fn parse(text: &str, overrides: &Overrides) -> Result<Self, Problems> {
        Self::read(text, None, overrides)
    }

    /// The configuration in a file.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with it and with the overrides; or that it cannot be read.
    pub fn load(path: impl AsRef<Path>, overrides: &Overrides) -> Result<Self, Problems> {
        let (file, text) = text_of(path.as_ref())?;
        Self::read(&text, Some(&file), overrides)
    }

    /// Where tasks are kept, by the same rules as a whole configuration, of which only `[store]` is looked at: what else
    /// is missing or wrong does not hide the tasks. Without a file, by the defaults and the overrides.
    ///
    /// # Errors
    ///
    /// What is wrong with `[store]` and its flag; or that the file cannot be read or is not TOML.
    pub fn store(path: Option<&Path>, overrides: &Overrides) -> Result<store::Kind, Problems> {
        let (file, text) = path.map(text_of).transpose()?.unzip();
        let text = text.unwrap_or_default();
        let document = Document::new(&text, file.as_deref());
        let table = document.table();
        let kind = server::store(Section::root(&document, &table).section("store"), overrides);
        document.finish().1.map_or(Ok(kind), Err)
    }

    /// The configuration without a file: the defaults and the overrides.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the overrides, the lack of an upstream among it.
    pub fn from_flags(overrides: &Overrides) -> Result<Self, Problems> {
        Self::read("", None, overrides)
    }

    fn read(text: &str, file: Option<&str>, overrides: &Overrides) -> Result<Self, Problems> {
        let document = Document::new(text, file);
        let table = document.table();
        let config = Self::resolve(Section::root(&document, &table), overrides);
        let (warnings, problems) = document.finish();
        problems.map_or(Ok(Self { warnings, ..config }), Err)
    }

    fn resolve(root: Section<'_>, overrides: &Overrides) -> Self {
        let server = server::server(root.section("server"), overrides);
        let admin = server::admin(root.section("admin"), overrides, server.options.listen);
        let log = server::log(root.section("log"), overrides);
        let store = server::store(root.section("store"), overrides);
        let tasks = tasks::tasks(root.section("tasks"), overrides, store);
        let keepalive = server.options.keepalive;
        let gateway = tasks::gateway(root.section("jobs"), root.section("dialect"), &tasks, keepalive);
        let public_url = server.options.public_url.as_ref();
        let upstreams = upstreams::upstreams(&root, overrides, &Arc::new(tasks.terms), public_url);
        root.not_yet(&["auth"]);
        root.done();
        Self {
            server: server.options,
            drain_timeout: server.drain_timeout,
            secret: server.secret,
            session: server.session,
            admin,
            log,
            store: tasks.store,
            worker: tasks.worker,
            gateway,
            upstreams,
            warnings: Vec::new(),
        }
    }
}

/// The name of a file and what is in it.
fn text_of(path: &Path) -> Result<(String, String), Problems> {
    let file = path.display().to_string();
    let (line, wrong) = match std::fs::read(path).map(String::from_utf8) {
        Ok(Ok(text)) => return Ok((file, text)),
        Ok(Err(error)) => {
            let (good, rest) = error.as_bytes().split_at(error.utf8_error().valid_up_to());
            let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
            let byte = rest.first().copied().unwrap_or_default();
            let wrong = Wrong::new(format!("is not UTF-8: a byte is 0x{byte:02X}"));
            (Some(line), wrong.expected("a text file in UTF-8").hint("save the file as UTF-8"))
        }
        Err(error) => {
            let wrong = Wrong::new(format!("cannot be read: {error}"));
            (None, wrong.hint("`taskgate init` writes one to start from; --upstream URL needs none"))
        }
    };
    Err(Problems(vec![Problem { file: Some(file), line, key: String::new(), wrong }]))
}

#[cfg(test)]
mod tests;
