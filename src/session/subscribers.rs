//! Who listens, beside a session's own client, to what a server says of its lists and its resources.
//!
//! A list belongs to the server, not to the session in which its change was said: whoever came with the same credential
//! has seen the same list, and so has everybody who came with none. Others may see another one; they hear of it in a
//! session of their own. What is passed on is that there was a change, and nothing of the message: each reads the list
//! again in its own name. A resource is told of only where it was subscribed to.
//!
//! Nothing queues: of each list, and of each resource, the latest word waits for a listener that is slow.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::HeaderValue;
use tokio::sync::Notify;

use crate::jsonrpc::{Envelope, Kind};
use crate::mcp::method;
use crate::mcp::subscription::{Filter, MOST, updated_uri};
use crate::task::Fingerprint;

/// The lists that a server tells of.
const LISTS: [&str; 3] = [method::TOOLS_LIST_CHANGED, method::PROMPTS_LIST_CHANGED, method::RESOURCES_LIST_CHANGED];

/// All subscribers of one upstream.
#[derive(Debug, Default)]
pub struct Subscribers(Mutex<Vec<Arc<Subscriber>>>);

/// Where something was said.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The session, if there is one.
    pub session: Option<Fingerprint>,
    /// The credential that came with the request for it.
    pub credential: Option<&'a HeaderValue>,
}

/// One of them.
#[derive(Debug)]
struct Subscriber {
    credential: Option<HeaderValue>,
    wanted: Filter,
    state: Mutex<State>,
    came: Notify,
}

#[derive(Debug, Default)]
struct State {
    session: Option<Fingerprint>,
    /// What waits, by list or resource, in the order in which it first changed.
    order: VecDeque<String>,
    latest: HashMap<String, News>,
}

/// What a server said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A list is another now; this is the notification's method.
    List(&'static str),
    /// A resource is: the notification.
    Resource(Bytes),
}

/// A subscription, while it lives.
#[derive(Debug)]
pub struct Subscribed {
    all: Arc<Subscribers>,
    own: Arc<Subscriber>,
}

impl Subscribers {
    /// Subscribes somebody with this credential to what `wanted` asks of lists and resources.
    #[must_use]
    pub fn subscribe(self: &Arc<Self>, credential: Option<&HeaderValue>, wanted: Filter) -> Subscribed {
        let (credential, state) = (credential.cloned(), Mutex::default());
        let own = Arc::new(Subscriber { credential, wanted, state, came: Notify::new() });
        self.lock().push(own.clone());
        Subscribed { all: self.clone(), own }
    }

    /// A server said something: whom it concerns hears of it.
    pub fn told(&self, place: Place<'_>, message: &Envelope) {
        if message.kind() != Kind::Notification {
            return;
        }
        if let Some(list) = LISTS.iter().find(|list| **list == message.method()) {
            let subscribers = self.lock();
            let concerned = subscribers.iter().filter(|one| one.credential.as_ref() == place.credential);
            concerned.filter(|one| one.wants(list)).for_each(|one| one.put((*list).to_owned(), News::List(list)));
        } else if message.method() == method::RESOURCE_UPDATED
            && let (Some(session), Some(uri)) = (place.session, updated_uri(message))
        {
            let subscribers = self.lock();
            for one in subscribers.iter().filter(|one| one.is_in(session)) {
                if let Some(wanted) = one.wanted.uris.iter().find(|wanted| covers(wanted, &uri)) {
                    // A resource may have any number of parts: so many wait one by one, and no more.
                    let what = if one.waiting() < MOST { &uri } else { wanted };
                    one.put(what.clone(), News::Resource(message.text().clone()));
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Subscriber>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a resource is the one that was subscribed to, or a part of it (2025-11-25, "Subscriptions").
fn covers(wanted: &str, updated: &str) -> bool {
    updated.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || wanted.ends_with('/') || rest.starts_with('/'))
}

impl Subscriber {
    fn wants(&self, list: &str) -> bool {
        match list {
            method::TOOLS_LIST_CHANGED => self.wanted.tools,
            method::PROMPTS_LIST_CHANGED => self.wanted.prompts,
            method::RESOURCES_LIST_CHANGED => self.wanted.resources,
            _ => false,
        }
    }

    fn is_in(&self, session: Fingerprint) -> bool {
        self.lock().session == Some(session)
    }

    fn waiting(&self) -> usize {
        self.lock().latest.len()
    }

    fn put(&self, what: String, news: News) {
        let mut state = self.lock();
        if state.latest.insert(what.clone(), news).is_none() {
            state.order.push_back(what);
        }
        drop(state);
        self.came.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscribed {
    /// The session whose resources it is told of from now on.
    pub fn in_session(&self, session: Fingerprint) {
        self.own.lock().session = Some(session);
    }

    /// What comes next. Cancel safe.
    pub async fn next(&self) -> News {
        loop {
            let came = self.own.came.notified();
            {
                let mut state = self.own.lock();
                let next = state.order.pop_front().and_then(|what| state.latest.remove(&what));
                if let Some(news) = next {
                    return news;
                }
            }
            came.await;
        }
    }
}

impl Drop for Subscribed {
    fn drop(&mut self) {
        self.all.lock().retain(|one| !Arc::ptr_eq(one, &self.own));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    const HERE: Fingerprint = Fingerprint([1; 16]);
    const ELSEWHERE: Fingerprint = Fingerprint([2; 16]);

    fn said(method: &str, uri: &str) -> Envelope {
        let text = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{"uri":"{uri}"}}}}"#);
        Envelope::read(text.into()).unwrap()
    }

    fn next(subscribed: &Subscribed) -> Option<News> {
        subscribed.next().now_or_never()
    }

    #[test]
    fn a_list_concerns_whoever_came_with_the_same_credential() {
        let (all, bearer) = (Arc::<Subscribers>::default(), HeaderValue::from_static("Bearer a"));
        let tools = || Filter { tools: true, ..Filter::default() };
        let (one, two) = (all.subscribe(Some(&bearer), tools()), all.subscribe(Some(&bearer), tools()));
        let anonymous = all.subscribe(None, tools());
        let other = all.subscribe(Some(&bearer), Filter { prompts: true, ..Filter::default() });
        for _ in 0..100 {
            let place = Place { session: Some(ELSEWHERE), credential: Some(&bearer) };
            all.told(place, &said(method::TOOLS_LIST_CHANGED, ""));
        }
        for listener in [&one, &two] {
            assert_eq!(next(listener), Some(News::List(method::TOOLS_LIST_CHANGED)));
            assert_eq!(next(listener), None, "the latest word is all that waits");
        }
        assert_eq!((next(&anonymous), next(&other)), (None, None));
        drop((one, two, anonymous, other));
        assert!(all.lock().is_empty());
    }

    #[test]
    fn a_resource_is_told_of_in_its_own_session_only() {
        let all = Arc::<Subscribers>::default();
        let one = all.subscribe(None, Filter { uris: vec!["x://1".into()], ..Filter::default() });
        one.in_session(HERE);
        let tell = |session, uri| {
            all.told(Place { session: Some(session), credential: None }, &said(method::RESOURCE_UPDATED, uri));
        };
        tell(ELSEWHERE, "x://1");
        tell(HERE, "x://10");
        assert_eq!(next(&one), None);
        for uri in ["x://1", "x://1/part"] {
            tell(HERE, uri);
            assert!(
                matches!(next(&one), Some(News::Resource(text)) if text.ends_with(format!("\"{uri}\"}}}}").as_bytes()))
            );
        }
    }
}
