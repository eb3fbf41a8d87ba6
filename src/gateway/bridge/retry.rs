//! A stateless request that comes back with answers: to the call that asked, and to no other.

use bytes::Bytes;

use crate::call::{Error, Outgoing, outlet};
use crate::jsonrpc::{Envelope, Id};
use crate::mcp::routing::name_of;
use crate::mcp::{Params, method, rounds};
use crate::task::QuestionKey;
use crate::worker::{Purpose, Retry, State};

use super::super::caller::Caller;
use super::super::{Gateway, Reply};
use super::digest;

/// How many steps may wait for a slow client.
const STEPS: usize = 16;

impl Gateway {
    /// Brings a retry of `message` with this `requestState` to its call.
    pub(super) fn retried(&self, caller: &Caller, message: &Envelope, state: &str, id: &Id) -> Reply {
        match self.try_retry(caller, (message, id), state) {
            Ok(outgoing) => caller.reply(outgoing),
            Err(error) => self.fails(caller, id, &error),
        }
    }

    fn try_retry(&self, caller: &Caller, (message, id): (&Envelope, &Id), state: &str) -> Result<Outgoing, Error> {
        let worker = &self.inner.worker;
        let purpose = purpose(caller, message);
        let state = State::accept(&worker.seal, state, &purpose, worker.tasks.now()).ok_or_else(rejected)?;
        let answers = answers(message)?;
        let params = Params::peek(message.params());
        let deferral = match params.name() {
            Some(tool) if message.method() == method::TOOLS_CALL => {
                let terms = caller.route.rules.terms(&tool, params.arguments()).clone();
                self.deferral(caller, &tool, &params, &terms)?
            }
            _ => None,
        };
        let (steps, receiver) = outlet(STEPS, None);
        let retry = Retry {
            id: id.clone(),
            round: state.round,
            answers,
            received: caller.received,
            listener: caller.listener(),
            deferral,
            tally: self.tally(caller),
            steps,
        };
        worker.parked.bring(state.exchange, retry)?;
        Ok(Outgoing::Later(receiver))
    }
}

/// A state that was not made for the request that brings it.
pub(in crate::gateway) fn rejected() -> Error {
    Error::InvalidParams("requestState does not belong to this request, or is too old: call again without it".into())
}

/// Whose the request is, and which.
pub(in crate::gateway) fn purpose(caller: &Caller, message: &Envelope) -> Purpose {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let params = Params::peek(message.params());
    let name = name_of(message.method(), message.params()).unwrap_or_default();
    let digest = digest(&[message.method(), &name, params.arguments().unwrap_or("{}")]);
    Purpose {
        path: caller.leg.upstream.options.path.clone(),
        owner: caller.credential().map(|credential| hex(&credential.0)).unwrap_or_default(),
        digest: hex(&digest),
    }
}

/// The answers that a request brings; what is no answer to a question of ours is ignored.
pub(in crate::gateway) fn answers(message: &Envelope) -> Result<Vec<(QuestionKey, Bytes)>, Error> {
    let wrong = || Error::InvalidParams("each answer in inputResponses is an object".into());
    let mut answers = Vec::new();
    for (key, answer) in rounds::Retry::read(message.params()).responses {
        let Some(key) = QuestionKey::parse(&key) else { continue };
        if !answer.starts_with('{') {
            return Err(wrong());
        }
        answers.push((key, Bytes::copy_from_slice(answer.as_bytes())));
    }
    Ok(answers)
}
