//! Fields of text log lines, in the form of logfmt: values with spaces are quoted.

use std::{fmt, ops::RangeInclusive};

use tracing::field::{Field, Visit};
use tracing_subscriber::{
    field::RecordFields,
    fmt::{FormatFields, format::Writer},
};

/// Writes the message as it is, and each other field as `name=value`. Quotes a value that a logfmt parser could not
/// read otherwise. Escapes control characters, so that an event is one line, whatever an upstream has answered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TextFields;

struct FieldWriter<'w> {
    writer: Writer<'w>,
    is_first: bool,
    result: fmt::Result,
}

// === impl TextFields ===

impl<'w> FormatFields<'w> for TextFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut visitor = FieldWriter { writer, is_first: true, result: Ok(()) };
        fields.record(&mut visitor);
        visitor.result
    }
}

// === impl FieldWriter ===

impl FieldWriter<'_> {
    fn write(&mut self, name: &str, value: &str) -> fmt::Result {
        if !std::mem::take(&mut self.is_first) {
            self.writer.write_char(' ')?;
        }
        if name == "message" {
            return value.chars().try_for_each(|char| self.write_shown(char));
        }
        let name = name.strip_prefix("r#").unwrap_or(name);
        if self.writer.has_ansi_escapes() {
            write!(self.writer, "\x1b[3m{name}\x1b[0m\x1b[2m=\x1b[0m")?;
        } else {
            write!(self.writer, "{name}=")?;
        }
        let is_bare =
            |char: char| !char.is_whitespace() && is_shown(char) && !['"', '=', '\\'].contains(&char);
        if !value.is_empty() && value.chars().all(is_bare) {
            return self.writer.write_str(value);
        }
        self.writer.write_char('"')?;
        for char in value.chars() {
            match char {
                '"' | '\\' => write!(self.writer, "\\{char}")?,
                '\n' => self.writer.write_str("\\n")?,
                char => self.write_shown(char)?,
            }
        }
        self.writer.write_char('"')
    }

    /// Writes a character, escaped as in JSON if a terminal would not show it.
    fn write_shown(&mut self, char: char) -> fmt::Result {
        if is_shown(char) {
            return self.writer.write_char(char);
        }
        let mut units = [0; 2];
        char.encode_utf16(&mut units).iter().try_for_each(|unit| write!(self.writer, "\\u{unit:04x}"))
    }
}

/// Returns whether a terminal shows this character. It does not show control characters, and characters that change the
/// direction of the text or have no width could make a value look like another one.
fn is_shown(char: char) -> bool {
    const UNSHOWN: [RangeInclusive<char>; 5] = [
        '\u{200b}'..='\u{200f}',
        '\u{2028}'..='\u{202e}',
        '\u{2060}'..='\u{206f}',
        '\u{feff}'..='\u{feff}',
        '\u{e0000}'..='\u{e007f}',
    ];
    !char.is_control() && !UNSHOWN.iter().any(|range| range.contains(&char))
}

impl Visit for FieldWriter<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if self.result.is_ok() {
            self.result = self.write(field.name(), value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use tracing::{info, info_span, subscriber};
    use tracing_subscriber::{fmt, layer::SubscriberExt, registry};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns the text that `log` logs.
    fn logged(log: impl FnOnce()) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let layer = fmt::layer()
            .fmt_fields(TextFields)
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .with_target(false)
            .without_time();
        subscriber::with_default(registry().with(layer), log);
        String::from_utf8(lines.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn values_are_quoted_where_a_parser_needs_it() {
        let said = logged(|| {
            info!(
                tier = "disk",
                error = %"No space left",
                url = "http://127.0.0.1:8545/…",
                equal = "a=b",
                quote = "say \"no\"",
                empty = "",
                count = 3,
                absent = None::<u64>,
                list = ?["a"],
                "write failed; continuing"
            );
        });
        assert_eq!(
            said,
            " INFO write failed; continuing tier=disk error=\"No space left\" url=http://127.0.0.1:8545/… \
             equal=\"a=b\" quote=\"say \\\"no\\\"\" empty=\"\" count=3 list=\"[\\\"a\\\"]\"\n"
        );
    }

    #[test]
    fn event_is_one_line_without_control_characters() {
        let said = logged(|| {
            let _span = info_span!("call", method = "a b").entered();
            info!(words = "two\nlines \x1b[31m", name = "a\u{202e}b", "it \x1b[0m said:\n{}", "x");
        });
        assert_eq!(
            said,
            " INFO call{method=\"a b\"}: it \\u001b[0m said:\\u000ax words=\"two\\nlines \\u001b[31m\" \
             name=\"a\\u202eb\"\n"
        );
    }
}
