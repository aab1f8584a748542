//! Server-sent events, put together from bytes however they were cut.

/// The longest event that is read.
const MAX_EVENT: usize = 32 << 20;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    /// Its name; empty if it has none.
    pub name: String,
    /// Its data, lines joined.
    pub data: String,
}

/// An event that is longer than any that an API sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is over {} MiB", MAX_EVENT >> 20)]
pub(super) struct TooLong;

/// Makes events of bytes. Text is decoded by the whole line, so that no character can be cut in two.
#[derive(Debug, Default)]
pub(super) struct Parser {
    line: Vec<u8>,
    name: String,
    data: String,
    has_data: bool,
    /// The last byte was a carriage return: a line feed that follows belongs to it.
    after_cr: bool,
    started: bool,
}

impl Parser {
    /// Takes bytes as they come, and hands whole events to `event`.
    pub fn push(&mut self, bytes: &[u8], event: &mut dyn FnMut(Event)) -> Result<(), TooLong> {
        for &byte in bytes {
            let after_cr = std::mem::replace(&mut self.after_cr, byte == b'\r');
            match byte {
                b'\n' if after_cr => {}
                b'\n' | b'\r' => self.line_end(event),
                _ => {
                    self.line.push(byte);
                    if self.line.len() + self.data.len() > MAX_EVENT {
                        return Err(TooLong);
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes the end of the stream. An event without its blank line counts, if its line is whole: some
    /// servers leave the last one out.
    pub fn end(&mut self, event: &mut dyn FnMut(Event)) {
        if self.line.is_empty() {
            self.dispatch(event);
        }
    }

    fn line_end(&mut self, event: &mut dyn FnMut(Event)) {
        let line = std::mem::take(&mut self.line);
        let mut line: &[u8] = &line;
        if !std::mem::replace(&mut self.started, true) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            return self.dispatch(event);
        }
        let (field, value) = match line.iter().position(|b| *b == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &b""[..]),
        };
        let value = String::from_utf8_lossy(value.strip_prefix(b" ").unwrap_or(value));
        match field {
            b"event" => self.name = value.into_owned(),
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push('\n');
                }
                self.data.push_str(&value);
            }
            // A comment, an id, a retry time: nothing for us.
            _ => {}
        }
    }

    fn dispatch(&mut self, event: &mut dyn FnMut(Event)) {
        let (name, data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
        if std::mem::take(&mut self.has_data) {
            event(Event { name, data });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(chunks: &[&[u8]]) -> Vec<(String, String)> {
        let (mut parser, mut got) = (Parser::default(), Vec::new());
        let mut take = |e: Event| got.push((e.name, e.data));
        for chunk in chunks {
            parser.push(chunk, &mut take).unwrap();
        }
        parser.end(&mut take);
        got
    }

    const STREAM: &str = "\u{feff}: hello\r\nevent: a\r\ndata: {\"t\":\"ä€😀\"}\r\n\r\nid: 1\ndata:x\ndata: y\n\nevent: none\n\nretry\n\rdata\r\rdata: last\n";

    #[test]
    fn every_cut_gives_the_same_events() {
        let want = events(&[STREAM.as_bytes()]);
        assert_eq!(want[0], ("a".into(), "{\"t\":\"ä€😀\"}".into()));
        assert_eq!(want[1], (String::new(), "x\ny".into()));
        assert_eq!(want[2], (String::new(), String::new()));
        assert_eq!(want[3], (String::new(), "last".into()));
        assert_eq!(want.len(), 4);
        for cut in 0..=STREAM.len() {
            let (a, b) = STREAM.as_bytes().split_at(cut);
            assert_eq!(events(&[a, b]), want, "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = STREAM.as_bytes().chunks(1).collect();
        assert_eq!(events(&bytes), want);
    }

    #[test]
    fn an_event_that_was_cut_off_does_not_count() {
        assert_eq!(events(&[b"data: {\"half\": "]), []);
    }

    #[test]
    fn a_line_without_end_is_given_up() {
        let mut parser = Parser::default();
        let chunk = vec![b'x'; 1 << 20];
        let result: Result<(), TooLong> =
            (0..40).try_for_each(|_| parser.push(&chunk, &mut |_| panic!("no event")));
        assert_eq!(result, Err(TooLong));
    }
}
