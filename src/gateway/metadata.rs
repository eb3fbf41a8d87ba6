//! The documents that say where a credential is to be had: the upstream's own, about what clients call.

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Full};

use crate::call::{Answer, Body};
use crate::upstream::{self, Arrived, Client, Exchange, Kind, Leg, Limits, Outbound, Public, headers};

use super::{Gateway, Reply, Request, WELL_KNOWN, plain};

/// The largest document that is looked into, in bytes.
const LARGEST: usize = 1 << 20;

impl Gateway {
    /// `/.well-known/oauth-…`: the upstream's own, where it is clear whose.
    pub(super) fn well_known(&self, request: &Request) -> Reply {
        let routes = &self.inner.routes;
        let route = match &routes[..] {
            [only] => Some(only),
            several => several
                .iter()
                .filter(|route| request.path.ends_with(&route.upstream.options.path))
                .max_by_key(|route| route.upstream.options.path.len()),
        };
        let Some(route) = route.filter(|_| request.method == Method::GET && request.path.starts_with(WELL_KNOWN))
        else {
            return plain(Answer::empty(StatusCode::NOT_FOUND));
        };
        let public = Public::new(&route.upstream.options).filter(|_| Public::is_metadata(&request.path));
        let path = public.as_ref().map_or(request.path.as_str().into(), |public| public.path_there(&request.path));
        let target = match &request.query {
            Some(query) => format!("{path}?{query}"),
            None => path.into_owned(),
        };
        let leg = Leg::new(route.upstream.clone(), None, &request.headers, None).at_path(&target);
        let Some(public) = public else {
            return self.through(leg, (Method::GET, Bytes::new()), ("GET", request.received));
        };
        let (client, outbound) = (leg.upstream.client.clone(), leg.request(Method::GET, Bytes::new()));
        self.relayed(published(client, outbound, public), ("GET", request.received), None)
    }
}

/// The upstream's document about what clients call; any other answer as it comes.
async fn published(client: Client, request: Outbound, public: Public) -> Result<Answer, upstream::Error> {
    let mut exchange = Exchange::open(&client, request, Limits { inline: LARGEST, max: usize::MAX }, None).await?;
    let (status, mut headers) = (exchange.status(), exchange.headers().clone());
    headers::to_client(&mut headers);
    if status == StatusCode::OK
        && exchange.kind() == Kind::Json
        && let Arrived::Body(text) = exchange.next().await?
    {
        let body = Full::new(public.document(&text)).map_err(|never| match never {});
        return Ok(Answer { status, headers, body: Body::Pass(body.boxed_unsync()) });
    }
    Ok(Answer { status, headers, body: Body::Pass(exchange.into_body()) })
}
