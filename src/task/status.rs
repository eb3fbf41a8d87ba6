//! What has become of a task: a status carries its data.

use std::sync::Arc;

use crate::jsonrpc::{ErrorObject, entries};

use super::{Question, Timestamp};

/// The state of a task.
#[derive(Clone, Debug, PartialEq)]
pub enum Status {
    /// The upstream is at it.
    Working {
        /// What it last said about how far it is.
        note: Option<Note>,
    },
    /// The upstream waits for answers.
    InputRequired {
        /// What it last said about how far it is.
        note: Option<Note>,
        /// What it asked and nobody answered yet, oldest first; never empty.
        questions: Vec<Question>,
    },
    /// The upstream answered with a result, which the store keeps.
    Completed {
        /// When.
        ended: Timestamp,
        /// Length of the result's text in bytes.
        bytes: u64,
        /// If the result says `isError: true`: the beginning of its text.
        tool_error: Option<Arc<str>>,
    },
    /// There is no result and there will be none.
    Failed {
        /// When.
        ended: Timestamp,
        /// Why.
        failure: Failure,
    },
    /// Somebody who may cancelled it first.
    Cancelled {
        /// When.
        ended: Timestamp,
    },
}

/// What the upstream says about how far it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Note {
    /// How much is done, as JSON number text.
    pub progress: String,
    /// Of how much, as JSON number text.
    pub total: Option<String>,
    /// In words.
    pub message: Option<String>,
}

/// Why a task failed.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// The upstream answered with this JSON-RPC error.
    Upstream(ErrorObject),
    /// The upstream's answer never came, or could not be kept.
    Lost {
        /// Which of the known ways.
        reason: Reason,
        /// What happened and what to do, in a sentence or two.
        text: String,
    },
}

/// The reasons that taskgate gives in errors of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Nothing could be sent to the upstream.
    UpstreamUnreachable,
    /// The upstream's answer is no answer.
    UpstreamProtocol,
    /// It may have run; nobody knows.
    OutcomeUnknown,
    /// It ran longer than it may.
    MaxRuntime,
    /// The answer is larger than what is kept.
    TooLarge,
    /// No further task may be made now.
    TooManyTasks,
    /// The process is going down.
    ShuttingDown,
    /// Tasks cannot be read or written now.
    StoreUnavailable,
    /// Nobody answered the upstream's question in time.
    InputTimeout,
}

impl Reason {
    /// All of them.
    const ALL: [Self; 9] = [
        Self::UpstreamUnreachable,
        Self::UpstreamProtocol,
        Self::OutcomeUnknown,
        Self::MaxRuntime,
        Self::TooLarge,
        Self::TooManyTasks,
        Self::ShuttingDown,
        Self::StoreUnavailable,
        Self::InputTimeout,
    ];

    /// The reason with this word.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.word() == word)
    }

    /// The word on the wire.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::UpstreamUnreachable => "upstream_unreachable",
            Self::UpstreamProtocol => "upstream_protocol",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::MaxRuntime => "max_runtime",
            Self::TooLarge => "too_large",
            Self::TooManyTasks => "too_many_tasks",
            Self::ShuttingDown => "shutting_down",
            Self::StoreUnavailable => "store_unavailable",
            Self::InputTimeout => "input_timeout",
        }
    }
}

impl Status {
    /// When the work ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<Timestamp> {
        match self {
            Self::Working { .. } | Self::InputRequired { .. } => None,
            Self::Completed { ended, .. } | Self::Failed { ended, .. } | Self::Cancelled { ended } => Some(*ended),
        }
    }

    /// What the upstream last said about how far it is, while it is at it.
    #[must_use]
    pub fn note(&self) -> Option<&Note> {
        match self {
            Self::Working { note } | Self::InputRequired { note, .. } => note.as_ref(),
            Self::Completed { .. } | Self::Failed { .. } | Self::Cancelled { .. } => None,
        }
    }

    /// What it asked and nobody answered yet.
    #[must_use]
    pub fn questions(&self) -> &[Question] {
        match self {
            Self::InputRequired { questions, .. } => questions,
            Self::Working { .. } | Self::Completed { .. } | Self::Failed { .. } | Self::Cancelled { .. } => &[],
        }
    }

    /// One word for metrics and logs.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Working { .. } => "working",
            Self::InputRequired { .. } => "input_required",
            Self::Completed { tool_error: None, .. } => "completed",
            Self::Completed { tool_error: Some(_), .. } => "tool_error",
            Self::Failed { failure: Failure::Upstream(_), .. } => "error",
            Self::Failed { failure: Failure::Lost { .. }, .. } => "lost",
            Self::Cancelled { .. } => "cancelled",
        }
    }
}

impl Note {
    /// Reads the parameters of a progress notification; `None` if they tell nothing.
    #[must_use]
    pub fn read(params: Option<&str>) -> Option<Self> {
        let params = entries(params?);
        let number = |name: &str| {
            let text = params.get(name).copied()?;
            text.starts_with(|first: char| first.is_ascii_digit() || first == '-').then(|| text.to_owned())
        };
        let message = params.get("message").and_then(|text| serde_json::from_str::<String>(text).ok());
        Some(Self { progress: number("progress")?, total: number("total"), message })
    }

    /// One line for people: "40% (4 of 10): meshing".
    #[must_use]
    pub fn line(&self) -> String {
        let mut line = match (&self.total, self.percent()) {
            (Some(total), Some(percent)) => format!("{percent:.0}% ({} of {total})", self.progress),
            _ => self.progress.clone(),
        };
        if let Some(message) = &self.message {
            line.push_str(": ");
            line.push_str(message);
        }
        line
    }

    fn percent(&self) -> Option<f64> {
        let total = self.total.as_ref()?.parse::<f64>().ok().filter(|total| *total > 0.0)?;
        Some((self.progress.parse::<f64>().ok()? / total * 100.0).clamp(0.0, 100.0))
    }
}
