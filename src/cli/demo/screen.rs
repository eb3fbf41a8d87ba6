//! What the demo shows: numbered steps, what was sent, what came back, and checks that hold or do not.
//!
//! A reader that goes away (`taskgate demo | head`) is no error: the rest is simply not shown.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

/// Most that is shown of one message, in characters.
const WIDTH: usize = 150;

/// Whether a claim held; if not, what was there instead.
pub(super) type Verdict = Result<(), String>;

/// Where the demo writes, and how its steps went.
pub(super) struct Screen {
    out: Box<dyn Write + Send>,
    paint: Paint,
    gone: bool,
    steps: usize,
    failed: usize,
}

/// Colours for a terminal, none for anything else.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Paint {
    Colour,
    Plain,
}

impl Screen {
    /// Writes to standard output, in colour if that is a terminal and `NO_COLOR` is not set.
    pub(super) fn stdout() -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let paint = if io::stdout().is_terminal() && !no_color { Paint::Colour } else { Paint::Plain };
        Self::new(Box::new(io::stdout()), paint)
    }

    /// Writes to `out`.
    pub(super) fn new(out: Box<dyn Write + Send>, paint: Paint) -> Self {
        Self { out, paint, gone: false, steps: 0, failed: 0 }
    }

    /// How many steps were begun.
    pub(super) fn steps(&self) -> usize {
        self.steps
    }

    /// How many checks did not hold.
    pub(super) fn failed(&self) -> usize {
        self.failed
    }

    /// Whether nobody reads any more.
    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// One line as it is.
    pub(super) fn line(&mut self, text: &str) {
        if !self.gone {
            self.gone = writeln!(self.out, "{text}").and_then(|()| self.out.flush()).is_err();
        }
    }

    /// Begins the next step.
    pub(super) fn step(&mut self, title: &str) {
        self.steps += 1;
        let title = self.painted("1", &format!("{}. {title}", self.steps));
        self.line(&format!("\n{title}"));
    }

    /// What is sent.
    pub(super) fn sent(&mut self, what: &str) {
        self.line(&format!("   → {}", short(what)));
    }

    /// What came back, and after how long.
    pub(super) fn got(&mut self, what: &str, took: Duration) {
        let time = self.painted("2", &format!("({} ms)", took.as_millis()));
        self.line(&format!("   ← {} {time}", short(what)));
    }

    /// Something seen on the side.
    pub(super) fn note(&mut self, what: &str) {
        self.line(&format!("     {}", short(what)));
    }

    /// A claim and whether it holds.
    pub(super) fn check(&mut self, claim: &str, verdict: Verdict) {
        match verdict {
            Ok(()) => {
                let mark = self.painted("32", "✓");
                self.line(&format!("   {mark} {claim}"));
            }
            Err(instead) => {
                self.failed += 1;
                let line = self.painted("31", &format!("✗ {claim}: {instead}"));
                self.line(&format!("   {line}"));
            }
        }
    }

    fn painted(&self, code: &str, text: &str) -> String {
        match self.paint {
            Paint::Colour => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            Paint::Plain => text.to_owned(),
        }
    }
}

/// `got` must be `want`.
pub(super) fn equal<T: PartialEq + std::fmt::Debug + ?Sized>(got: &T, want: &T) -> Verdict {
    if got == want { Ok(()) } else { Err(format!("got {got:?}, expected {want:?}")) }
}

/// `holds` must be true; else `instead` says what was there.
pub(super) fn that(holds: bool, instead: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(instead()) }
}

/// `took` must lie between the two.
pub(super) fn between(took: Duration, least: Duration, most: Duration) -> Verdict {
    that((least..=most).contains(&took), || {
        format!("took {} ms, expected {} to {} ms", took.as_millis(), least.as_millis(), most.as_millis())
    })
}

fn short(text: &str) -> String {
    match text.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn plain_text_has_no_escapes() {
        let page = Page::default();
        let mut screen = Screen::new(Box::new(page.clone()), Paint::Plain);
        screen.step("A step");
        screen.sent(&"é".repeat(WIDTH + 5));
        screen.got("{}", Duration::from_millis(12));
        screen.check("one is one", equal(&1, &1));
        screen.check("one is two", equal(&1, &2));
        let text = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
        assert!(!text.contains('\u{1b}'), "{text}");
        assert!(text.contains("1. A step") && text.contains("← {} (12 ms)") && text.contains('…'), "{text}");
        assert!(text.contains("✓ one is one") && text.contains("✗ one is two: got 1, expected 2"), "{text}");
        assert_eq!((screen.steps(), screen.failed()), (1, 1));
    }

    #[test]
    fn a_reader_that_leaves_is_noticed_and_checks_still_count() {
        let mut screen = Screen::new(Box::new(Closed), Paint::Colour);
        screen.step("A step");
        assert!(screen.is_gone());
        screen.check("no", between(Duration::from_secs(3), Duration::ZERO, Duration::from_secs(2)));
        assert_eq!(screen.failed(), 1);
    }
}
