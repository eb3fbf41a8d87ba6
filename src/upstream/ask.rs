//! Questions of taskgate's own to an upstream, in a caller's name.

use std::time::Duration;

use bytes::Bytes;

use crate::jsonrpc::{Envelope, Id, Kind as MessageKind, Object};
use crate::mcp::method;
use crate::session::Catalog;

use super::{Arrived, Exchange, Kind, Leg, Limits};

/// The largest page that is read.
const MAX_PAGE: usize = 16 << 20;
/// How many pages of tools are read, and for how long.
const MAX_PAGES: usize = 50;
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks with the caller's headers and an id of ours; the result's text, if there is a result.
pub async fn ask(leg: &Leg, method: &str, params: &str) -> Option<Bytes> {
    let id = Id::fresh();
    let request = leg.own_request(&id, method, params);
    let limits = Limits { inline: MAX_PAGE, max: MAX_PAGE };
    let mut exchange = Exchange::open(&leg.upstream.client, request, limits, None).await.ok()?;
    if !exchange.status().is_success() {
        return None;
    }
    loop {
        let text = match exchange.next().await.ok()? {
            Arrived::Body(body) => body,
            Arrived::Event(event) => event.data.unwrap_or_default(),
            Arrived::Large => continue,
        };
        match Envelope::read(text) {
            Ok(message) if message.kind() == MessageKind::Response => return message.result(),
            _ => {}
        }
        if exchange.kind() != Kind::Events {
            return None;
        }
    }
}

/// Reads the upstream's tools from the first page on; `None` if it does not list any in time.
pub async fn list_tools(leg: &Leg) -> Option<Catalog> {
    let page = tokio::time::timeout(PATIENCE, ask(leg, method::TOOLS_LIST, "{}")).await.ok()??;
    let mut catalog = Catalog::default();
    let cursor = catalog.add_page(std::str::from_utf8(&page).unwrap_or_default());
    list_on(leg, &mut catalog, cursor).await;
    Some(catalog)
}

/// Adds the pages from `cursor` on, as far as they come in time.
pub async fn list_on(leg: &Leg, catalog: &mut Catalog, mut cursor: Option<String>) {
    let read = async {
        for _ in 1..MAX_PAGES {
            let Some(next) = cursor.take() else { break };
            let params = Object::new().raw("cursor", &next).finish();
            let Some(page) = ask(leg, method::TOOLS_LIST, &params).await else { break };
            cursor = catalog.add_page(std::str::from_utf8(&page).unwrap_or_default());
        }
    };
    let _ = tokio::time::timeout(PATIENCE, read).await;
}
