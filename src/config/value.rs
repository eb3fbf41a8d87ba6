//! Readers of single values: each knows one kind of value and says what it expected instead of another.

use std::fs::File;
use std::io::Read as _;
use std::net::SocketAddr;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::problem::{Wrong, nearest};

/// A value and its place.
pub(super) type Value<'a> = Spanned<DeValue<'a>>;

/// What a reader makes of a value.
pub(super) type Read<T> = Result<T, Vec<Wrong>>;

/// Longest duration that is believed.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Bytes read of a file with a secret at most.
const SECRET_FILE: u64 = 64 * 1024;

/// The kind of a value, with its article.
pub(super) fn kind(value: &Value<'_>) -> &'static str {
    match value.get_ref() {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

fn misfit(value: &Value<'_>, expected: impl Into<String>) -> Wrong {
    Wrong::new(format!("is {}", kind(value))).expected(expected)
}

fn borrowed<'v>(value: &'v Value<'_>, expected: &str) -> Result<&'v str, Wrong> {
    value.get_ref().as_str().ok_or_else(|| misfit(value, expected))
}

/// A string.
pub(super) fn text(value: &Value<'_>) -> Read<String> {
    Ok(borrowed(value, "a string")?.to_owned())
}

/// A string and its place.
pub(super) fn placed(value: &Value<'_>) -> Read<(String, Range<usize>)> {
    Ok((text(value)?, value.span()))
}

/// `true` or `false`.
pub(super) fn boolean(value: &Value<'_>) -> Read<bool> {
    Ok(value.get_ref().as_bool().ok_or_else(|| misfit(value, "true or false"))?)
}

/// A whole number from 1 to a billion.
pub(super) fn count(value: &Value<'_>) -> Read<usize> {
    const EXPECTED: &str = "a whole number from 1 to 1000000000";
    let integer = value.get_ref().as_integer().ok_or_else(|| misfit(value, EXPECTED))?;
    let digits = integer.as_str().replace('_', "");
    match usize::from_str_radix(&digits, integer.radix()) {
        Ok(number) if (1..=1_000_000_000).contains(&number) => Ok(number),
        Ok(_) | Err(_) => Err(Wrong::new(format!("is {integer}")).expected(EXPECTED).into()),
    }
}

/// One of a few words.
pub(super) fn choice<T: Copy>(options: &[(&'static str, T)]) -> impl Fn(&Value<'_>) -> Read<T> {
    move |value| {
        let words: Vec<&str> = options.iter().map(|(word, _)| *word).collect();
        let expected = words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ");
        let written = borrowed(value, &expected)?;
        if let Some((_, option)) = options.iter().find(|(word, _)| *word == written) {
            return Ok(*option);
        }
        let wrong = Wrong::new(format!("is {written:?}")).expected(expected);
        Err(match nearest(written, words) {
            Some(near) => wrong.hint(format!("did you mean \"{near}\"?")),
            None => wrong,
        }
        .into())
    }
}

/// A list; each wrong item is reported.
pub(super) fn list<T>(item: impl Fn(&Value<'_>) -> Read<T>) -> impl Fn(&Value<'_>) -> Read<Vec<T>> {
    move |value| {
        let array = value.get_ref().as_array().ok_or_else(|| misfit(value, "an array"))?;
        let (mut items, mut wrongs) = (Vec::new(), Vec::new());
        for value in array {
            match item(value) {
                Ok(item) => items.push(item),
                Err(found) => wrongs.extend(found.into_iter().map(|wrong| match wrong.at {
                    Some(_) => wrong,
                    None => wrong.at(value.span()),
                })),
            }
        }
        if wrongs.is_empty() { Ok(items) } else { Err(wrongs) }
    }
}

/// A duration longer than zero.
pub(super) fn duration(value: &Value<'_>) -> Read<Duration> {
    duration_in(Duration::from_nanos(1)..=YEAR)(value)
}

/// A duration within bounds.
pub(super) fn duration_in(bounds: RangeInclusive<Duration>) -> impl Fn(&Value<'_>) -> Read<Duration> {
    const EXPECTED: &str = "a duration such as \"250ms\", \"10s\", \"5m\" or \"1h\"";
    move |value| {
        let written = borrowed(value, EXPECTED)?;
        let units = written.split(|c: char| !c.is_alphabetic()).filter(|unit| !unit.is_empty());
        let unknown = units.clone().find(|unit| !matches!(*unit, "ms" | "s" | "m" | "h" | "d"));
        if let Some(unit) = unknown {
            let wrong = Wrong::new(format!("is {written:?}, and {unit:?} is no unit"));
            return Err(wrong.expected(EXPECTED).hint("the units are ms, s, m (minutes), h and d").into());
        }
        let parsed = humantime::parse_duration(written);
        let duration = parsed.map_err(|_| Wrong::new(format!("is {written:?}")).expected(EXPECTED))?;
        if bounds.contains(&duration) {
            return Ok(duration);
        }
        let expected = if duration < *bounds.start() && *bounds.start() == Duration::from_nanos(1) {
            "more than zero".to_owned()
        } else if duration < *bounds.start() {
            format!("at least {}", humantime::format_duration(*bounds.start()))
        } else if *bounds.end() == YEAR {
            "at most 365d".to_owned()
        } else {
            format!("at most {}", humantime::format_duration(*bounds.end()))
        };
        Err(Wrong::new(format!("is {written:?}")).expected(expected).into())
    }
}

/// From nothing to a duration.
pub(super) fn up_to(end: Duration) -> RangeInclusive<Duration> {
    Duration::ZERO..=end.min(YEAR)
}

/// Bytes, from 1 to 1 TiB.
pub(super) fn size(value: &Value<'_>) -> Read<u64> {
    const EXPECTED: &str = "a size with its unit, such as \"512KiB\" or \"32MiB\"";
    const UNITS: [(&str, u64); 8] = [
        ("B", 1),
        ("KB", 1000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
    ];
    let written = borrowed(value, EXPECTED)?;
    let (digits, unit) = written.split_at(written.find(|c: char| !c.is_ascii_digit()).unwrap_or(written.len()));
    let wrong = || Wrong::new(format!("is {written:?}")).expected(EXPECTED);
    let Some((_, factor)) = UNITS.iter().find(|(name, _)| *name == unit.trim_start()) else {
        let units = UNITS.map(|(name, _)| name).join(", ");
        return Err(wrong().hint(format!("a whole number and one of {units}")).into());
    };
    match digits.parse::<u64>().ok().and_then(|number| number.checked_mul(*factor)) {
        Some(bytes) if (1..=1 << 40).contains(&bytes) => Ok(bytes),
        Some(_) | None => Err(wrong().hint("from 1B to 1TiB").into()),
    }
}

/// An address and a port.
pub(super) fn address(value: &Value<'_>) -> Read<SocketAddr> {
    const EXPECTED: &str = "an IP address and a port, such as \"127.0.0.1:8080\"";
    let written = borrowed(value, EXPECTED)?;
    Ok(written.parse().map_err(|_| {
        let wrong = Wrong::new(format!("is {written:?}")).expected(EXPECTED);
        match written.rsplit_once(':') {
            Some(("", port)) => wrong.hint(format!("write \"0.0.0.0:{port}\" for every interface")),
            Some(("localhost", port)) => wrong.hint(format!("write \"127.0.0.1:{port}\"")),
            Some(_) | None => wrong,
        }
    })?)
}

/// A string, or where to find it: `{ env = "NAME" }`, `{ file = "/path" }`. No message repeats it.
pub(super) fn secret(value: &Value<'_>) -> Read<String> {
    const EXPECTED: &str = "a string, { env = \"NAME\" } or { file = \"/path\" }";
    if let Some(text) = value.get_ref().as_str() {
        return Ok(text.to_owned());
    }
    let table = value.get_ref().as_table().ok_or_else(|| misfit(value, EXPECTED))?;
    let entries: Vec<_> = table.iter().map(|(key, value)| (key.get_ref().as_ref(), value.get_ref().as_str())).collect();
    match entries[..] {
        [("env", Some(name))] => Ok(from_environment(name)?),
        [("file", Some(path))] => Ok(from_file(path)?),
        _ => Err(Wrong::new("is another table").expected(EXPECTED).into()),
    }
}

fn from_environment(name: &str) -> Result<String, Wrong> {
    let usable = !name.is_empty() && !name.contains(['=', '\0']);
    match usable.then(|| std::env::var(name)) {
        Some(Ok(text)) if !text.is_empty() => Ok(text),
        Some(Ok(_)) => Err(Wrong::new(format!("the environment variable {name:?} is empty"))),
        Some(Err(std::env::VarError::NotUnicode(_))) => {
            Err(Wrong::new(format!("the environment variable {name:?} is not UTF-8")))
        }
        Some(Err(std::env::VarError::NotPresent)) | None => {
            Err(Wrong::new(format!("the environment variable {name:?} is not set")))
        }
    }
}

fn from_file(path: &str) -> Result<String, Wrong> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(SECRET_FILE).read_to_string(&mut text));
    read.map_err(|error| Wrong::new(format!("{path:?} cannot be read: {error}")))?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() { Err(Wrong::new(format!("{path:?} is empty"))) } else { Ok(text.to_owned()) }
}
