//! Cuts a stream of bytes into lines, with bounded memory.

/// Lines longer than this are dropped, and said to be.
pub(super) const LONGEST: usize = 8 << 20;
/// A buffer that grew beyond this for one long line is given back after it.
const KEEP: usize = 256 << 10;

/// What a stream is cut into.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// A line without its end (`\n` or `\r\n`).
    Line(&'a [u8]),
    /// A line that was too long; this many bytes were dropped.
    TooLong(u64),
}

/// Collects bytes until a line is whole.
#[derive(Debug)]
pub(super) struct Lines {
    longest: usize,
    rest: Vec<u8>,
    /// Bytes of the present line that were dropped since it is too long; 0 if it is not.
    dropped: u64,
}

impl Lines {
    pub(super) fn new(longest: usize) -> Self {
        Lines { longest, rest: Vec::new(), dropped: 0 }
    }

    /// Takes bytes as they come, and hands out the lines that are whole now.
    pub(super) fn push(&mut self, mut bytes: &[u8], mut each: impl FnMut(Piece<'_>)) {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            bytes = rest;
            if self.dropped == 0 && self.rest.is_empty() && line.len() <= self.longest {
                each(Piece::Line(trim(line)));
            } else {
                self.keep(line);
                self.flush(&mut each);
            }
        }
        self.keep(bytes);
    }

    /// Hands out what is left at the end of the stream.
    pub(super) fn end(&mut self, mut each: impl FnMut(Piece<'_>)) {
        if self.dropped > 0 || !self.rest.is_empty() {
            self.flush(&mut each);
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.dropped > 0 || self.rest.len() + bytes.len() > self.longest {
            self.dropped += (self.rest.len() + bytes.len()) as u64;
            self.rest = Vec::new();
        } else {
            self.rest.extend_from_slice(bytes);
        }
    }

    fn flush(&mut self, each: &mut impl FnMut(Piece<'_>)) {
        match std::mem::take(&mut self.dropped) {
            0 => each(Piece::Line(trim(&self.rest))),
            dropped => each(Piece::TooLong(dropped)),
        }
        self.rest.clear();
        if self.rest.capacity() > KEEP {
            self.rest = Vec::new();
        }
    }
}

fn trim(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(chunks: &[&[u8]], longest: usize) -> Vec<Result<Vec<u8>, u64>> {
        let mut out = Vec::new();
        let mut lines = Lines::new(longest);
        let mut each = |piece: Piece<'_>| match piece {
            Piece::Line(line) => out.push(Ok(line.to_vec())),
            Piece::TooLong(n) => out.push(Err(n)),
        };
        for chunk in chunks {
            lines.push(chunk, &mut each);
        }
        lines.end(&mut each);
        out
    }

    #[test]
    fn ends_of_lines_and_a_last_line_without_one() {
        let got = cut(&[b"a\r\n\nb", b"c\xff"], 10);
        assert_eq!(got, [Ok(b"a".to_vec()), Ok(vec![]), Ok(b"bc\xff".to_vec())]);
    }

    #[test]
    fn a_long_line_is_counted_and_the_next_is_whole() {
        assert_eq!(cut(&[b"12345", b"678", b"9\nok\n"], 6), [Err(9), Ok(b"ok".to_vec())]);
        assert_eq!(cut(&[b"1234567\nok"], 6), [Err(7), Ok(b"ok".to_vec())]);
        assert_eq!(cut(&[b"1234567"], 6), [Err(7)]);
    }

    proptest! {
        #[test]
        fn where_the_chunks_are_cut_does_not_matter(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b'x')], 0..200),
            at in 0usize..200,
        ) {
            let at = at.min(bytes.len());
            let whole = cut(&[&bytes], 7);
            prop_assert_eq!(cut(&[&bytes[..at], &bytes[at..]], 7), whole);
        }
    }
}
