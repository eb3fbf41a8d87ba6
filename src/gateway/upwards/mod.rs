//! A client of the handshake era in front of an upstream that only speaks the stateless one: the session is
//! taskgate's, and each request says what the session said once.
//!
//! Requests go the same way as any other: their [`Leg`](crate::upstream::Leg) puts them in the upstream's words, the
//! worker puts the answers back. What only the handshake era has is answered here.

mod hello;

use http::StatusCode;

use crate::call::{Answer, Error, Side};
use crate::jsonrpc::{Envelope, Id, Kind, entries};
use crate::mcp::{LOG_LEVELS, Params, method};
use crate::session::{Session, TooMuch};

use super::caller::Caller;
use super::{Gateway, Handling, Reply};

pub(super) use hello::is_refused;

impl Gateway {
    /// Any message in a session that the upstream knows nothing of: it would accept whoever brings a valid credential,
    /// so the session belongs to the one that began it. To others it is over, and their clients begin one of their own.
    pub(super) fn upwards(&self, caller: Caller, message: Envelope, params: &Params<'_>) -> Handling {
        if caller.session().is_some_and(|session| !session.began_with(caller.credential())) {
            return caller.reply(self.refuse(&caller, &message, &Error::SessionEnded)).into();
        }
        match (message.kind(), message.id().cloned()) {
            (Kind::Request, Some(id)) => match message.method() {
                method::PING | method::SET_LEVEL | method::SUBSCRIBE | method::UNSUBSCRIBE => {
                    self.settled(&caller, &message, &id).into()
                }
                _ => self.request(caller, message, params, &id),
            },
            (Kind::Notification, _) if message.method() == method::CANCELLED => {
                self.later(|gateway| async move { gateway.withdrawn(caller, &message).await })
            }
            (Kind::Response, _) => self.later(|gateway| async move { gateway.pass_on(caller, &message).await }),
            // An upstream of this era hears of nothing but requests.
            _ => {
                self.tally(&caller).done(Side::None);
                caller.reply(Answer::empty(StatusCode::ACCEPTED)).into()
            }
        }
    }

    /// Whether a session can only have been one of taskgate's, and is not known any more.
    pub(super) fn is_lost(&self, caller: &Caller, session: &Session) -> bool {
        session.hello().is_none() && self.knows_only_stateless(caller)
    }

    /// What the session itself is asked, whose memory is here.
    fn settled(&self, caller: &Caller, message: &Envelope, id: &Id) -> Reply {
        if let Err(error) = caller.check_version() {
            return self.fails(caller, id, &error);
        }
        match remembered(caller, message) {
            Ok(()) => self.says(caller, id, "{}".to_owned()),
            Err(error) => self.fails(caller, id, &error),
        }
    }
}

fn remembered(caller: &Caller, message: &Envelope) -> Result<(), Error> {
    let Some(repeated) = caller.leg.repeated() else { return Ok(()) };
    let params = entries(message.params().unwrap_or_default());
    let text = |name: &str| {
        let text = params.get(name).and_then(|raw| serde_json::from_str::<String>(raw).ok());
        text.ok_or_else(|| Error::InvalidParams(format!("{name} is missing: it is a string")))
    };
    match message.method() {
        method::SET_LEVEL => {
            let level = text("level")?;
            if !LOG_LEVELS.contains(&level.as_str()) {
                return Err(Error::InvalidParams(format!("level is one of {}", LOG_LEVELS.join(", "))));
            }
            repeated.set_log_level(&level);
        }
        method::SUBSCRIBE => repeated.follow(&text("uri")?).map_err(too_much)?,
        method::UNSUBSCRIBE => repeated.unfollow(&text("uri")?),
        _ => {}
    }
    Ok(())
}

fn too_much(error: TooMuch) -> Error {
    Error::InvalidParams(error.to_string())
}
