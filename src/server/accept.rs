//! What a client can read: JSON, an event stream, or both.
//!
//! Quality values only exclude (`q=0`): which of two acceptable forms is sent depends on whether there is something to
//! stream. A wildcard stands for JSON alone, because a client that never named `text/event-stream` would not know what
//! to do with one (RFC 9110 §12.5.1 leaves that choice to the server).

use http::HeaderMap;
use http::header::ACCEPT;

/// What nearly every client sends: recognised without parsing, which costs more than the rest of the guards together.
const USUAL: [&[u8]; 3] = [
    b"application/json, text/event-stream",
    b"text/event-stream, application/json",
    b"application/json,text/event-stream",
];

/// What a client can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Accept {
    /// `application/json`.
    pub(super) json: bool,
    /// `text/event-stream`.
    pub(super) sse: bool,
}

/// How closely a media range names a type; a closer one overrides the others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    Any,
    Family,
    Exact,
}

impl Accept {
    /// Reads the `Accept` headers; none at all means JSON.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut lines = headers.get_all(ACCEPT).iter().peekable();
        match lines.peek() {
            None => return Self { json: true, sse: false },
            Some(line) if USUAL.contains(&line.as_bytes()) && headers.get_all(ACCEPT).iter().nth(1).is_none() => {
                return Self { json: true, sse: true };
            }
            Some(_) => {}
        }
        let (mut json, mut sse) = (None, None);
        for range in lines.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default();
            let wanted = parts.all(|part| !is_zero_quality(part));
            note(&mut json, fit(name, "application", "json"), wanted);
            note(&mut sse, fit(name, "text", "event-stream").filter(|fit| *fit > Fit::Any), wanted);
        }
        Self { json: json.is_some_and(|(_, wanted)| wanted), sse: sse.is_some_and(|(_, wanted)| wanted) }
    }

    /// Whether there is nothing that could be sent.
    pub(super) fn is_nothing(self) -> bool {
        !self.json && !self.sse
    }
}

fn note(known: &mut Option<(Fit, bool)>, fit: Option<Fit>, wanted: bool) {
    if let Some(fit) = fit
        && known.is_none_or(|(closest, _)| fit >= closest)
    {
        *known = Some((fit, wanted));
    }
}

fn fit(range: &str, family: &str, subtype: &str) -> Option<Fit> {
    let (left, right) = range.split_once('/')?;
    match (left, right) {
        ("*", "*") => Some(Fit::Any),
        (left, "*") if left.eq_ignore_ascii_case(family) => Some(Fit::Family),
        (left, right) if left.eq_ignore_ascii_case(family) && right.eq_ignore_ascii_case(subtype) => Some(Fit::Exact),
        _ => None,
    }
}

fn is_zero_quality(parameter: &str) -> bool {
    parameter.split_once('=').is_some_and(|(name, value)| {
        name.trim_end().eq_ignore_ascii_case("q") && value.trim().parse().is_ok_and(|quality: f32| quality <= 0.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(lines: &[&'static str]) -> (bool, bool) {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(ACCEPT, http::HeaderValue::from_static(line));
        }
        let accept = Accept::of(&headers);
        (accept.json, accept.sse)
    }

    #[test]
    fn reads_every_way_to_say_it() {
        let table: &[(&[&'static str], (bool, bool))] = &[
            (&[], (true, false)),
            (&["application/json, text/event-stream"], (true, true)),
            (&["application/json,text/event-stream"], (true, true)),
            (&["application/json, text/event-stream", "text/event-stream;q=0"], (true, false)),
            (&["application/json", "text/event-stream"], (true, true)),
            (&["text/event-stream,application/json"], (true, true)),
            (&["Application/JSON ; charset=utf-8 , TEXT/event-stream;q=0.1"], (true, true)),
            (&["application/json"], (true, false)),
            (&["text/event-stream"], (false, true)),
            (&["*/*"], (true, false)),
            (&["text/event-stream, */*;q=0.1"], (true, true)),
            (&["application/*, text/*"], (true, true)),
            (&["text/event-stream;q=0, */*"], (true, false)),
            (&["*/*, application/json;q=0"], (false, false)),
            (&["application/json;q=0.0, text/event-stream"], (false, true)),
            (&["text/html, image/png"], (false, false)),
            (&[""], (false, false)),
            (&["garbage"], (false, false)),
        ];
        for (lines, expected) in table {
            assert_eq!(accept(lines), *expected, "{lines:?}");
        }
    }
}
